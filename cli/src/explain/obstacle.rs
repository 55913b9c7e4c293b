//! Obstacle of one device for one request: the allocator's reason in words, and the claims behind it.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use tessera_allocator::explain::Reason;
use tessera_api::{Quantity, managed};

use super::fleet::Users;

/// The first reason why a device cannot be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The allocator's reason.
    pub reason: Reason,
    /// The false part of the selector.
    pub part: Option<String>,
    /// Claims and devices using up the counter.
    pub users: Users,
}

impl Obstacle {
    /// Text for grouping devices in counts.
    pub fn summary(&self) -> String {
        match &self.reason {
            Reason::Selector { .. } => format!("not `{}` ({})", self.expression(), self.owner()),
            Reason::InUse(_) => "in use".to_owned(),
            Reason::NotForNode => "for other nodes".to_owned(),
            _ if self.is_managed() => "managed: the controller allocates it".to_owned(),
            Reason::Taint { .. } => format!("taint {} is not tolerated", self.message()),
            _ => self.message(),
        }
    }

    /// Whether the controller allocates the device.
    pub fn is_managed(&self) -> bool {
        matches!(&self.reason, Reason::Taint { key, .. } if key == managed::TAINT_KEY)
    }

    /// The claims in the way.
    pub fn by(&self) -> &[String] {
        match &self.reason {
            Reason::InUse(by) => by,
            Reason::Capacity { holders, .. } => holders,
            Reason::Counter { .. } => &self.users.claims,
            _ => &[],
        }
    }

    /// Devices of these claims using up a counter.
    pub fn beside(&self) -> &[String] {
        if matches!(self.reason, Reason::Counter { .. }) { &self.users.devices } else { &[] }
    }

    /// Whether a selector rules the device out, so the request does not match.
    pub fn is_selector(&self) -> bool {
        matches!(self.reason, Reason::Selector { .. } | Reason::SelectorFails(_))
    }

    /// The untolerated taint: its key and `key=value:effect`. Excludes the taint of managed cards: no claim may tolerate it.
    pub fn taint(&self) -> Option<(String, String)> {
        match &self.reason {
            Reason::Taint { key, .. } if !self.is_managed() => Some((key.clone(), self.message())),
            _ => None,
        }
    }

    /// The false part of the selector, or the whole selector.
    fn expression(&self) -> &str {
        match (&self.part, &self.reason) {
            (Some(part), _) => part,
            (None, Reason::Selector { expression, .. }) => expression,
            _ => "",
        }
    }

    /// `class NAME` or `the request`.
    fn owner(&self) -> String {
        match &self.reason {
            Reason::Selector { class: Some(class), .. } => format!("class {class}"),
            _ => "the request".to_owned(),
        }
    }

    fn message(&self) -> String {
        match &self.reason {
            Reason::Selector { .. } | Reason::InUse(_) | Reason::NotForNode => String::new(),
            Reason::SelectorFails(error) => error.clone(),
            Reason::NoSuchCapacity(name) => format!("has no capacity {name}"),
            Reason::Policy { name, requested, allowed } => {
                format!("gives {allowed} of capacity {name} to a request, {requested} is requested")
            }
            Reason::Capacity { name, requested, needed, left, holders } => {
                let needed = match requested {
                    None => format!("{needed} is needed, the default"),
                    Some(requested) if is_same(requested, needed) => format!("{needed} is needed"),
                    Some(requested) => format!("{needed} is needed: {requested}, rounded up"),
                };
                if holders.is_empty() {
                    format!("has {left} of capacity {name}, {needed}")
                } else {
                    format!("{left} of capacity {name} is left, {needed}")
                }
            }
            Reason::Counter { set, counter, needed, left } => {
                format!("{left} of counter {counter} of {set} is left, {needed} is needed")
            }
            Reason::Taint { key, value, effect } if value.is_empty() => format!("{key}:{effect}"),
            Reason::Taint { key, value, effect } => format!("{key}={value}:{effect}"),
            Reason::NoSuchAttribute { attribute, .. } => {
                format!("has no attribute {attribute}, needed by a constraint")
            }
        }
    }
}

impl Serialize for Obstacle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (kind, told) = match &self.reason {
            Reason::Selector { .. } => ("selector", None),
            Reason::SelectorFails(_) => ("selectorError", Some("error")),
            Reason::NotForNode => ("notForNode", None),
            Reason::NoSuchAttribute { .. } => ("attribute", Some("message")),
            Reason::Capacity { holders, .. } if !holders.is_empty() => ("share", Some("message")),
            Reason::NoSuchCapacity(_) | Reason::Policy { .. } | Reason::Capacity { .. } => {
                ("capacity", Some("message"))
            }
            Reason::Taint { .. } if self.is_managed() => ("managed", Some("taint")),
            Reason::Taint { .. } => ("taint", Some("taint")),
            Reason::InUse(_) => ("inUse", None),
            Reason::Counter { .. } => ("counter", Some("message")),
        };
        map.serialize_entry("kind", kind)?;
        if kind == "selector" {
            map.serialize_entry("of", &self.owner())?;
            map.serialize_entry("expression", self.expression())?;
        }
        if let Some(field) = told {
            map.serialize_entry(field, &self.message())?;
        }
        if matches!(kind, "inUse" | "share" | "counter") {
            map.serialize_entry("by", self.by())?;
        }
        if kind == "counter" {
            map.serialize_entry("beside", self.beside())?;
        }
        map.end()
    }
}

/// Whether two quantities are equal, however they are written.
fn is_same(one: &str, other: &str) -> bool {
    match (Quantity::parse(one), Quantity::parse(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}
