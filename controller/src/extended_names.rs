//! Makes kube-scheduler relearn forgotten extended resource names.
//!
//! kube-scheduler forgets a name when any DeviceClass drops the name, even if another class has it (docs/upstream/README.md). Any
//! change of the other class restores the name. So a class gets an annotation when pods report its resource as lacking everywhere.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;
use tessera_cluster::PodExt;
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::events::{Content, Events, Severity};
use tokio_util::sync::CancellationToken;

use crate::carry_out::MayWrite;
use crate::failure_log::FailureLog;

/// Time of the last touch of a class, RFC 3339.
const TOUCHED: &str = "gpu.tessera.dev/touched";
/// Pause between two checks.
const PAUSE: Duration = Duration::from_secs(30);
/// Pause between two touches of a class, in seconds. kube-scheduler retries pods after five minutes; until then their messages are
/// from before the touch.
const AGAIN: i64 = 600;
/// Maximum number of pods checked. A forgotten name is reported by every pod requesting the resource.
const PODS: u32 = 500;
const NODES_PER_PAGE: u32 = 500;

/// The task touching classes.
pub struct ExtendedNames {
    /// The API server.
    pub client: Client,
    /// Sends Events about touched classes.
    pub events: Events,
    /// Whether this replica is the leader.
    pub may_write: MayWrite,
}

impl ExtendedNames {
    /// Checks repeatedly until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut failures = FailureLog::new("look for forgotten extended resource names");
        loop {
            if (self.may_write)() {
                failures.record(&self.look().await);
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    async fn look(&self) -> Result<(), kube::Error> {
        let classes: Api<DeviceClass> = Api::all(self.client.clone());
        let now = Timestamp::now();
        let classes = classes.list(&ListParams::default()).await?.items;
        let classes: Vec<&DeviceClass> =
            classes.iter().filter(|class| may_be_forgotten(class, now)).collect();
        if classes.is_empty() {
            return Ok(());
        }
        let pods: Api<Pod> = Api::all(self.client.clone());
        let waiting = ListParams::default().fields("status.phase=Pending,spec.nodeName=").limit(PODS);
        let waiting = pods.list(&waiting).await?.items;
        let lacked: BTreeSet<&str> = classes
            .iter()
            .map(|class| resource(class))
            .filter(|name| waiting.iter().any(|pod| lacks(pod, name)))
            .collect();
        if lacked.is_empty() {
            return Ok(());
        }
        let of_nodes = self.resources_of_nodes().await?;
        for class in classes {
            let resource = resource(class);
            if lacked.contains(resource) && !of_nodes.contains(resource) {
                self.touch(class, resource, now).await;
            }
        }
        Ok(())
    }

    /// Extended resources of nodes' own device plugins. A lack of such a resource is a real one.
    async fn resources_of_nodes(&self) -> Result<BTreeSet<String>, kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut found = BTreeSet::new();
        let mut page = ListParams::default().limit(NODES_PER_PAGE);
        loop {
            let list = nodes.list(&page).await?;
            for node in &list.items {
                let allocatable =
                    node.status.iter().filter_map(|status| status.allocatable.as_ref()).flatten();
                found.extend(allocatable.filter(|(_, count)| count.0 != "0").map(|(name, _)| name.clone()));
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    async fn touch(&self, class: &DeviceClass, resource: &str, now: Timestamp) {
        if !(self.may_write)() {
            return;
        }
        let name = class.name_any();
        let patch = json!({ "metadata": { "annotations": { TOUCHED: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() } } });
        let classes: Api<DeviceClass> = Api::all(self.client.clone());
        let outcome = classes.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let (severity, note) = match outcome {
            Ok(_) => (
                Severity::Normal,
                format!(
                    "kube-scheduler had forgotten that this class stands for {resource}. It was reminded by a change of the \
                     annotation {TOUCHED}; pods that wait follow within five minutes"
                ),
            ),
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => (
                Severity::Warning,
                format!(
                    "kube-scheduler has forgotten that this class stands for {resource}: any change of the class reminds it, as \
                     kubectl annotate deviceclass {name} {TOUCHED}=now --overwrite. The controller cannot: {}",
                    with_causes(&error)
                ),
            ),
        };
        match severity {
            Severity::Normal => tracing::info!(class = name, "{note}"),
            Severity::Warning => tracing::warn!(class = name, "{note}"),
        }
        let object = ObjectReference {
            api_version: Some(DeviceClass::api_version(&()).into_owned()),
            kind: Some(DeviceClass::kind(&()).into_owned()),
            name: Some(name),
            uid: class.uid(),
            ..ObjectReference::default()
        };
        let content = Content {
            severity,
            action: "Reminding",
            reason: "ExtendedResourceForgotten",
            note: &note,
            occurrence: None,
        };
        self.events.send(&content, &object);
    }
}

fn resource(class: &DeviceClass) -> &str {
    class.spec.as_ref().and_then(|spec| spec.extended_resource_name.as_deref()).unwrap_or_default()
}

/// Whether the class has an extended resource name, and pods' messages may be from after the last touch.
fn may_be_forgotten(class: &DeviceClass, now: Timestamp) -> bool {
    let touched = class.annotations().get(TOUCHED).and_then(|text| text.parse::<Timestamp>().ok());
    !resource(class).is_empty()
        && touched.is_none_or(|touched| now.as_second() - touched.as_second() >= AGAIN)
}

/// Whether kube-scheduler looks for this resource among the nodes' own, and reports a shortage for the pod.
fn lacks(pod: &Pod, resource: &str) -> bool {
    // As in: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: …
    pod.is_unschedulable()
        && pod.scheduler_message().is_some_and(|message| {
            let after = message.split("Insufficient ").skip(1);
            after
                .filter_map(|rest| rest.split([' ', ',']).next())
                .any(|name| name.trim_end_matches('.') == resource)
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn what_a_pod_lacks_is_read_from_the_schedulers_words() {
        let pod = |message: &str, reason: &str| -> Pod {
            from_value(json!({ "status": { "conditions": [
                { "type": "PodScheduled", "status": "False", "reason": reason, "message": message }] } }))
            .unwrap()
        };
        let waits = pod(
            "0/3 nodes are available: 1 Insufficient cpu, 3 Insufficient nvidia.com/gpu.shared. preemption: 0/3 nodes",
            "Unschedulable",
        );
        assert!(lacks(&waits, "nvidia.com/gpu.shared"));
        assert!(lacks(&waits, "cpu"));
        assert!(!lacks(&waits, "nvidia.com/gpu"));
        let last = pod("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", "Unschedulable");
        assert!(lacks(&last, "nvidia.com/gpu"));
        assert!(!lacks(&pod("1 Insufficient nvidia.com/gpu.", "SchedulingGated"), "nvidia.com/gpu"));
        assert!(!lacks(&Pod::default(), "nvidia.com/gpu"));
    }

    #[test]
    fn a_class_is_touched_again_after_the_scheduler_had_time_to_try_its_pods() {
        let class = |name: Option<&str>, touched: &str| -> DeviceClass {
            from_value(json!({ "metadata": { "name": "a", "annotations": { TOUCHED: touched } },
                "spec": { "extendedResourceName": name } }))
            .unwrap()
        };
        let now: Timestamp = "2026-11-26T10:10:00Z".parse().unwrap();
        assert!(may_be_forgotten(&class(Some("example.com/gpu"), "2026-11-26T10:00:00Z"), now));
        assert!(!may_be_forgotten(&class(Some("example.com/gpu"), "2026-11-26T10:00:01Z"), now));
        assert!(may_be_forgotten(&class(Some("example.com/gpu"), "yesterday"), now));
        assert!(!may_be_forgotten(&class(None, "yesterday"), now));
    }
}
