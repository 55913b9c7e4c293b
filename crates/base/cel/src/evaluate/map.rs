//! Maps in insertion order, with an index once they are large.

use std::collections::HashMap;
use std::sync::Arc;

use super::value::{Ref, Value};

/// Number of entries from which keys are indexed.
const INDEXED_FROM: usize = 8;

/// A map.
#[derive(Debug, Clone, Default)]
pub(crate) struct Map<'v> {
    entries: Vec<(Value<'v>, Value<'v>)>,
    index: HashMap<Key, usize>,
}

/// A key as compared by Go's maps: by type and value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(u64),
    String(Box<str>),
    Duration(i64),
    Text(&'static str),
    Other(String),
}

/// A key without hash in Go: the evaluation ends, where upstream panics.
#[derive(Debug)]
pub(crate) struct Unhashable(pub &'static str);

/// The key; `None` if equal to no key, not even itself.
fn key(value: &Value<'_>) -> Result<Option<Key>, Unhashable> {
    Ok(Some(match value {
        Value::Null => Key::Null,
        Value::Bool(value) => Key::Bool(*value),
        Value::Int(value) => Key::Int(*value),
        Value::Uint(value) => Key::Uint(*value),
        Value::Double(value) if value.is_nan() => return Ok(None),
        // Positive and negative zero are one key.
        Value::Double(value) => Key::Double((value + 0.0).to_bits()),
        Value::String(value) => Key::String((**value).into()),
        Value::Duration(value) => Key::Duration(*value),
        Value::Type(name) => Key::Text(name),
        Value::Ip(address) => Key::Other(address.to_string()),
        Value::Cidr { address, length } => Key::Other(format!("{address}/{length}")),
        Value::Timestamp(time) => Key::Other(time.to_string()),
        Value::Bytes(_) => return Err(Unhashable("types.Bytes")),
        Value::Version(_) => return Err(Unhashable("cel.Semver")),
        Value::Format(_) => return Err(Unhashable("cel.Format")),
        // Go compares these by address.
        _ => return Ok(None),
    }))
}

impl<'v> Map<'v> {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> &[(Value<'v>, Value<'v>)] {
        &self.entries
    }

    fn position(&self, wanted: &Value<'_>) -> Result<Option<usize>, Unhashable> {
        if let (Value::String(wanted), true) = (wanted, self.entries.len() < INDEXED_FROM) {
            return Ok(self
                .entries
                .iter()
                .position(|(key, _)| matches!(key, Value::String(key) if **key == **wanted)));
        }
        let Some(wanted) = key(wanted)? else { return Ok(None) };
        if self.entries.len() >= INDEXED_FROM {
            return Ok(self.index.get(&wanted).copied());
        }
        for (position, (candidate, _)) in self.entries.iter().enumerate() {
            if key(candidate)?.as_ref() == Some(&wanted) {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Sets a key, replacing its former value.
    pub(crate) fn set(&mut self, new_key: Value<'v>, value: Value<'v>) -> Result<(), Unhashable> {
        match self.position(&new_key)? {
            Some(position) => self.entries[position].1 = value,
            None => {
                let hashed = key(&new_key)?;
                self.entries.push((new_key, value));
                if self.entries.len() == INDEXED_FROM {
                    self.index = HashMap::new();
                    for (position, (candidate, _)) in self.entries.iter().enumerate() {
                        if let Some(candidate) = key(candidate)? {
                            self.index.insert(candidate, position);
                        }
                    }
                } else if self.entries.len() > INDEXED_FROM
                    && let Some(hashed) = hashed
                {
                    self.index.insert(hashed, self.entries.len() - 1);
                }
            }
        }
        Ok(())
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, old_key: &Value<'_>) -> Result<(), Unhashable> {
        if let Some(position) = self.position(old_key)? {
            self.entries.remove(position);
            let entries = std::mem::take(&mut self.entries);
            self.index.clear();
            for (kept, value) in entries {
                self.set(kept, value)?;
            }
        }
        Ok(())
    }

    /// The value of a key; equal numbers of different types are the same key.
    pub(crate) fn find(&self, wanted: &Value<'_>) -> Result<Option<&Value<'v>>, Unhashable> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        let at = |position: Option<usize>| position.map(|position| &self.entries[position].1);
        if let Some(found) = at(self.position(wanted)?) {
            return Ok(Some(found));
        }
        Ok(match wanted {
            Value::Double(number) => {
                if let Some(whole) = lossless_int(*number)
                    && let Some(found) = at(self.position(&Value::Int(whole))?)
                {
                    return Ok(Some(found));
                }
                match lossless_uint(*number) {
                    Some(whole) => at(self.position(&Value::Uint(whole))?),
                    None => None,
                }
            }
            Value::Int(number) => match u64::try_from(*number) {
                Ok(number) => at(self.position(&Value::Uint(number))?),
                Err(_) => None,
            },
            Value::Uint(number) => match i64::try_from(*number) {
                Ok(number) => at(self.position(&Value::Int(number))?),
                Err(_) => None,
            },
            _ => None,
        })
    }

    pub(crate) fn from_strings(pairs: Vec<(String, Vec<String>)>) -> Self {
        let mut map = Map::default();
        for (name, values) in pairs {
            let values = values.into_iter().map(Value::shared_string).collect();
            // Cannot fail: strings are hashable.
            let _ = map.set(Value::String(Ref::Shared(Arc::from(name))), Value::list(values));
        }
        map
    }
}

/// The integer equal to a double, if there is one.
pub(crate) fn lossless_int(number: f64) -> Option<i64> {
    let in_range = number > i64::MIN as f64 && number < i64::MAX as f64;
    (in_range && number.fract() == 0.0).then_some(number as i64)
}

/// The unsigned integer equal to a double, if there is one.
pub(crate) fn lossless_uint(number: f64) -> Option<u64> {
    let in_range = (0.0..18_446_744_073_709_551_616.0).contains(&number);
    (in_range && number.fract() == 0.0).then_some(number as u64)
}
