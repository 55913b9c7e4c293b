//! Why a pod waits, written to the pod by the controller: Events are gone after an hour, and some are lost.

use jiff::Timestamp;

/// Key of the annotation of waiting Pods: [`Waiting`] as JSON. For people only; no decision uses the annotation.
pub const WAITING_ANNOTATION: &str = "gpu.tessera.dev/waiting";

/// Longest message in the annotation, in characters.
const LONGEST: usize = 1024;

/// Why a pod waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The kind of reason, in one word.
    pub kind: String,
    /// The reason.
    pub message: String,
    /// Time of the reason.
    pub time: Timestamp,
}

impl Waiting {
    /// Reads the annotation's value; `None` for invalid text. Anybody with write access to the pod can set the value.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        Some(Waiting {
            kind: value["kind"].as_str()?.to_owned(),
            message: value["message"].as_str()?.to_owned(),
            time: value["time"].as_str()?.parse().ok()?,
        })
    }

    /// The annotation's value.
    #[must_use]
    pub fn encode(&self) -> String {
        let message: String = self.message.chars().take(LONGEST).collect();
        serde_json::json!({ "kind": self.kind, "message": message, "time": self.time.to_string() })
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let time = Timestamp::from_second(5).unwrap();
        let waiting = Waiting { kind: "NoNode".to_owned(), message: "\"no\" node".to_owned(), time };
        assert_eq!(Waiting::decode(&waiting.encode()), Some(waiting.clone()));
        let long = Waiting { message: "ü".repeat(2 * LONGEST), ..waiting };
        assert_eq!(Waiting::decode(&long.encode()).unwrap().message.chars().count(), LONGEST);
        for text in ["", "{}", "[]", r#"{"kind": "a", "message": "b", "time": "soon"}"#] {
            assert_eq!(Waiting::decode(text), None, "{text}");
        }
    }
}
