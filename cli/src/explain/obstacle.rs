//! What is in the way of one device for one request.

use serde::Serialize;

/// The first thing that keeps a device from being given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Obstacle {
    /// A part of a selector is false.
    Selector {
        /// `class NAME` or `the request`.
        of: String,
        /// The part.
        expression: String,
    },
    /// A selector fails; kube-scheduler then gives up the pod.
    SelectorError {
        /// What Kubernetes says.
        error: String,
    },
    /// It is for other nodes, or has binding conditions that are not supported.
    NotForNode,
    /// A constraint needs an attribute that it does not have.
    Attribute {
        /// Which.
        message: String,
    },
    /// It cannot give the capacity that is asked for, even when nobody uses it.
    Capacity {
        /// What is missing.
        message: String,
    },
    /// It has a taint that the request does not tolerate.
    Taint {
        /// `key=value:effect`
        taint: String,
    },
    /// Others have all of it.
    InUse {
        /// Their claims.
        by: Vec<String>,
    },
    /// Others have so much of it that too little is left.
    Share {
        /// What is left of which capacity.
        message: String,
        /// Their claims.
        by: Vec<String>,
    },
    /// Others use up a counter that it needs.
    Counter {
        /// What is left of which counter.
        message: String,
        /// Their claims.
        by: Vec<String>,
        /// Their devices.
        beside: Vec<String>,
    },
}

impl Obstacle {
    /// The same text for what is counted together.
    pub fn summary(&self) -> String {
        match self {
            Obstacle::Selector { of, expression } => format!("not `{expression}` ({of})"),
            Obstacle::SelectorError { error } => error.clone(),
            Obstacle::NotForNode => "for other nodes".to_owned(),
            Obstacle::Capacity { message }
            | Obstacle::Attribute { message }
            | Obstacle::Share { message, .. }
            | Obstacle::Counter { message, .. } => message.clone(),
            Obstacle::Taint { taint } => format!("taint {taint} is not tolerated"),
            Obstacle::InUse { .. } => "in use".to_owned(),
        }
    }

    /// Whose claims are in the way.
    pub fn by(&self) -> &[String] {
        match self {
            Obstacle::InUse { by } | Obstacle::Share { by, .. } | Obstacle::Counter { by, .. } => by,
            _ => &[],
        }
    }

    /// Whether a selector rules the device out: it is not what was asked for.
    pub fn is_selector(&self) -> bool {
        matches!(self, Obstacle::Selector { .. } | Obstacle::SelectorError { .. })
    }
}
