//! What a cluster says of the controller: who leads, and what it last said of a pod.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;

use super::{block_on, connect};
use crate::arguments::SourceArguments;

/// Name of the Lease by which replicas of the controller agree on who leads.
pub(super) const LEASE: &str = "tessera-controller";

/// How much the clocks of this machine and of the cluster may differ, in seconds, before a Lease is called old.
const CLOCKS: i64 = 60;

/// The `action` of the controller's Events about pods.
const ACTION: &str = "Steering";

/// What the cluster says.
#[derive(Debug, Default)]
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
    let leases: Api<Lease> = Api::all(client.clone());
    let parameters = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let leases = leases.list(&parameters).await.ok()?;
    Some(of_leases(&leases.items, Timestamp::now()))
}

/// Of the Leases with the controller's name, the one that was renewed last counts.
fn of_leases(leases: &[Lease], now: Timestamp) -> Controller {
    let specs = leases.iter().filter_map(|lease| lease.spec.as_ref());
    let held = specs.filter_map(|spec| {
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
        let renewed = spec.renew_time.as_ref()?.0;
        Some((renewed, holder, i64::from(spec.lease_duration_seconds.unwrap_or(0))))
    });
    let Some((renewed, holder, lasts)) = held.max_by_key(|(renewed, ..)| *renewed) else {
        return Controller::Absent;
    };
    let seconds = now.as_second() - renewed.as_second();
    if seconds > lasts + CLOCKS {
        Controller::Silent { holder, seconds }
    } else {
        Controller::Leading { holder }
    }
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

    fn lease(holder: &str, renewed: i64) -> Lease {
        let renewed = Timestamp::from_second(renewed).unwrap();
        serde_json::from_value(json!({ "metadata": {}, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed.to_string() } }))
        .unwrap()
    }

    #[test]
    fn who_leads() {
        let now = Timestamp::from_second(1_000).unwrap();
        assert_eq!(of_leases(&[], now), Controller::Absent);
        assert_eq!(of_leases(&[lease("", 999)], now), Controller::Absent);
        let leading = Controller::Leading { holder: "a".to_owned() };
        assert_eq!(of_leases(&[lease("b", 10), lease("a", 990)], now), leading);
        let silent = Controller::Silent { holder: "a".to_owned(), seconds: 900 };
        assert_eq!(of_leases(&[lease("a", 100)], now), silent);
    }

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
