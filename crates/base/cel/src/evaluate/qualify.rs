//! Selecting from maps, lists and the device: `a.b`, `a["b"]`, `a[0]` and their optional forms.

use std::sync::Arc;

use super::machine::{Machine, Stop};
use super::map::{Map, Unhashable, lossless_int};
use super::show::show;
use super::value::{Ref, Side, Value};

/// Result of a selection.
pub(crate) enum Found<'v> {
    Value(Value<'v>),
    /// Nothing, where only presence was tested.
    Absent,
    Error(Arc<str>),
}

/// Whether a value is a map of any kind.
pub(crate) fn is_map(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Map(_) | Value::Device | Value::Domains { .. } | Value::Domain { .. } | Value::GrowingMap(_)
    )
}

/// Selects `key` from `object`. With `presence`, a missing key is [`Found::Absent`] instead of an error.
pub(crate) fn qualify<'v>(
    machine: &Machine<'v>,
    object: &Value<'v>,
    key: &Value<'v>,
    presence: bool,
) -> Result<Found<'v>, Stop> {
    if is_map(object) {
        let found = match object {
            Value::Domains { side, has_default: true } => Some(default_domain(*side, key)),
            _ => map_find(machine, object, key)?,
        };
        return Ok(match found {
            Some(Value::Error(message)) => Found::Error(message),
            Some(value) => Found::Value(value),
            None if presence => Found::Absent,
            None => missing(key),
        });
    }
    let length = match object {
        Value::List(list) => list.len(),
        Value::Growing(number) => machine.growing(*number).len() as u64,
        _ if presence => return Ok(Found::Absent),
        _ => return Ok(missing(key)),
    };
    let index = match list_index(key) {
        Ok(index) => index,
        Err(message) => return Ok(Found::Error(message)),
    };
    let found = u64::try_from(index).ok().filter(|index| *index < length).and_then(|index| match object {
        Value::List(list) => list.get(index).cloned(),
        Value::Growing(number) => machine.growing(*number).get(index as usize).cloned(),
        _ => None,
    });
    Ok(match found {
        Some(Value::Error(message)) => Found::Error(message),
        Some(value) => Found::Value(value),
        None if presence => Found::Absent,
        None => Found::Error(format!("index out of bounds: {}", show(machine, key)).into()),
    })
}

fn missing<'v>(key: &Value<'_>) -> Found<'v> {
    Found::Error(match key {
        Value::String(name) => format!("no such key: {}", &**name).into(),
        Value::Bool(value) => format!("no such key: {value}").into(),
        Value::Int(value) => format!("no such key: {value}").into(),
        Value::Uint(value) => format!("no such key: {value}").into(),
        Value::Double(value) => format!("no such key: {}", super::show::double(*value)).into(),
        other => format!("no such key: {}", other.type_name()).into(),
    })
}

/// A value as a list index.
pub(crate) fn list_index(key: &Value<'_>) -> Result<i64, Arc<str>> {
    match key {
        Value::Int(index) => Ok(*index),
        Value::Uint(index) => {
            i64::try_from(*index).map_err(|_| format!("unsupported index value {index} in list").into())
        }
        Value::Double(index) => lossless_int(*index)
            .ok_or_else(|| format!("unsupported index value {} in list", super::show::double(*index)).into()),
        other => Err(format!("unsupported index type '{}' in list", other.type_name()).into()),
    }
}

fn default_domain<'v>(side: Side, key: &Value<'v>) -> Value<'v> {
    match key {
        Value::String(domain) => Value::Domain { side, domain: domain.clone() },
        _ => Value::Map(Arc::new(Map::default())),
    }
}

impl From<Unhashable> for Stop {
    fn from(unhashable: Unhashable) -> Self {
        Stop::Internal(format!("runtime error: hash of unhashable type {}", unhashable.0).into())
    }
}

/// The value of a key in any kind of map, without the default for unknown domains.
pub(crate) fn map_find<'v>(
    machine: &Machine<'v>,
    map: &Value<'v>,
    key: &Value<'v>,
) -> Result<Option<Value<'v>>, Stop> {
    let name = match key {
        Value::String(name) => Some(name),
        _ => None,
    };
    Ok(match map {
        Value::Map(map) => map.find(key)?.cloned(),
        Value::GrowingMap(number) => machine.growing_map(*number).find(key)?.cloned(),
        Value::Device => name.and_then(|name| device_field(machine, name)),
        Value::Domains { side, .. } => name.and_then(|name| {
            has_domain(machine, *side, name).then(|| Value::Domain { side: *side, domain: name.clone() })
        }),
        Value::Domain { side, domain } => name.and_then(|name| named(machine, *side, domain, name)),
        _ => None,
    })
}

fn device_field<'v>(machine: &Machine<'v>, name: &str) -> Option<Value<'v>> {
    Some(match name {
        "driver" => Value::String(Ref::Borrowed(machine.device().driver())),
        "allowMultipleAllocations" => Value::Bool(machine.device().allow_multiple_allocations()),
        "attributes" => Value::Domains { side: Side::Attributes, has_default: true },
        "capacity" => Value::Domains { side: Side::Capacity, has_default: true },
        _ => return None,
    })
}

/// The attribute or capacity of this domain and name.
pub(crate) fn named<'v>(machine: &Machine<'v>, side: Side, domain: &str, name: &str) -> Option<Value<'v>> {
    match side {
        Side::Attributes => machine.device().attribute(domain, name).map(Value::from_attribute),
        Side::Capacity => machine
            .device()
            .capacity(domain, name)
            .map(|value| Value::Quantity { value: Ref::Borrowed(value), result_of_sum: false }),
    }
}

fn has_domain(machine: &Machine<'_>, side: Side, wanted: &str) -> bool {
    let device = machine.device();
    match side {
        Side::Attributes => (0..device.attribute_count()).any(|index| device.attribute_at(index).0 == wanted),
        Side::Capacity => (0..device.capacity_count()).any(|index| device.capacity_at(index).0 == wanted),
    }
}

/// All entries of any kind of map.
pub(crate) fn map_entries<'v>(machine: &Machine<'v>, map: &Value<'v>) -> Vec<(Value<'v>, Value<'v>)> {
    let device = machine.device();
    let text = |text: &'v str| Value::String(Ref::Borrowed(text));
    match map {
        Value::Map(map) => map.entries().to_vec(),
        Value::GrowingMap(number) => machine.growing_map(*number).entries().to_vec(),
        Value::Device => ["driver", "allowMultipleAllocations", "attributes", "capacity"]
            .into_iter()
            .filter_map(|name| device_field(machine, name).map(|value| (text(name), value)))
            .collect(),
        Value::Domains { side, .. } => {
            let count = match side {
                Side::Attributes => device.attribute_count(),
                Side::Capacity => device.capacity_count(),
            };
            let mut domains: Vec<&'v str> = (0..count)
                .map(|index| match side {
                    Side::Attributes => device.attribute_at(index).0,
                    Side::Capacity => device.capacity_at(index).0,
                })
                .collect();
            domains.sort_unstable();
            domains.dedup();
            let domain =
                |name: &'v str| (text(name), Value::Domain { side: *side, domain: Ref::Borrowed(name) });
            domains.into_iter().map(domain).collect()
        }
        Value::Domain { side: Side::Attributes, domain } => (0..device.attribute_count())
            .map(|index| device.attribute_at(index))
            .filter(|(found, ..)| *found == &**domain)
            .map(|(_, name, value)| (text(name), Value::from_attribute(value)))
            .collect(),
        Value::Domain { side: Side::Capacity, domain } => (0..device.capacity_count())
            .map(|index| device.capacity_at(index))
            .filter(|(found, ..)| *found == &**domain)
            .map(|(_, name, value)| {
                (text(name), Value::Quantity { value: Ref::Borrowed(value), result_of_sum: false })
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Number of entries of any kind of map.
pub(crate) fn map_len<'v>(machine: &Machine<'v>, map: &Value<'v>) -> u64 {
    match map {
        Value::Map(map) => map.len() as u64,
        Value::GrowingMap(number) => machine.growing_map(*number).len() as u64,
        Value::Device => 4,
        Value::Domain { side, domain } => {
            let device = machine.device();
            let count = match side {
                Side::Attributes => (0..device.attribute_count())
                    .filter(|index| device.attribute_at(*index).0 == &**domain)
                    .count(),
                Side::Capacity => (0..device.capacity_count())
                    .filter(|index| device.capacity_at(*index).0 == &**domain)
                    .count(),
            };
            count as u64
        }
        Value::Domains { side, .. } => {
            map_entries(machine, &Value::Domains { side: *side, has_default: false }).len() as u64
        }
        _ => 0,
    }
}

/// The effect of reading an optional as an attribute in cel-go 0.26: the content is converted to a Go value and back,
/// and not every type can be converted back.
pub(crate) fn reread<'v>(content: &Value<'v>) -> Value<'v> {
    match content {
        Value::Quantity { value, .. } => {
            Value::error(format!("unsupported conversion to ref.Val: (*resource.Quantity){}", value.plain()))
        }
        Value::Version(version) => Value::error(format!(
            "unsupported conversion to ref.Val: (semver.Version){}.{}.{}",
            version.major, version.minor, version.patch
        )),
        Value::Ip(address) => {
            Value::error(format!("unsupported conversion to ref.Val: (netip.Addr){address}"))
        }
        Value::Cidr { address, length } => {
            Value::error(format!("unsupported conversion to ref.Val: (netip.Prefix){address}/{length}"))
        }
        Value::Url(url) => Value::error(format!("unsupported conversion to ref.Val: (*url.URL){url}")),
        Value::Type(name) => Value::String(Ref::Borrowed(name)),
        Value::Optional(Some(inner)) => reread(inner),
        Value::Optional(None) => Value::Null,
        Value::Domains { side, .. } => Value::Domains { side: *side, has_default: false },
        other => other.clone(),
    }
}
