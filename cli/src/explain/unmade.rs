//! A pod's claim whose creation was refused by the API server, mostly for a quota.

use serde::Serialize;
use tessera_cluster::PodExt;
use tessera_cluster::subject::{MadeFrom, Subject};

use crate::api_server::News;

/// Prefix before the name of an exhausted quota in messages of the API server's admission plugin.
const EXCEEDED: &str = "exceeded quota: ";

/// Details of the refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmade {
    /// The ResourceQuota behind the refusal, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<ExceededQuota>,
    /// In Kubernetes' words.
    pub message: String,
}

/// A ResourceQuota without room for the claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExceededQuota {
    /// Its name, in the pod's namespace.
    pub name: String,
    /// The exhausted resources.
    pub resources: Vec<ExceededResource>,
}

/// A resource of a ResourceQuota; amounts as Kubernetes writes quantities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExceededResource {
    /// For example `gpu.tessera.dev.deviceclass.resource.k8s.io/devices`.
    pub name: String,
    /// Amount requested by the claim.
    pub requested: String,
    /// Amount used by others at the time.
    pub used: String,
    /// The limit.
    pub limited: String,
}

/// Why a claim of the pod could not be created; `None` if all exist, or no refusal is known. kube-controller-manager creates
/// claims from templates and reports failures in Events. kube-scheduler creates claims for extended resources and reports
/// failures in the pod's status.
pub fn of(subject: &Subject, news: Option<&News>) -> Option<Unmade> {
    let message = subject.claims.iter().find_map(|wanted| match wanted.made_from.as_ref()? {
        MadeFrom::Template(_) => news?.claim_refused.clone(),
        MadeFrom::ExtendedResources(_) => {
            let said = subject.pod.as_ref().and_then(PodExt::scheduler_message);
            said.filter(|said| said.contains(EXCEEDED)).map(str::to_owned)
        }
    })?;
    Some(Unmade { quota: exceeded(&message), message })
}

/// Whether a claim of one of the pod's templates is missing: an Event may have the reason.
pub fn lacks_claim(subject: &Subject) -> bool {
    subject.claims.iter().any(|wanted| matches!(wanted.made_from, Some(MadeFrom::Template(_))))
}

/// Reads `exceeded quota: NAME, requested: A=1,B=2, used: A=2,B=0, limited: A=2,B=1`.
fn exceeded(message: &str) -> Option<ExceededQuota> {
    let (_, said) = message.split_once(EXCEEDED)?;
    let (name, said) = said.split_once(", requested: ")?;
    let (requested, said) = said.split_once(", used: ")?;
    let (used, limited) = said.split_once(", limited: ")?;
    let of = |amounts: &str, name: &str| {
        let mut pairs = amounts.split(',').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, amount)| amount.to_owned())
    };
    let resources = requested.split(',').map(|pair| {
        let (name, requested) = pair.trim().split_once('=')?;
        Some(ExceededResource {
            name: name.to_owned(),
            requested: requested.to_owned(),
            used: of(used, name)?,
            limited: of(limited, name)?,
        })
    });
    Some(ExceededQuota { name: name.to_owned(), resources: resources.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_from_kubernetes_words() {
        let amount = |name: &str, [requested, used, limited]: [&str; 3]| ExceededResource {
            name: name.to_owned(),
            requested: requested.to_owned(),
            used: used.to_owned(),
            limited: limited.to_owned(),
        };
        let said = "PodResourceClaim gpu: resourceclaims.resource.k8s.io \"a\" is forbidden: exceeded quota: cards, requested: \
                    count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=4, used: \
                    count/resourceclaims.resource.k8s.io=9,gpu.deviceclass.resource.k8s.io/devices=6, limited: \
                    count/resourceclaims.resource.k8s.io=9,gpu.deviceclass.resource.k8s.io/devices=8";
        let resources = vec![
            amount("count/resourceclaims.resource.k8s.io", ["1", "9", "9"]),
            amount("gpu.deviceclass.resource.k8s.io/devices", ["4", "6", "8"]),
        ];
        assert_eq!(exceeded(said), Some(ExceededQuota { name: "cards".to_owned(), resources }));
        for other in ["exceeded quota: x", "exceeded quota: x, requested: a=1, used: b=1, limited: a=1", ""] {
            assert_eq!(exceeded(other), None, "{other}");
        }
    }
}
