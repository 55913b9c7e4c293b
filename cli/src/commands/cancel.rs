//! `kubectl gpu cancel`: ends jobs of `kubectl gpu run`.

use k8s_openapi::api::batch::v1::Job;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use tessera_batch::{MANAGED_BY, MANAGED_BY_LABEL};

use crate::api_server::{block_on, connect, failed};
use crate::arguments::CancelArguments;
use crate::output::{self, CommandError, Verdict, printable};

/// Runs the command. Jobs that were cancelled before an error stay cancelled.
///
/// # Errors
/// The cluster is unreachable, the API server refuses, or a Job is of somebody else's making.
pub fn run(arguments: &CancelArguments) -> Result<Verdict, CommandError> {
    block_on(async {
        let (client, namespace) = connect(&arguments.connection, arguments.namespace.as_deref()).await?;
        let jobs: Api<Job> = Api::namespaced(client, &namespace);
        let mut verdict = Verdict::Yes;
        for name in &arguments.jobs {
            let shown = printable(&format!("{namespace}/{name}"));
            let Some(job) = jobs.get_opt(name).await.map_err(failed("Job"))? else {
                output::print(&format!("job {shown}: there is none\n"))?;
                verdict = Verdict::No;
                continue;
            };
            if job.labels().get(MANAGED_BY_LABEL).map(String::as_str) != Some(MANAGED_BY) {
                return Err(CommandError::Asked(format!(
                    "job {shown} is not of `kubectl gpu run`: to delete it, `kubectl delete job`"
                )));
            }
            // The pods, and all that the Job owns, go with it.
            jobs.delete(name, &DeleteParams::background()).await.map_err(failed("deletion of the Job"))?;
            output::print(&format!("job {shown}: cancelled\n"))?;
        }
        Ok(verdict)
    })
}
