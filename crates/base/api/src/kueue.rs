//! Names for Kueue's AdmissionCheck by which all pods of a Workload are planned before any of them exists.

use jiff::Timestamp;

/// `spec.controllerName` of AdmissionChecks answered by the controller.
pub const CHECK_CONTROLLER: &str = "gpu.tessera.dev/plan";

/// Key of the annotation of Kueue's Workloads with the room kept for their pods: [`KeptRoom`] as JSON.
pub const ROOM_ANNOTATION: &str = "gpu.tessera.dev/room";

/// Key of the annotation by Kueue on the pods of such a Workload: its uid and the name of their PodSet, with a slash
/// between.
pub const ROOM_OF_ANNOTATION: &str = "gpu.tessera.dev/room-of";

/// Room for the pods of a Workload, which do not exist yet. The annotation is written before the check is `Ready`, so that a
/// restart of the controller forgets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRoom {
    /// Room not taken by then goes to others.
    pub until: Timestamp,
    /// A place for each pod with cards of managed pools.
    pub places: Vec<KeptPlace>,
}

/// Room for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPlace {
    /// Name of the PodSet.
    pub pod_set: String,
    /// The node.
    pub node: String,
    /// Names of the driver's devices there.
    pub devices: Vec<String>,
}

impl KeptRoom {
    /// Reads the annotation's value; `None` for invalid text. Whoever may change the Workload can set it.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        let place = |place: &serde_json::Value| {
            let devices = place["devices"].as_array()?.iter().map(|name| name.as_str().map(str::to_owned));
            Some(KeptPlace {
                pod_set: place["podSet"].as_str()?.to_owned(),
                node: place["node"].as_str()?.to_owned(),
                devices: devices.collect::<Option<_>>()?,
            })
        };
        let places = value["places"].as_array()?.iter().map(place).collect::<Option<_>>()?;
        Some(KeptRoom { until: value["until"].as_str()?.parse().ok()?, places })
    }

    /// The annotation's value.
    #[must_use]
    pub fn encode(&self) -> String {
        let place = |KeptPlace { pod_set, node, devices }: &KeptPlace| serde_json::json!({ "podSet": pod_set, "node": node, "devices": devices });
        let places: Vec<_> = self.places.iter().map(place).collect();
        serde_json::json!({ "until": self.until.to_string(), "places": places }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_read_as_it_was_written() {
        let place = KeptPlace {
            pod_set: "main".to_owned(),
            node: "a".to_owned(),
            devices: vec!["gpu-3b-00".to_owned()],
        };
        let room = KeptRoom { until: Timestamp::from_second(1_800_000_005).unwrap(), places: vec![place] };
        assert_eq!(KeptRoom::decode(&room.encode()), Some(room));
        let until = "2027-01-15T08:00:05Z";
        for text in [
            String::new(),
            format!(r#"{{"until": "{until}"}}"#),
            format!(r#"{{"until": "{until}", "places": [{{"node": "a"}}]}}"#),
            r#"{"until": "later", "places": []}"#.to_owned(),
        ] {
            assert_eq!(KeptRoom::decode(&text), None, "{text}");
        }
    }
}
