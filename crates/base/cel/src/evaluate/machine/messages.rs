//! Protobuf's well-known messages: conversion of cel-go's values for fields, and of messages to values.

use std::sync::Arc;

use base64::Engine as _;

use super::Machine;
use super::budget::Stop;
use crate::check::messages::{FieldKind, Message};
use crate::evaluate::map::Map;
use crate::evaluate::value::{Ref, Value};
use crate::evaluate::{native, qualify};
use crate::values::time::{Timestamp, duration_text};

/// The largest integer held exactly by JSON's numbers.
const JSON_SAFE: u64 = (1 << 53) - 1;

/// Why a field cannot hold a value, or why the evaluation ends.
enum Refusal {
    Text(String),
    Stop(Stop),
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Self {
        Refusal::Stop(stop)
    }
}

impl<'v> Machine<'v> {
    pub(super) fn make_message(
        &mut self,
        message: &'static Message,
        fields: &[(FieldKind, &'static str, bool)],
    ) -> Result<(), Stop> {
        let first = self.stack.len() - fields.len();
        let values: Vec<Value<'v>> = self.stack.drain(first..).collect();
        // If a field has several values, only the last one counts and is converted.
        let mut set: Vec<(FieldKind, &'static str, Value<'v>)> = Vec::new();
        for ((kind, name, optional), value) in fields.iter().zip(values) {
            set.retain(|(_, known, _)| known != name);
            match (optional, value) {
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(inner))) => set.push((*kind, name, (*inner).clone())),
                (_, value) => set.push((*kind, name, value)),
            }
        }
        for (kind, name, value) in &mut set {
            // Inside another message these are not messages, but lists and maps.
            let takes = match (message.name, *kind) {
                ("google.protobuf.Struct", _) => qualify::is_map(value),
                ("google.protobuf.ListValue", _) => matches!(value, Value::List(_) | Value::Growing(_)),
                _ => true,
            };
            if !takes {
                self.stack.push(Value::error(format!(
                    "unsupported field type for {}.{name}: {}",
                    message.name,
                    value.type_name()
                )));
                return Ok(());
            }
            match self.field(*kind, value) {
                Ok(converted) => *value = converted,
                Err(Refusal::Stop(stop)) => return Err(stop),
                Err(Refusal::Text(why)) => {
                    self.stack.push(Value::error(format!(
                        "field type conversion error for {}.{name} value type: {why}",
                        message.name
                    )));
                    return Ok(());
                }
            }
        }
        self.stack.push(made(message, set));
        Ok(())
    }

    /// The content of a field of this kind after the value was assigned.
    fn field(&mut self, kind: FieldKind, value: &Value<'v>) -> Result<Value<'v>, Refusal> {
        let overflow = |text: &str| Refusal::Text(format!("{text} overflow"));
        Ok(match (kind, value) {
            (FieldKind::Bool, Value::Bool(_))
            | (FieldKind::Bytes, Value::Bytes(_))
            | (FieldKind::Double, Value::Double(_))
            | (FieldKind::Int64, Value::Int(_))
            | (FieldKind::Uint64, Value::Uint(_))
            | (FieldKind::String, Value::String(_)) => value.clone(),
            (FieldKind::Float, Value::Double(value)) => Value::Double(f64::from(*value as f32)),
            (FieldKind::Int32 | FieldKind::Null, Value::Int(number)) => {
                i32::try_from(*number).map_err(|_| overflow("integer"))?;
                value.clone()
            }
            (FieldKind::Uint32, Value::Uint(number)) => {
                u32::try_from(*number).map_err(|_| overflow("unsigned integer"))?;
                value.clone()
            }
            (FieldKind::Struct, value) if qualify::is_map(value) => self.json(value)?,
            (FieldKind::List, Value::List(_) | Value::Growing(_)) => self.json(value)?,
            (kind, value) => return Err(Refusal::Text(native::refusal(value, go_type(kind)))),
        })
    }

    /// A value as JSON, the content of `google.protobuf.Value`.
    fn json(&mut self, value: &Value<'v>) -> Result<Value<'v>, Refusal> {
        self.count_comparison()?;
        let text = |text: String| Value::String(Ref::Shared(text.into()));
        Ok(match value {
            Value::Null | Value::Bool(_) | Value::Double(_) | Value::String(_) => value.clone(),
            Value::Int(number) if number.unsigned_abs() <= JSON_SAFE => Value::Double(*number as f64),
            Value::Int(number) => text(number.to_string()),
            Value::Uint(number) if *number <= JSON_SAFE => Value::Double(*number as f64),
            Value::Uint(number) => text(number.to_string()),
            Value::Bytes(bytes) => {
                self.allocate(bytes.len() * 4 / 3 + 4)?;
                text(base64::engine::general_purpose::STANDARD.encode(&**bytes))
            }
            Value::Duration(nanoseconds) => text(duration_text(*nanoseconds)),
            Value::Timestamp(time) => text(time.to_string()),
            Value::Optional(Some(inner)) => self.json(inner)?,
            // An empty object.
            Value::Empty => Value::Map(Arc::default()),
            Value::List(_) | Value::Growing(_) => {
                let list = self.as_list(value);
                self.allocate_elements(list.len())?;
                let mut items = Vec::new();
                for item in list.iter() {
                    items.push(self.json(item)?);
                }
                Value::list(items)
            }
            map if qualify::is_map(map) => {
                let entries = qualify::map_entries(self, map);
                self.allocate_elements(3 * entries.len() as u64)?;
                let mut converted = Map::default();
                for (key, value) in entries {
                    if !matches!(key, Value::String(_)) {
                        return Err(Refusal::Text(native::refusal(&key, "string")));
                    }
                    let value = self.json(&value)?;
                    converted.set(key, value).map_err(Stop::from)?;
                }
                Value::Map(Arc::new(converted))
            }
            other => return Err(Refusal::Text(native::refusal(other, "*structpb.Value"))),
        })
    }
}

fn go_type(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Bool => "bool",
        FieldKind::Bytes => "[]uint8",
        FieldKind::Double => "float64",
        FieldKind::Float => "float32",
        FieldKind::Int32 => "int32",
        FieldKind::Int64 => "int64",
        FieldKind::Uint32 => "uint32",
        FieldKind::Uint64 => "uint64",
        FieldKind::String => "string",
        FieldKind::Null => "protoreflect.EnumNumber",
        FieldKind::Struct => "*structpb.Struct",
        FieldKind::List => "*structpb.ListValue",
    }
}

/// The value of a message with these fields.
fn made<'v>(message: &'static Message, set: Vec<(FieldKind, &'static str, Value<'v>)>) -> Value<'v> {
    let number = |wanted: &str| {
        set.iter()
            .find_map(|(_, name, value)| match value {
                Value::Int(number) if *name == wanted => Some(*number),
                _ => None,
            })
            .unwrap_or(0)
    };
    match message.name {
        "google.protobuf.Duration" => Value::Duration(duration(number("seconds"), number("nanos"))),
        "google.protobuf.Timestamp" => {
            Value::Timestamp(Timestamp::from_parts(number("seconds"), number("nanos")))
        }
        "google.protobuf.Any" => Value::error("unsupported conversion to ref.Val: (*dynamicpb.Message)"),
        // One of its fields, since the message has only one value.
        "google.protobuf.Value" => match set.into_iter().next_back() {
            Some((FieldKind::Null, ..)) | None => Value::Null,
            Some((_, _, value)) => value,
        },
        _ => match (set.into_iter().next_back(), message.fields) {
            (Some((_, _, value)), _) => value,
            (None, [(_, kind)]) => default(*kind),
            (None, _) => Value::Empty,
        },
    }
}

fn default<'v>(kind: FieldKind) -> Value<'v> {
    match kind {
        FieldKind::Bool => Value::Bool(false),
        FieldKind::Bytes => Value::Bytes(Ref::Borrowed(&[])),
        FieldKind::Double | FieldKind::Float => Value::Double(0.0),
        FieldKind::Int32 | FieldKind::Int64 => Value::Int(0),
        FieldKind::Uint32 | FieldKind::Uint64 => Value::Uint(0),
        FieldKind::String => Value::String(Ref::Borrowed("")),
        FieldKind::Null => Value::Null,
        FieldKind::Struct => Value::Map(Arc::default()),
        FieldKind::List => Value::list(Vec::new()),
    }
}

/// Go's `AsDuration`: saturates if the duration is too long.
fn duration(seconds: i64, nanoseconds: i64) -> i64 {
    let longest = if seconds < 0 { i64::MIN } else { i64::MAX };
    seconds.checked_mul(1_000_000_000).map_or(longest, |whole| whole.saturating_add(nanoseconds))
}
