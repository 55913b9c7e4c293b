//! The objects of a job, made in a cluster.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job as KubernetesJob;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tessera_batch::{Job, Objects};
use uuid::Uuid;

use crate::api_server::failed;
use crate::output::CommandError;

/// Most jobs of one name.
const MOST: u32 = 1_000;

/// Makes the Job, and then what its pods wait for, which goes with it. A name that is taken gets a number.
///
/// # Errors
/// The API server refuses an object; then none of them stays, or a note names the Job.
pub async fn apply(client: &Client, namespace: &str, job: &mut Job) -> Result<(), CommandError> {
    let jobs: Api<KubernetesJob> = Api::namespaced(client.clone(), namespace);
    let name = job.name.clone();
    job.namespace = Some(namespace.to_owned());
    for number in 1..=MOST {
        if number > 1 {
            job.name = format!("{name}-{number}");
        }
        let objects = Objects::of(job);
        let made = match jobs.create(&PostParams::default(), &objects.job).await {
            Err(error) if is_taken(&error) => continue,
            made => made.map_err(failed("creation of the Job"))?,
        };
        match others(client, namespace, &objects, &made).await {
            Ok(()) => return Ok(()),
            Err(error) => {
                delete(&jobs, &made).await;
                // Objects of a job that was cancelled just now go some time after it.
                if !is_taken(&error) {
                    return Err(failed("creation of the Job's claims, script, Service or key")(error).into());
                }
            }
        }
    }
    Err(CommandError::Asked(format!(
        "namespace {namespace} has {MOST} jobs with this name: choose another one"
    )))
}

fn is_taken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
}

/// Deletes the Job, not another one that has got its name.
async fn delete(jobs: &Api<KubernetesJob>, job: &KubernetesJob) {
    let only = Preconditions { uid: job.uid(), resource_version: None };
    let name = job.name_any();
    match jobs.delete(&name, &DeleteParams::background().preconditions(only)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => super::tell([format!("Job {name} is left, and its pods wait: {error}")]),
        Ok(_) => {}
    }
}

async fn others(
    client: &Client,
    namespace: &str,
    objects: &Objects,
    job: &KubernetesJob,
) -> Result<(), kube::Error> {
    let make = Maker { client, namespace, job };
    // Two random UUIDs: 244 bits that nobody can guess.
    let key = [Uuid::new_v4(), Uuid::new_v4()].map(|part| part.simple().to_string()).concat();
    make.owned(objects.script.clone()).await?;
    make.owned(objects.service.clone()).await?;
    make.owned(objects.secret(&key)).await?;
    // The last: without it no pod gets GPUs, so a job refused half way has taken none.
    make.owned(objects.template.clone()).await
}

struct Maker<'m> {
    client: &'m Client,
    namespace: &'m str,
    job: &'m KubernetesJob,
}

impl Maker<'_> {
    /// Makes the object, if there is one, so that it is deleted with the Job.
    async fn owned<T>(&self, object: Option<T>) -> Result<(), kube::Error>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let Some(mut object) = object else { return Ok(()) };
        object.meta_mut().owner_references = self.job.owner_ref(&()).map(|owner| vec![owner]);
        let objects: Api<T> = Api::namespaced(self.client.clone(), self.namespace);
        objects.create(&PostParams::default(), &object).await.map(drop)
    }
}
