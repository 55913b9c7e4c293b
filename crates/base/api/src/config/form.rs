//! Schemas of users' objects, as tables beside the Rust types: [`Form::fault`] finds a fault in an object, and
//! `form/expression.rs` makes CEL from the same tables, with the same words, for refusal by the API server.

mod expression;

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::memory_limit;

pub(super) use expression::{Checks, text};

/// Allowed values.
#[derive(Debug)]
pub(super) enum Form {
    /// An object with only these fields, except for these contradicting combinations.
    Object(&'static [Field], &'static [Contradiction]),
    /// An object with any keys, whose values are memory limits.
    MemoryLimits,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A whole number from the first to the second; the text names the unit and the valid numbers.
    Whole(i64, i64, &'static str),
    /// An amount of memory of 1Mi or more.
    MemoryLimit,
    /// `true` or `false`.
    Boolean,
}

/// A field of an object.
#[derive(Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub form: Form,
    /// Whether the field is optional. An optional field set to null counts as absent, as everywhere in Kubernetes.
    pub is_optional: bool,
}

impl Field {
    pub const fn optional(name: &'static str, form: Form) -> Self {
        Self { name, form, is_optional: true }
    }

    pub const fn required(name: &'static str, form: Form) -> Self {
        Self { name, form, is_optional: false }
    }
}

/// A value of one field that contradicts another field, or is always wrong here.
#[derive(Debug)]
pub(super) struct Contradiction {
    pub field: &'static str,
    pub text: &'static str,
    /// The field contradicting the text; `None` where the text is always wrong.
    pub with: Option<&'static str>,
    pub reason: &'static str,
}

pub(super) const NOT_AN_OBJECT: &str = "is not an object";
pub(super) const NOT_MEMORY: &str = "is not an amount of memory of 1Mi or more, such as 10Gi";
pub(super) const KEY_OF_NO_MEMORY: &str =
    "has a value that is not an amount of memory of 1Mi or more, such as 10Gi";
pub(super) const NOT_BOOLEAN: &str = "is not true or false";

pub(super) fn not_a_field(fields: &[Field]) -> String {
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    format!("is not one of the fields {}", names.join(", "))
}

pub(super) fn not_one_of(texts: &[&str]) -> String {
    format!("is not one of {}", texts.join(", "))
}

/// The place of a field of the object at `place`: a kind (`GpuConfig`) or a place in a kind (`GpuConfig: sharing`).
pub(super) fn place_of(place: &str, field: &str) -> String {
    let joint = if place.contains(": ") { "." } else { ": " };
    format!("{place}{joint}{field}")
}

impl Form {
    /// The first fault of a value, if any.
    pub(super) fn fault(&self, place: &str, value: &Value) -> Option<ConfigError> {
        let unless = |is_right: bool, reason: &str| {
            if is_right { None } else { Some(ConfigError::new(place, value, reason)) }
        };
        match self {
            Self::Object(fields, contradictions) => match value {
                Value::Object(object) => fault_of_object(place, object, fields, contradictions),
                _ => unless(false, NOT_AN_OBJECT),
            },
            Self::MemoryLimits => {
                let Value::Object(limits) = value else { return unless(false, NOT_AN_OBJECT) };
                let wrong = limits.iter().filter(|(_, limit)| !memory_limit::is_right(limit));
                let key = wrong.map(|(key, _)| key).min()?;
                Some(ConfigError::new(place, &key.as_str().into(), KEY_OF_NO_MEMORY))
            }
            Self::OneOf(texts) => {
                unless(value.as_str().is_some_and(|text| texts.contains(&text)), &not_one_of(texts))
            }
            Self::Whole(least, most, what) => {
                let is_right = value.as_i64().is_some_and(|number| (*least..=*most).contains(&number));
                unless(is_right, &format!("is not {what}"))
            }
            Self::MemoryLimit => unless(memory_limit::is_right(value), NOT_MEMORY),
            Self::Boolean => unless(value.is_boolean(), NOT_BOOLEAN),
        }
    }
}

fn fault_of_object(
    place: &str,
    object: &Map<String, Value>,
    fields: &[Field],
    contradictions: &[Contradiction],
) -> Option<ConfigError> {
    let unknown = object.keys().filter(|key| !fields.iter().any(|field| field.name == *key)).min();
    if let Some(key) = unknown {
        return Some(ConfigError::new(place, &key.as_str().into(), &not_a_field(fields)));
    }
    let value = |name: &str| object.get(name).unwrap_or(&Value::Null);
    for field in fields {
        let value = value(field.name);
        if (!field.is_optional || !value.is_null())
            && let Some(fault) = field.form.fault(&place_of(place, field.name), value)
        {
            return Some(fault);
        }
    }
    contradictions.iter().find_map(|contradiction| {
        let text = value(contradiction.field);
        let applies = text.as_str() == Some(contradiction.text)
            && contradiction.with.is_none_or(|other| !value(other).is_null());
        applies.then(|| ConfigError::new(&place_of(place, contradiction.field), text, contradiction.reason))
    })
}

/// The object without null fields, which count as absent.
pub(super) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let told = fields.into_iter().filter(|(_, value)| !value.is_null());
            told.map(|(name, value)| (name, without_nulls(value))).collect::<Map<_, _>>().into()
        }
        value => value,
    }
}
