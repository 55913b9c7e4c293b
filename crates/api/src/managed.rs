//! Names by which the controller allocates claims itself: of cards whose GpuPool says `allocation: Managed`.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// Key of the taint on every device of a managed card. Its effect is [`crate::taint::EFFECT_NO_SCHEDULE`], and it has no
/// value: kube-scheduler's allocator leaves the device alone, and honours an allocation of it that is there already.
///
/// Unlike the keys of [`crate::taint`] it is the same for every driver name, as those of [`crate::steering`]: admission
/// policies know it by name.
pub const TAINT_KEY: &str = "gpu.tessera.dev/managed";

/// Key of the annotation of ResourceClaims with the epoch of the controller that may allocate them. A controller that
/// begins to lead writes its own on every unallocated claim that it may serve: what an earlier leader had prepared to write
/// is refused from then on, by its resource version.
pub const EPOCH_ANNOTATION: &str = "gpu.tessera.dev/controller-epoch";

/// Key of the annotation of Pods with the nodes that refused them: [`RefusedNodes`] as JSON.
pub const REFUSED_NODES_ANNOTATION: &str = "gpu.tessera.dev/refused-nodes";

/// Key of the annotation of Pods for which others are evicted: [`Nomination`] as JSON.
pub const NOMINATION_ANNOTATION: &str = "gpu.tessera.dev/nomination";

/// What a pod will get when those that are evicted for it have ended. It is on the pod before the first of them is, so that a
/// restart of the controller forgets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nomination {
    /// The node.
    pub node: String,
    /// Names of the driver's devices there.
    pub devices: Vec<String>,
    /// The pods to evict there, as namespace/name/uid: some hold none of the devices, but the processors or memory that the pod needs.
    pub victims: Vec<String>,
    /// What is not free by then is planned anew.
    pub until: Timestamp,
}

impl Nomination {
    /// Reads the annotation's value; `None` for text that is none. Without the chart's policy anybody who may change the pod can write it.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        let texts = |list: &serde_json::Value| {
            list.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        Some(Nomination {
            node: value["node"].as_str()?.to_owned(),
            devices: texts(&value["devices"])?,
            victims: texts(&value["victims"]).unwrap_or_default(),
            until: value["until"].as_str()?.parse().ok()?,
        })
    }

    /// The annotation's value.
    #[must_use]
    pub fn encode(&self) -> String {
        let Nomination { node, devices, victims, until } = self;
        serde_json::json!({ "node": node, "devices": devices, "victims": victims, "until": until.to_string() })
            .to_string()
    }
}

/// Most nodes in [`RefusedNodes`].
pub const MAX_REFUSED_NODES: usize = 64;

/// The nodes on which kube-scheduler would not put a pod although its devices were allocated there, each with the time until
/// which it is left out. It is on the pod, so that a restart of the controller forgets nothing.
///
/// As JSON it is an object with the nodes' names and RFC 3339 times. At most [`MAX_REFUSED_NODES`]: of more, those are
/// forgotten that would be left out no longer first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedNodes {
    until: BTreeMap<String, Timestamp>,
}

impl RefusedNodes {
    /// Reads the annotation's value. Anybody who may change the pod can change it: text that is no such object means no
    /// nodes, and entries that are no time are left out.
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

    /// The annotation's value; `None` if there are no nodes, and need be no annotation.
    #[must_use]
    pub fn encode(&self) -> Option<String> {
        let entries = self.until.iter().map(|(node, until)| (node.clone(), until.to_string().into()));
        let entries: serde_json::Map<String, serde_json::Value> = entries.collect();
        (!entries.is_empty()).then(|| serde_json::Value::Object(entries).to_string())
    }

    /// Leaves the node out until that time, or longer if it is already.
    pub fn refuse(&mut self, node: String, until: Timestamp) {
        let known = self.until.entry(node).or_insert(until);
        *known = until.max(*known);
        if self.until.len() > MAX_REFUSED_NODES {
            let first = self.until.iter().min_by_key(|(_, until)| **until).map(|(node, _)| node.clone());
            first.map(|node| self.until.remove(&node));
        }
    }

    /// Whether the node is left out at that time.
    #[must_use]
    pub fn contains(&self, node: &str, now: Timestamp) -> bool {
        self.until.get(node).is_some_and(|until| *until > now)
    }

    /// Forgets the nodes that are not left out any more. Returns whether there were any.
    pub fn forget_expired(&mut self, now: Timestamp) -> bool {
        let before = self.until.len();
        self.until.retain(|_, until| *until > now);
        self.until.len() < before
    }

    /// The nodes by name, with the times until which they are left out.
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
        let nomination = Nomination { node: "a".to_owned(), devices, victims, until: at(5) };
        assert_eq!(Nomination::decode(&nomination.encode()), Some(nomination));
        for text in ["", "{}", r#"{"node": "a", "devices": [1], "until": "2027-01-15T08:00:05Z"}"#] {
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
