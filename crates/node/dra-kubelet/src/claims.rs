//! The DRA services, v1 and v1beta1: pass the kubelet's claims to [`ClaimPreparer`] and return its answers.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
};

use tessera_proto::dra::{v1, v1beta1};
use tonic::{Request, Response, Status};

use tessera_kube_util::error_text::{shorten, with_causes};

use crate::{Answers, ClaimReference, KubeletMetrics, PreparedDevice};

/// Largest number of claims in one call. The kubelet sends the claims of one pod.
const MAX_CLAIMS: usize = 1024;

/// Longest error text to send, in bytes. The kubelet shows the text in an event, which holds 1 KiB.
const MAX_ERROR: usize = 2048;

/// Prepares claims: the driver, or a stand-in in a test.
pub trait ClaimPreparer: Clone + Send + Sync + 'static {
    /// Why a claim could not be prepared or unprepared.
    type Error: std::error::Error + Send + 'static;

    /// Prepares claims. Idempotent. The work goes on when the future is dropped.
    fn prepare(
        &self,
        claims: Vec<ClaimReference>,
    ) -> impl Future<Output = Answers<Vec<PreparedDevice>, Self::Error>> + Send;

    /// Unprepares claims, including unknown ones.
    fn unprepare(&self, claims: Vec<ClaimReference>)
    -> impl Future<Output = Answers<(), Self::Error>> + Send;
}

/// Answers on the DRA socket.
#[derive(Clone, Debug)]
pub struct ClaimService<P> {
    preparer: P,
    metrics: KubeletMetrics,
}

/// The answer for each claim by UID, with errors as text.
type Texts<T> = HashMap<String, Result<T, String>>;

impl<P: ClaimPreparer> ClaimService<P> {
    /// A service passing its calls to `preparer`.
    pub fn new(preparer: P, metrics: KubeletMetrics) -> Self {
        Self { preparer, metrics }
    }

    async fn prepare(&self, claims: Vec<v1::Claim>) -> Result<Texts<Vec<PreparedDevice>>, Status> {
        // Our own probe sends no claims and is not counted.
        if claims.is_empty() {
            return Ok(Texts::new());
        }
        let call = self.metrics.call("NodePrepareResources");
        let claims = references(claims)?;
        let asked: Vec<String> = claims.iter().map(|claim| claim.uid.clone()).collect();
        let answers = collect(asked, self.preparer.prepare(claims).await);
        call.answered(answers.values().all(Result::is_ok));
        Ok(answers)
    }

    async fn unprepare(&self, claims: Vec<v1::Claim>) -> Result<Texts<()>, Status> {
        let call = self.metrics.call("NodeUnprepareResources");
        let claims = references(claims)?;
        let asked: Vec<String> = claims.iter().map(|claim| claim.uid.clone()).collect();
        let answers = collect(asked, self.preparer.unprepare(claims).await);
        call.answered(answers.values().all(Result::is_ok));
        Ok(answers)
    }
}

#[tonic::async_trait]
impl<P: ClaimPreparer> v1::dra_plugin_server::DraPlugin for ClaimService<P> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1::NodePrepareResourcesResponse>, Status> {
        let answers = self.prepare(request.into_inner().claims).await?;
        let response = |answer: Result<Vec<PreparedDevice>, String>| match answer {
            Ok(devices) => v1::NodePrepareResourceResponse {
                devices: devices.into_iter().map(device).collect(),
                error: String::new(),
            },
            Err(error) => v1::NodePrepareResourceResponse { devices: Vec::new(), error },
        };
        let claims = answers.into_iter().map(|(uid, answer)| (uid, response(answer))).collect();
        Ok(Response::new(v1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        let answers = self.unprepare(request.into_inner().claims).await?;
        let response = |answer: Result<(), String>| v1::NodeUnprepareResourceResponse {
            error: answer.err().unwrap_or_default(),
        };
        let claims = answers.into_iter().map(|(uid, answer)| (uid, response(answer))).collect();
        Ok(Response::new(v1::NodeUnprepareResourcesResponse { claims }))
    }
}

#[tonic::async_trait]
impl<P: ClaimPreparer> v1beta1::dra_plugin_server::DraPlugin for ClaimService<P> {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        let answers = self.prepare(request.into_inner().claims.into_iter().map(claim).collect()).await?;
        let response = |answer: Result<Vec<PreparedDevice>, String>| match answer {
            Ok(devices) => v1beta1::NodePrepareResourceResponse {
                devices: devices.into_iter().map(device_without_share).collect(),
                error: String::new(),
            },
            Err(error) => v1beta1::NodePrepareResourceResponse { devices: Vec::new(), error },
        };
        let claims = answers.into_iter().map(|(uid, answer)| (uid, response(answer))).collect();
        Ok(Response::new(v1beta1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let answers = self.unprepare(request.into_inner().claims.into_iter().map(claim).collect()).await?;
        let response = |answer: Result<(), String>| v1beta1::NodeUnprepareResourceResponse {
            error: answer.err().unwrap_or_default(),
        };
        let claims = answers.into_iter().map(|(uid, answer)| (uid, response(answer))).collect();
        Ok(Response::new(v1beta1::NodeUnprepareResourcesResponse { claims }))
    }
}

fn device(device: PreparedDevice) -> v1::Device {
    let PreparedDevice { request_names, pool_name, device_name, cdi_device_ids, share_id } = device;
    v1::Device { request_names, pool_name, device_name, cdi_device_ids, share_id }
}

fn device_without_share(device: PreparedDevice) -> v1beta1::Device {
    let PreparedDevice { request_names, pool_name, device_name, cdi_device_ids, share_id: _ } = device;
    v1beta1::Device { request_names, pool_name, device_name, cdi_device_ids }
}

fn claim(claim: v1beta1::Claim) -> v1::Claim {
    let v1beta1::Claim { namespace, uid, name } = claim;
    v1::Claim { namespace, uid, name }
}

/// The claims, without duplicates.
fn references(claims: Vec<v1::Claim>) -> Result<Vec<ClaimReference>, Status> {
    if claims.len() > MAX_CLAIMS {
        let message = format!("{} claims in one call: at most {MAX_CLAIMS} are taken", claims.len());
        return Err(Status::invalid_argument(message));
    }
    let mut seen = HashSet::new();
    let new = claims.into_iter().filter(|claim| seen.insert(claim.uid.clone()));
    Ok(new.map(|v1::Claim { namespace, uid, name }| ClaimReference { namespace, name, uid }).collect())
}

/// Gives every claim an answer: the kubelet takes a missing one as an error without a text.
fn collect<T, E: std::error::Error + 'static>(asked: Vec<String>, mut given: Answers<T, E>) -> Texts<T> {
    let answer = |uid: String| {
        let answer = match given.remove(&uid) {
            Some(answer) => answer.map_err(|error| shorten(&with_causes(&error), MAX_ERROR).to_owned()),
            None => {
                Err("the plugin has no answer for this claim; this is a defect, please report it".to_owned())
            }
        };
        (uid, answer)
    };
    asked.into_iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(namespace: &str, name: &str, uid: &str) -> v1::Claim {
        v1::Claim { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() }
    }

    #[test]
    fn each_claim_once_and_not_too_many() {
        let twice = vec![claim("a", "b", "u"), claim("a", "b", "u"), claim("a", "c", "v")];
        assert_eq!(references(twice).unwrap().len(), 2);
        let many = (0..=MAX_CLAIMS).map(|n| claim("a", "b", &n.to_string())).collect();
        assert_eq!(references(many).unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn a_claim_without_answer_gets_an_error() {
        let given: Answers<(), std::fmt::Error> = Answers::from([("b".to_owned(), Ok(()))]);
        let answers = collect(vec!["a".to_owned(), "b".to_owned()], given);
        assert!(answers["a"].is_err() && answers["b"].is_ok());
    }
}
