//! Names for claims allocated by the controller: on cards whose GpuPool says `allocation: Managed`.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// Key of the taint on every device of a managed card, with effect [`crate::taint::EFFECT_NO_SCHEDULE`] and no
/// value: kube-scheduler's allocator leaves the device alone, but honours an existing allocation.
///
/// Unlike the keys of [`crate::taint`], this key is the same for every driver name, as in [`crate::steering`]: admission
/// policies match the key by name.
pub const TAINT_KEY: &str = "gpu.tessera.dev/managed";

/// Key of the annotation of ResourceClaims with the epoch of the controller allowed to allocate them. A new leader
/// writes its own epoch on every unallocated claim in its care. Writes prepared by an earlier leader
/// are refused from then on, because of their resource version.
pub const EPOCH_ANNOTATION: &str = "gpu.tessera.dev/controller-epoch";

/// Key of the annotation of Pods with the nodes that refused them: [`RefusedNodes`] as JSON.
pub const REFUSED_NODES_ANNOTATION: &str = "gpu.tessera.dev/refused-nodes";

/// Key of the annotation of Pods for which others are evicted: [`Nomination`] as JSON.
pub const NOMINATION_ANNOTATION: &str = "gpu.tessera.dev/nomination";

/// Planned placement of a pod once its victims have ended. The annotation is written to the pod before the first eviction, so
/// that a restart of the controller forgets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nomination {
    /// The node.
    pub node: String,
    /// Names of the driver's devices there.
    pub devices: Vec<String>,
    /// The pods to evict there, as namespace/name/uid. Some hold none of the devices, but processors or memory needed by the pod.
    pub victims: Vec<String>,
    /// Pods in its place that are evicted because their successors have room elsewhere.
    pub moves: Vec<PlannedMove>,
    /// Of all pods to evict for the pod or its gang, those that use no devices, each with its owner as the controller names it: pods that
    /// the owner makes in their place take nothing back.
    pub idle: BTreeMap<String, String>,
    /// Resources not free by then are planned anew.
    pub until: Timestamp,
}

/// A pod that makes room, and the place kept for its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The pod, as namespace/name/uid.
    pub pod: String,
    /// The owner whose next pod gets the place: its namespace and uid, with a slash between.
    pub owner: String,
    /// The successor's node.
    pub node: String,
    /// Names of the driver's devices there.
    pub devices: Vec<String>,
}

impl Nomination {
    /// Reads the annotation's value; `None` for invalid text. Without the chart's policy anybody who may change the pod can set it.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        let texts = |list: &serde_json::Value| {
            list.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let planned = |planned: &serde_json::Value| {
            let (pod, owner) = (text(&planned["pod"])?, text(&planned["owner"])?);
            Some(PlannedMove {
                pod,
                owner,
                node: text(&planned["node"])?,
                devices: texts(&planned["devices"])?,
            })
        };
        let moves = value["moves"].as_array().map(|moves| moves.iter().map(planned).collect::<Option<_>>());
        Some(Nomination {
            node: text(&value["node"])?,
            devices: texts(&value["devices"])?,
            victims: texts(&value["victims"]).unwrap_or_default(),
            moves: moves.unwrap_or(Some(Vec::new()))?,
            idle: serde_json::from_value(value["idle"].clone()).unwrap_or_default(),
            until: value["until"].as_str()?.parse().ok()?,
        })
    }

    /// The annotation's value.
    #[must_use]
    pub fn encode(&self) -> String {
        let Nomination { node, devices, victims, moves, idle, until } = self;
        let mut value = serde_json::json!({
            "node": node, "devices": devices, "victims": victims, "until": until.to_string() });
        if !moves.is_empty() {
            let planned = |PlannedMove { pod, owner, node, devices }: &PlannedMove| serde_json::json!({ "pod": pod, "owner": owner, "node": node, "devices": devices });
            value["moves"] = moves.iter().map(planned).collect();
        }
        if !idle.is_empty() {
            value["idle"] = serde_json::json!(idle);
        }
        value.to_string()
    }
}

/// Most nodes in [`RefusedNodes`].
pub const MAX_REFUSED_NODES: usize = 64;

/// Nodes on which kube-scheduler refused a pod although its devices were allocated there, each excluded until some
/// time. Stored on the pod, so that a restart of the controller forgets nothing.
///
/// The JSON is an object with the nodes' names and RFC 3339 times. At most [`MAX_REFUSED_NODES`]: beyond the limit, the nodes
/// whose exclusion ends first are forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedNodes {
    until: BTreeMap<String, Timestamp>,
}

impl RefusedNodes {
    /// Reads the annotation's value. Anybody with write access to the pod can change the value: text without such an object means
    /// no nodes, and entries without a valid time are left out.
    #[must_use]
    pub fn decode(text: &str) -> Self {
        let entries: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
        let mut nodes = Self::default();
        for (node, until) in entries {
            if let Some(until) = until.as_str().and_then(|until| until.parse().ok()) {
                nodes.refuse(node, until);
            }
        }
        nodes
    }

    /// The annotation's value; `None` without nodes, when no annotation is needed.
    #[must_use]
    pub fn encode(&self) -> Option<String> {
        let entries = self.until.iter().map(|(node, until)| (node.clone(), until.to_string().into()));
        let entries: serde_json::Map<String, serde_json::Value> = entries.collect();
        (!entries.is_empty()).then(|| serde_json::Value::Object(entries).to_string())
    }

    /// Excludes the node until the given time, or longer if already excluded for longer.
    pub fn refuse(&mut self, node: String, until: Timestamp) {
        let known = self.until.entry(node).or_insert(until);
        *known = until.max(*known);
        if self.until.len() > MAX_REFUSED_NODES {
            let first = self.until.iter().min_by_key(|(_, until)| **until).map(|(node, _)| node.clone());
            first.map(|node| self.until.remove(&node));
        }
    }

    /// Whether the node is excluded at time `now`.
    #[must_use]
    pub fn contains(&self, node: &str, now: Timestamp) -> bool {
        self.until.get(node).is_some_and(|until| *until > now)
    }

    /// Forgets the nodes no longer excluded. Returns whether there were any.
    pub fn forget_expired(&mut self, now: Timestamp) -> bool {
        let before = self.until.len();
        self.until.retain(|_, until| *until > now);
        self.until.len() < before
    }

    /// The nodes by name, with the end of their exclusion.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Timestamp)> {
        self.until.iter().map(|(node, until)| (node.as_str(), *until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let mut nodes = RefusedNodes::default();
        assert_eq!(nodes.encode(), None);
        nodes.refuse("b".to_owned(), at(60));
        nodes.refuse("a".to_owned(), at(5));
        nodes.refuse("b".to_owned(), at(30));
        let text = nodes.encode().unwrap();
        assert_eq!(text, r#"{"a":"2027-01-15T08:00:05Z","b":"2027-01-15T08:01:00Z"}"#);
        assert_eq!(RefusedNodes::decode(&text), nodes);
        assert!(nodes.contains("a", at(4)) && !nodes.contains("a", at(5)) && !nodes.contains("c", at(0)));
        assert!(nodes.forget_expired(at(5)) && !nodes.forget_expired(at(5)));
        assert_eq!(nodes.iter().collect::<Vec<_>>(), [("b", at(60))]);
    }

    #[test]
    fn a_nomination_is_read_as_it_was_written() {
        let devices = vec!["gpu-3b-00".to_owned()];
        let victims = vec!["team/low/uid".to_owned()];
        let mut nomination = Nomination {
            node: "a".to_owned(),
            devices,
            victims,
            moves: Vec::new(),
            idle: BTreeMap::new(),
            until: at(5),
        };
        assert!(!nomination.encode().contains("moves") && !nomination.encode().contains("idle"));
        assert_eq!(Nomination::decode(&nomination.encode()), Some(nomination.clone()));
        nomination.moves.push(PlannedMove {
            pod: "team/low/uid".to_owned(),
            owner: "team/owner".to_owned(),
            node: "b".to_owned(),
            devices: vec!["gpu-3c-00".to_owned()],
        });
        nomination.idle.insert("team/low/uid".to_owned(), "team/owner".to_owned());
        assert_eq!(Nomination::decode(&nomination.encode()), Some(nomination));
        let half =
            r#"{"node": "a", "devices": [], "moves": [{"pod": "p"}], "until": "2027-01-15T08:00:05Z"}"#;
        for text in ["", "{}", half, r#"{"node": "a", "devices": [1], "until": "2027-01-15T08:00:05Z"}"#] {
            assert_eq!(Nomination::decode(text), None, "{text}");
        }
    }

    #[test]
    fn bad_text_refuses_no_node() {
        for text in ["", "{", "[]", "null", "\"a\"", r#"["a"]"#, r#"{"a": "2027-01-15"} x"#] {
            assert_eq!(RefusedNodes::decode(text), RefusedNodes::default(), "{text}");
        }
        let text = r#"{"a": "soon", "b": 7, "c": {}, "d": "2027-01-15T08:00:00+01:00", "e": "2027-01-15"}"#;
        let nodes = RefusedNodes::decode(text);
        assert_eq!(nodes.iter().collect::<Vec<_>>(), [("d", at(-3600))]);
    }

    #[test]
    fn too_many_nodes_are_those_that_are_left_out_longest() {
        let entries: Vec<String> =
            (0..200).map(|node| format!(r#""n{node:03}": "{}""#, at((node * 37) % 200))).collect();
        let nodes = RefusedNodes::decode(&format!("{{{}}}", entries.join(",")));
        assert_eq!(nodes.iter().count(), MAX_REFUSED_NODES);
        assert!(nodes.iter().all(|(_, until)| until >= at(200 - 64)), "{nodes:?}");
        assert_eq!(RefusedNodes::decode(&nodes.encode().unwrap()), nodes);
    }
}
