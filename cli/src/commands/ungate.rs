//! `kubectl gpu ungate`: removes the controller's scheduling gate.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tessera_api::steering::GATE;
use tessera_cluster::{Key, PodExt};

use crate::api_server::{ServerError, block_on, connect, failed};
use crate::arguments::UngateArguments;
use crate::output::{self, CommandError, Verdict};

/// Number of pods per answer of the API server.
const PAGE: u32 = 500;

/// Runs the command. Gates removed before an error stay removed.
///
/// # Errors
/// The cluster is unreachable, or some pods could not be changed.
pub fn run(arguments: &UngateArguments) -> Result<Verdict, CommandError> {
    block_on(async {
        let (client, namespace) = connect(&arguments.connection, arguments.namespace.as_deref()).await?;
        let gates = Gates { client, is_dry_run: arguments.dry_run };
        if arguments.all {
            let namespace = (!arguments.all_namespaces).then_some(namespace);
            gates.lift_all(namespace.as_deref()).await
        } else {
            gates.lift_named(&arguments.pods, &namespace).await
        }
    })
}

/// Result for one pod.
enum Lifted {
    /// The gate was removed; gates of other controllers are left.
    Done(Vec<String>),
    /// The pod had no such gate.
    HadNone,
    /// The pod is gone, or another pod has its name by now.
    Gone,
}

struct Gates {
    client: Client,
    is_dry_run: bool,
}

impl Gates {
    async fn lift_all(&self, namespace: Option<&str>) -> Result<Verdict, CommandError> {
        let pods: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let mut gated = Vec::new();
        // A pod with a gate is on no node.
        let mut page = ListParams::default().limit(PAGE).fields("spec.nodeName=");
        loop {
            let pods = pods.list(&page).await.map_err(failed("list of Pods"))?;
            gated.extend(pods.items.into_iter().filter(|pod| pod.is_gated()));
            match pods.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        if gated.is_empty() {
            let place = namespace.map_or("any namespace".to_owned(), |name| format!("namespace {name}"));
            output::print(&format!("no pod in {place} has the gate {GATE}\n"))?;
            return Ok(Verdict::Yes);
        }
        let mut failures: Vec<(Key, ServerError)> = Vec::new();
        for pod in &gated {
            let key = Key::from(&pod.metadata);
            match self.lift(pod).await {
                Ok(lifted) => self.tell(&key, &lifted)?,
                Err(error) => failures.push((key, error.into())),
            }
        }
        end(&failures).map(|()| Verdict::Yes)
    }

    async fn lift_named(&self, names: &[String], namespace: &str) -> Result<Verdict, CommandError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut failures: Vec<(Key, ServerError)> = Vec::new();
        let mut verdict = Verdict::Yes;
        for name in names {
            let name = pod_name(name)?;
            let key = Key::new(namespace, name);
            let lifted = match pods.get(name).await {
                Ok(pod) => self.lift(&pod).await,
                Err(error) => Err(error),
            };
            match lifted {
                Ok(lifted) => {
                    if !matches!(lifted, Lifted::Done(_)) {
                        verdict = Verdict::No;
                    }
                    self.tell(&key, &lifted)?;
                }
                Err(error) => failures.push((key, error.into())),
            }
        }
        end(&failures).map(|()| verdict)
    }

    async fn lift(&self, pod: &Pod) -> Result<Lifted, kube::Error> {
        if !pod.is_gated() {
            return Ok(Lifted::HadNone);
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        // Removes this gate alone: others may be removed meanwhile. The uid protects a new pod of the same name.
        let patch = json!({
            "metadata": { "uid": pod.metadata.uid },
            "spec": { "schedulingGates": [{ "$patch": "delete", "name": GATE }] },
        });
        let parameters = PatchParams { dry_run: self.is_dry_run, ..PatchParams::default() };
        match pods.patch(&pod.name_any(), &parameters, &Patch::Strategic(&patch)).await {
            Ok(now) => Ok(Lifted::Done(now.gates().map(str::to_owned).collect())),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Lifted::Gone),
            Err(error) => Err(error),
        }
    }

    fn tell(&self, pod: &Key, lifted: &Lifted) -> Result<(), CommandError> {
        let done = if self.is_dry_run { "would be lifted (dry run)" } else { "lifted" };
        output::print(&match lifted {
            Lifted::Done(others) if others.is_empty() => format!("pod {pod}: gate {done}\n"),
            Lifted::Done(others) => {
                format!("pod {pod}: gate {done}; it still waits for {}\n", others.join(", "))
            }
            Lifted::HadNone => format!("pod {pod}: has no gate {GATE}\n"),
            Lifted::Gone => format!("pod {pod}: is gone\n"),
        })
    }
}

/// The name of a pod written as NAME or pod/NAME.
pub(super) fn pod_name(text: &str) -> Result<&str, CommandError> {
    match text.split_once('/') {
        None => Ok(text),
        Some(("pod" | "pods" | "po", name)) => Ok(name),
        Some((kind, _)) => Err(CommandError::Asked(format!("{kind:?} is not a pod; write NAME or pod/NAME"))),
    }
}

/// One error for all pods whose gate remains.
fn end(failures: &[(Key, ServerError)]) -> Result<(), CommandError> {
    if failures.is_empty() {
        return Ok(());
    }
    let of_pods: Vec<String> = failures.iter().map(|(key, error)| format!("pod {key}: {error}")).collect();
    Err(CommandError::Asked(of_pods.join("\nerror: ")))
}
