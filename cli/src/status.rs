//! The status of Tessera's own kinds: how current it is, and its conditions.

use serde::Serialize;
use tessera_api::condition::Condition;

use crate::output::printable;

/// Remedy for a status not written by any controller.
const NO_CONTROLLER: &str = "is the controller running?";

/// How current a status is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "status")]
pub enum Known {
    /// The status is about the current spec.
    Current,
    /// The status is about an earlier spec.
    #[serde(rename_all = "camelCase")]
    Old {
        /// The status's generation.
        observed: i64,
        /// The spec's generation.
        generation: i64,
    },
    /// No controller has written one.
    None,
}

impl Known {
    /// Of an object with this generation. `status`: the generation evaluated, and the conditions.
    pub fn of(generation: Option<i64>, status: Option<(Option<i64>, &[Condition])>) -> Self {
        let Some((observed, conditions)) = status else { return Known::None };
        // An object from a file may have no generation.
        match (observed, generation) {
            (Some(observed), Some(generation)) if observed < generation => {
                Known::Old { observed, generation }
            }
            // The API server's default for a status never written has no generation either.
            (None, Some(_)) if conditions.is_empty() => Known::None,
            _ => Known::Current,
        }
    }

    /// The reason of the condition Ready, and how old it is.
    pub fn state(self, ready: Option<&Condition>) -> String {
        let reason = ready.map_or("unknown", |condition| condition.reason.as_str());
        match self {
            Known::Current => reason.to_owned(),
            Known::Old { .. } => format!("{reason} (old)"),
            Known::None => "no status".to_owned(),
        }
    }

    /// Why the status says nothing about the current spec; empty if it does.
    pub fn age(self) -> String {
        match self {
            Known::Current => String::new(),
            Known::None => format!("no controller has written a status: {NO_CONTROLLER}"),
            Known::Old { observed, generation } => format!(
                "its status is for generation {observed} of its spec, now at {generation}: {NO_CONTROLLER}"
            ),
        }
    }
}

/// Below a table: unreliable statuses, by name.
pub fn notes<'a>(all: impl Iterator<Item = (&'a str, Known)> + Clone) -> String {
    let mut text = String::new();
    let without: Vec<&str> =
        all.clone().filter(|(_, known)| *known == Known::None).map(|(name, _)| name).collect();
    if !without.is_empty() {
        text += &format!(
            "\nno controller has written a status for {}: {NO_CONTROLLER}\n",
            printable(&without.join(", "))
        );
    }
    for (name, known) in all {
        if let Known::Old { .. } = known {
            text += &format!("\n{}: {}\n", printable(name), known.age());
        }
    }
    text
}

/// The conditions, a line each.
pub fn conditions(all: &[Condition]) -> String {
    let line = |condition: &Condition| {
        let is = match condition.status.as_str() {
            "True" => condition.r#type.clone(),
            "False" => format!("not {}", condition.r#type),
            _ => format!("unknown whether {}", condition.r#type),
        };
        let since = &condition.last_transition_time;
        let said = format!("{is} since {since}: {}", condition.message);
        format!("  {}\n", printable(&said))
    };
    all.iter().map(line).collect()
}
