//! What a cluster says of the controller: who leads, and what it last said of a pod.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;

use super::leader::leader;
use super::{block_on, connect};
use crate::arguments::SourceArguments;

/// The `action` of the controller's Events about pods.
const ACTION: &str = "Steering";

/// What the cluster says.
#[derive(Debug, Default, Clone)]
pub struct News {
    /// Whether a controller runs; `None` where that cannot be read.
    pub controller: Option<Controller>,
    /// The controller's last Event about the pod.
    pub event: Option<ControllerEvent>,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum Controller {
    /// There is no Lease, or nobody holds it.
    Absent,
    /// The holder has not renewed it for much longer than it lasts.
    Silent {
        /// Who held it.
        holder: String,
        /// Since when, in seconds.
        seconds: i64,
    },
    /// Somebody leads.
    Leading {
        /// Who.
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
    /// When it was said last, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// Asks the cluster. What may not be read, or cannot for another reason, is left out: the answer does not depend on it.
pub fn news(arguments: &SourceArguments, pod: &Pod) -> News {
    let read = block_on(async {
        let (client, _) = connect(&arguments.connection, arguments.namespace.as_deref()).await?;
        let (controller, event) = tokio::join!(controller(&client), last_event(&client, pod));
        Ok::<_, super::ClusterError>(News { controller, event })
    });
    read.unwrap_or_default()
}

/// Whether a controller leads; `None` where that cannot be read.
pub(super) async fn controller(client: &Client) -> Option<Controller> {
    let Some(held) = leader(client).await.ok()? else { return Some(Controller::Absent) };
    let silent = held.silent(Timestamp::now());
    let holder = held.holder;
    Some(match silent {
        Some(seconds) => Controller::Silent { holder, seconds },
        None => Controller::Leading { holder },
    })
}

async fn last_event(client: &Client, pod: &Pod) -> Option<ControllerEvent> {
    let uid = pod.metadata.uid.as_deref()?;
    let events: Api<Event> = Api::namespaced(client.clone(), &pod.namespace()?);
    let parameters = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let events = events.list(&parameters).await.ok()?;
    last(events.items)
}

fn last(events: Vec<Event>) -> Option<ControllerEvent> {
    let said = |event: &Event| {
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
        micro.or(event.last_timestamp.as_ref().map(|time| time.0))
    };
    let ours = events.into_iter().filter(|event| event.action.as_deref() == Some(ACTION));
    let event = ours.max_by_key(said)?;
    Some(ControllerEvent {
        time: said(&event).map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_thing_said() {
        let event = |action: &str, second: i64, message: &str| {
            let time = Timestamp::from_second(second).unwrap().to_string();
            serde_json::from_value(json!({ "metadata": {}, "involvedObject": {}, "action": action,
                "eventTime": time, "reason": "NotSteered", "message": message }))
            .unwrap()
        };
        let events = vec![event(ACTION, 5, "old"), event(ACTION, 9, "new"), event("Binding", 20, "other")];
        let found = last(events).unwrap();
        assert_eq!((found.message.as_str(), found.time.as_deref()), ("new", Some("1970-01-01T00:00:09Z")));
        assert_eq!(last(Vec::new()), None);
    }
}
