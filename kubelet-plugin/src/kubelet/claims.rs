//! The DRA services, v1 and v1beta1: from the kubelet's claims to [`ClaimPreparer`] and back.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    future::Future,
};

use tessera_proto::dra::{v1, v1beta1};
use tonic::{Request, Response, Status};

use crate::{
    metrics::Metrics,
    prepare::{Answers, ClaimReference, PreparedDevice},
};

/// The most claims of one call. The kubelet sends those of one pod.
const MAX_CLAIMS: usize = 1024;

/// The longest error text that is sent: the kubelet shows it in an event, which holds 1 KiB.
const MAX_ERROR: usize = 2048;

/// Who makes claims real; the plugin's [`Preparer`](crate::prepare), or a stand-in in a test.
pub trait ClaimPreparer: Clone + Send + Sync + 'static {
    /// Why a claim could not be prepared or unprepared.
    type Error: std::error::Error + Send;

    /// Prepares claims, each of them once however often it is asked for. The work goes on when the future is dropped.
    fn prepare(
        &self,
        claims: Vec<ClaimReference>,
    ) -> impl Future<Output = Answers<Vec<PreparedDevice>, Self::Error>> + Send;

    /// Undoes that, also for claims it does not know.
    fn unprepare(&self, claims: Vec<ClaimReference>)
    -> impl Future<Output = Answers<(), Self::Error>> + Send;
}

/// Answers on the DRA socket.
#[derive(Clone, Debug)]
pub struct ClaimService<P> {
    preparer: P,
    metrics: Metrics,
}

/// The answer for each claim by UID, with errors as text.
type Texts<T> = HashMap<String, Result<T, String>>;

impl<P: ClaimPreparer> ClaimService<P> {
    /// A service that hands its calls to `preparer`.
    pub fn new(preparer: P, metrics: Metrics) -> Self {
        Self { preparer, metrics }
    }

    async fn prepare(&self, claims: Vec<v1::Claim>) -> Result<Texts<Vec<PreparedDevice>>, Status> {
        let call = self.metrics.call("NodePrepareResources");
        let (claims, mut answers) = check(claims)?;
        let asked: Vec<String> = claims.iter().map(|claim| claim.uid.clone()).collect();
        collect(asked, self.preparer.prepare(claims).await, &mut answers);
        call.answered(answers.values().all(Result::is_ok));
        Ok(answers)
    }

    async fn unprepare(&self, claims: Vec<v1::Claim>) -> Result<Texts<()>, Status> {
        let call = self.metrics.call("NodeUnprepareResources");
        let (claims, mut answers) = check(claims)?;
        let asked: Vec<String> = claims.iter().map(|claim| claim.uid.clone()).collect();
        collect(asked, self.preparer.unprepare(claims).await, &mut answers);
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

/// Parts claims that can be worked on, each once, from those that no API server would have let in: their parts end up
/// in file names and in URLs.
fn check<T>(claims: Vec<v1::Claim>) -> Result<(Vec<ClaimReference>, Texts<T>), Status> {
    if claims.len() > MAX_CLAIMS {
        let message = format!("{} claims in one call: at most {MAX_CLAIMS} are taken", claims.len());
        return Err(Status::invalid_argument(message));
    }
    let (mut good, mut bad, mut seen) = (Vec::new(), Texts::new(), HashSet::new());
    for v1::Claim { namespace, uid, name } in claims {
        if !seen.insert(uid.clone()) {
            continue;
        }
        let what = if !is_identifier(&uid, 128, false) {
            Some(("uid", &uid))
        } else if !is_identifier(&namespace, 63, false) {
            Some(("namespace", &namespace))
        } else if !is_identifier(&name, 253, true) {
            Some(("name", &name))
        } else {
            None
        };
        match what {
            Some((field, value)) => {
                let error =
                    format!("the claim's {field} {:?} is not one Kubernetes gives", shorten(value, 80));
                tracing::warn!(error, "refused a claim");
                bad.insert(uid, Err(error));
            }
            None => good.push(ClaimReference { namespace, name, uid }),
        }
    }
    Ok((good, bad))
}

/// Whether this is a DNS label, or a subdomain where `dots` are allowed; upper case too, as UIDs are not defined closer.
fn is_identifier(text: &str, longest: usize, dots: bool) -> bool {
    (1..=longest).contains(&text.len())
        && text.split('.').all(|label| label.starts_with(|c: char| c.is_ascii_alphanumeric()))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || dots && c == '.')
}

/// Gives each claim an answer: the kubelet takes a missing one as an error without a text.
fn collect<T, E: std::error::Error>(asked: Vec<String>, mut given: Answers<T, E>, answers: &mut Texts<T>) {
    for uid in asked {
        let answer = match given.remove(&uid) {
            Some(answer) => answer.map_err(|error| text(&error)),
            None => {
                Err("the plugin has no answer for this claim; this is a defect, please report it".to_owned())
            }
        };
        answers.insert(uid, answer);
    }
}

/// An error with its causes, each said once.
fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            // Writing to a string does not fail.
            let _ = write!(text, ": {message}");
        }
        source = cause.source();
    }
    shorten(&text, MAX_ERROR).to_owned()
}

fn shorten(text: &str, longest: usize) -> &str {
    let mut end = longest.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(namespace: &str, name: &str, uid: &str) -> v1::Claim {
        v1::Claim { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() }
    }

    #[test]
    fn claims_that_could_leave_their_place_are_refused_one_by_one() {
        let bad = [
            claim("default", "a", "../../etc/passwd"),
            claim("default", "a", ""),
            claim("default", "a?watch=true", "u1"),
            claim("default/../kube-system", "a", "u2"),
            claim("default", "..", "u3"),
            claim("default", "a", &"u".repeat(129)),
            claim("default", "", "u4"),
        ];
        let count = bad.len();
        let good = [claim("default", "a.b-c", "fine"), claim("default", "a.b-c", "fine")];
        let (claims, answers) = check::<()>(bad.into_iter().chain(good).collect()).unwrap();
        assert_eq!(claims.len(), 1);
        assert_eq!(answers.len(), count);
        assert!(answers.values().all(Result::is_err));
    }

    #[test]
    fn too_many_claims_are_refused_at_once() {
        let claims = (0..=MAX_CLAIMS).map(|n| claim("a", "b", &n.to_string())).collect();
        assert_eq!(check::<()>(claims).unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn a_claim_without_answer_gets_an_error() {
        let mut answers = Texts::new();
        let given: Answers<(), std::fmt::Error> = Answers::from([("b".to_owned(), Ok(()))]);
        collect(vec!["a".to_owned(), "b".to_owned()], given, &mut answers);
        assert!(answers["a"].is_err() && answers["b"].is_ok());
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read {0}")]
    struct Outer(&'static str, #[source] std::io::Error);

    #[test]
    fn error_texts_name_their_causes_and_have_an_end() {
        let cause = || std::io::Error::other("disk full");
        assert_eq!(text(&Outer("a", cause())), "cannot read a: disk full");
        assert_eq!(text(&Outer("a: disk full", cause())), "cannot read a: disk full");
        let long: &'static str = Box::leak("ü".repeat(MAX_ERROR).into_boxed_str());
        assert!(text(&Outer(long, cause())).len() <= MAX_ERROR);
    }
}
