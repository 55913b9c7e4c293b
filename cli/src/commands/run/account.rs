//! The namespace of an account.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tessera_api::gpu_quota::GpuQuota;

use crate::api_server::failed;
use crate::output::CommandError;

/// The namespace of this name; else, of the GpuQuota of this name, the only namespace where the user may create Jobs. A name
/// of neither is returned as it is: the API server has words for it.
///
/// # Errors
/// The quota has no such namespace, or several; or namespaces cannot be listed.
pub async fn namespace(client: &Client, account: &str) -> Result<String, CommandError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    // Who may not read namespaces means one.
    if !matches!(namespaces.get_opt(account).await, Ok(None)) {
        return Ok(account.to_owned());
    }
    let quota = Api::<GpuQuota>::all(client.clone()).get_opt(account).await;
    let Ok(Some(quota)) = quota else { return Ok(account.to_owned()) };
    let all = namespaces.list(&ListParams::default()).await.map_err(failed("list of Namespaces"))?;
    let mut found = Vec::new();
    for namespace in all {
        let is_selected = quota
            .spec
            .namespace_selector
            .as_ref()
            .is_some_and(|selector| selector.matches(namespace.labels()));
        if is_selected && may_create_jobs(client, &namespace.name_any()).await? {
            found.push(namespace.name_any());
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            Err(CommandError::Asked(format!("GpuQuota {account} has no namespace where you may create Jobs")))
        }
        several => Err(CommandError::Asked(format!(
            "GpuQuota {account} has several namespaces where you may create Jobs: give one of {}",
            several.join(", ")
        ))),
    }
}

async fn may_create_jobs(client: &Client, namespace: &str) -> Result<bool, CommandError> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                verb: Some("create".to_owned()),
                group: Some("batch".to_owned()),
                resource: Some("jobs".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer =
        Api::<SelfSubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await;
    let answer = answer.map_err(failed("question for the right to create Jobs"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
