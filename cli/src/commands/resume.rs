//! `kubectl gpu resume`: lets pods go on that were made in place of idle ones.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tessera_api::gpu_pool::{IDLE_ANNOTATION, IDLE_EVICTED_ANNOTATION, RESUME};

use super::ungate::pod_name;
use crate::api_server::{block_on, connect, failed};
use crate::arguments::ResumeArguments;
use crate::output::{self, CommandError, Verdict, printable};

/// Runs the command. Pods that were resumed before an error stay so.
///
/// # Errors
/// The cluster is unreachable, or the API server refuses.
pub fn run(arguments: &ResumeArguments) -> Result<Verdict, CommandError> {
    block_on(async {
        let (client, namespace) = connect(&arguments.connection, arguments.namespace.as_deref()).await?;
        let pods: Api<Pod> = Api::namespaced(client, &namespace);
        let mut verdict = Verdict::Yes;
        for name in &arguments.pods {
            let name = pod_name(name)?;
            let shown = printable(&format!("{namespace}/{name}"));
            let found = pods.get_opt(name).await.map_err(failed("Pod"))?;
            let Some(pod) = found.filter(|pod| pod.annotations().contains_key(IDLE_EVICTED_ANNOTATION))
            else {
                output::print(&format!(
                    "pod {shown}: it does not exist, or was not made in place of an idle pod\n"
                ))?;
                verdict = Verdict::No;
                continue;
            };
            // The uid protects a new pod of the same name.
            let patch =
                json!({ "metadata": { "uid": pod.uid(), "annotations": { IDLE_ANNOTATION: RESUME } } });
            let resumed = pods.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            resumed.map_err(failed("change of the Pod"))?;
            output::print(&format!("pod {shown}: resumed\n"))?;
        }
        Ok(verdict)
    })
}
