//! The controller's state in a cluster: its leader, and its last Event about a pod.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use tessera_api::waiting::{WAITING_ANNOTATION, Waiting};

use super::leader::leader;
use super::{block_on, connect};
use crate::arguments::SourceArguments;

/// The `action` of the controller's Events about pods.
const ACTION: &str = "Steering";

/// The `reason` of kube-controller-manager's Events about pods whose claim creation failed.
const CLAIM_REFUSED: &str = "FailedResourceClaimCreation";

/// News about the controller and a pod's claims.
#[derive(Debug, Default, Clone)]
pub struct News {
    /// Whether a controller runs; `None` if unreadable.
    pub controller: Option<Controller>,
    /// The controller's last Event about the pod.
    pub event: Option<ControllerEvent>,
    /// kube-controller-manager's last message about a failed claim creation for the pod.
    pub claim_refused: Option<String>,
}

impl News {
    /// News from Events about the pod.
    pub fn of_events(pod: &Pod, events: &[Event]) -> Self {
        let about = events.iter().filter(|event| is_about(event, pod));
        let refused = |event: &&Event| event.reason.as_deref() == Some(CLAIM_REFUSED);
        News {
            controller: None,
            claim_refused: about
                .clone()
                .filter(refused)
                .max_by_key(said_at)
                .and_then(|last| last.message.clone()),
            event: last(about).into_iter().chain(noted(pod)).max_by(|one, other| one.time.cmp(&other.time)),
        }
    }
}

/// The controller's annotation on a waiting pod: Events are gone after an hour.
fn noted(pod: &Pod) -> Option<ControllerEvent> {
    let waits = pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
    let text = pod.metadata.annotations.as_ref()?.get(WAITING_ANNOTATION).filter(|_| waits)?;
    let Waiting { kind, message, time } = Waiting::decode(text)?;
    Some(ControllerEvent { reason: kind, message, time: Some(in_seconds(time)) })
}

fn in_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Leadership of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum Controller {
    /// There is no Lease, or the Lease has no holder.
    Absent,
    /// The Lease was not renewed for much longer than its duration.
    Silent {
        /// The last holder.
        holder: String,
        /// Since when, in seconds.
        seconds: i64,
    },
    /// A replica leads.
    Leading {
        /// The leader.
        holder: String,
    },
}

/// An Event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerEvent {
    /// In one word.
    pub reason: String,
    /// In words.
    pub message: String,
    /// Time of the last occurrence, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// Reads the news from the cluster. Unreadable parts are left out: the answer does not depend on them.
pub fn news(arguments: &SourceArguments, pod: &Pod) -> News {
    let read = block_on(async {
        let (client, _) = connect(&arguments.connection, arguments.namespace.as_deref()).await?;
        let (controller, events) = tokio::join!(controller(&client), events(&client, pod));
        let events = events.unwrap_or_default();
        Ok::<_, super::ClusterError>(News { controller, ..News::of_events(pod, &events) })
    });
    read.unwrap_or_default()
}

/// Whether a controller leads; `None` if unreadable.
pub(super) async fn controller(client: &Client) -> Option<Controller> {
    let Some(held) = leader(client).await.ok()? else { return Some(Controller::Absent) };
    let silent = held.silent(Timestamp::now());
    let holder = held.holder;
    Some(match silent {
        Some(seconds) => Controller::Silent { holder, seconds },
        None => Controller::Leading { holder },
    })
}

async fn events(client: &Client, pod: &Pod) -> Option<Vec<Event>> {
    let uid = pod.metadata.uid.as_deref()?;
    let events: Api<Event> = Api::namespaced(client.clone(), &pod.namespace()?);
    let parameters = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    Some(events.list(&parameters).await.ok()?.items)
}

/// Whether the Event is about this pod, not an earlier one of its name.
fn is_about(event: &Event, pod: &Pod) -> bool {
    let (object, metadata) = (&event.involved_object, &pod.metadata);
    let is_earlier = matches!((&object.uid, &metadata.uid), (Some(of), Some(uid)) if of != uid);
    object.kind.as_deref() == Some("Pod")
        && object.namespace == metadata.namespace
        && object.name == metadata.name
        && !is_earlier
}

/// Time of the last occurrence.
fn said_at(event: &&Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
    micro.or(event.last_timestamp.as_ref().map(|time| time.0))
}

fn last<'e>(events: impl Iterator<Item = &'e Event>) -> Option<ControllerEvent> {
    let ours = events.filter(|event| event.action.as_deref() == Some(ACTION));
    let event = ours.max_by_key(said_at)?;
    Some(ControllerEvent {
        time: said_at(&event).map(in_seconds),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(mut fields: Value) -> Event {
        fields["metadata"] = json!({});
        serde_json::from_value(fields).unwrap()
    }

    fn at(second: i64) -> String {
        Timestamp::from_second(second).unwrap().to_string()
    }

    #[test]
    fn the_last_thing_said() {
        let event = |action: &str, second: i64, message: &str| {
            event(
                json!({ "involvedObject": {}, "action": action, "eventTime": at(second), "reason": "NotSteered",
                "message": message }),
            )
        };
        let events = [event(ACTION, 5, "old"), event(ACTION, 9, "new"), event("Binding", 20, "other")];
        let found = last(events.iter()).unwrap();
        assert_eq!((found.message.as_str(), found.time.as_deref()), ("new", Some("1970-01-01T00:00:09Z")));
        assert_eq!(last(std::iter::empty()), None);
    }

    #[test]
    fn what_stands_on_the_pod_outlives_events() {
        let said = Waiting {
            kind: "NoNode".to_owned(),
            message: "0 of 3 nodes".to_owned(),
            time: Timestamp::from_second(7).unwrap(),
        };
        let mut pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": "a", "namespace": "x", "uid": "2",
            "annotations": { WAITING_ANNOTATION: said.encode() } } }))
            .unwrap();
        let event = |second: i64| {
            event(json!({ "involvedObject": { "kind": "Pod", "name": "a", "namespace": "x", "uid": "2" },
                "action": ACTION, "eventTime": at(second), "reason": "NotAllocated", "message": "of an Event" }))
        };
        let message =
            |pod: &Pod, events: &[Event]| News::of_events(pod, events).event.map(|event| event.message);
        assert_eq!(message(&pod, &[]).as_deref(), Some("0 of 3 nodes"));
        assert_eq!(message(&pod, &[event(5)]).as_deref(), Some("0 of 3 nodes"));
        assert_eq!(message(&pod, &[event(9)]).as_deref(), Some("of an Event"));
        pod.spec = Some(serde_json::from_value(json!({ "nodeName": "n", "containers": [] })).unwrap());
        assert_eq!(message(&pod, &[]), None, "it waits no more");
    }

    #[test]
    fn refusals_of_claims_are_those_of_this_pod() {
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": "a", "namespace": "x", "uid": "2" } }))
                .unwrap();
        let refused = |uid: &str, second: i64, message: &str| {
            event(json!({ "involvedObject": { "kind": "Pod", "name": "a", "namespace": "x", "uid": uid },
                "reason": CLAIM_REFUSED, "lastTimestamp": at(second), "message": message }))
        };
        let events = [refused("1", 9, "of an earlier one"), refused("2", 5, "new"), refused("2", 4, "old")];
        assert_eq!(News::of_events(&pod, &events).claim_refused.as_deref(), Some("new"));
        assert_eq!(News::of_events(&pod, &events[..1]).claim_refused, None);
    }
}
