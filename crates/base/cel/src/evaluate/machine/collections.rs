//! Creates and extends lists and maps.

use std::sync::Arc;

use super::Machine;
use super::budget::Stop;
use crate::evaluate::map::Map;
use crate::evaluate::qualify;
use crate::evaluate::show::show;
use crate::evaluate::value::Value;

impl<'v> Machine<'v> {
    /// An empty list or map as the initial value of an accumulator grows in place, as upstream's does.
    pub(super) fn grow_if_empty(&mut self, value: Value<'v>) -> Value<'v> {
        match &value {
            Value::List(list) if list.len() == 0 => {
                self.rare().growing.push(Vec::new());
                Value::Growing(self.rare().growing.len() as u32 - 1)
            }
            Value::Map(map) if map.len() == 0 => {
                self.rare().growing_maps.push(Map::default());
                Value::GrowingMap(self.rare().growing_maps.len() as u32 - 1)
            }
            _ => value,
        }
    }

    pub(super) fn freeze(&mut self) {
        match self.stack.last() {
            Some(Value::Growing(number)) => {
                let number = *number as usize;
                // The newest one has no other user any more; an older one may be read again.
                let items = if number + 1 == self.rare().growing.len() {
                    self.rare().growing.pop()
                } else {
                    self.rare().growing.get(number).cloned()
                };
                self.pop();
                self.stack.push(Value::list(items.unwrap_or_default()));
            }
            Some(Value::GrowingMap(number)) => {
                let number = *number as usize;
                let map = if number + 1 == self.rare().growing_maps.len() {
                    self.rare().growing_maps.pop()
                } else {
                    self.rare().growing_maps.get(number).cloned()
                };
                self.pop();
                self.stack.push(Value::Map(Arc::new(map.unwrap_or_default())));
            }
            _ => {}
        }
    }

    pub(super) fn check(&mut self, below: u32, end: u32) -> Option<u32> {
        if !self.top_is_error() {
            return None;
        }
        let error = self.pop();
        self.stack.truncate(self.stack.len() - below as usize);
        self.stack.push(error);
        Some(end)
    }

    pub(super) fn check_optional(&mut self, below: u32, end: u32, entry: bool) -> Option<u32> {
        if let Some(Value::Error(_) | Value::Optional(_)) = self.stack.last() {
            return self.check(below, end);
        }
        let value = self.pop();
        let shown = show(self, &value);
        let message = match self.stack.last() {
            Some(key) if entry => {
                format!(
                    "cannot initialize optional entry '{}' from non-optional value {shown}",
                    show(self, key)
                )
            }
            _ => format!("cannot initialize optional list element from non-optional value {shown}"),
        };
        self.stack.push(Value::error(message));
        self.check(below, end)
    }

    pub(super) fn check_field(&mut self, below: u32, end: u32, name: &str) -> Option<u32> {
        if !matches!(self.stack.last(), Some(Value::Error(_) | Value::Optional(_))) {
            let value = self.pop();
            let shown = show(self, &value);
            self.stack.push(Value::error(format!(
                "cannot initialize optional entry '{name}' from non-optional value {shown}"
            )));
        }
        self.check(below, end)
    }

    pub(super) fn make_list(&mut self, count: u32, optional: Option<&[bool]>) -> Result<(), Stop> {
        self.allocate_elements(u64::from(count))?;
        let first = self.stack.len() - count as usize;
        let items: Vec<Value<'v>> = self.stack.drain(first..).collect();
        let items = items.into_iter().enumerate().filter_map(|(index, value)| {
            match (optional.is_some_and(|optional| optional[index]), value) {
                (true, Value::Optional(inner)) => inner.map(|inner| (*inner).clone()),
                (_, value) => Some(value),
            }
        });
        let items: Vec<Value<'v>> = items.collect();
        let items = items.into_iter().map(|value| self.settle(value)).collect();
        self.stack.push(Value::list(items));
        Ok(())
    }

    /// Copies an unfinished list or map before it becomes part of another value.
    pub(super) fn settle(&self, value: Value<'v>) -> Value<'v> {
        match value {
            Value::Growing(number) => Value::list(self.growing(number).to_vec()),
            Value::GrowingMap(number) => Value::Map(Arc::new(self.growing_map(number).clone())),
            other => other,
        }
    }

    pub(super) fn make_map(&mut self, count: u32, optional: Option<&[bool]>) -> Result<(), Stop> {
        self.allocate_elements(u64::from(count) * 3)?;
        let first = self.stack.len() - 2 * count as usize;
        let mut parts: Vec<Value<'v>> = self.stack.drain(first..).collect();
        let mut map = Map::default();
        for index in 0..count as usize {
            let key = std::mem::replace(&mut parts[2 * index], Value::Null);
            let value = std::mem::replace(&mut parts[2 * index + 1], Value::Null);
            let value = match (optional.is_some_and(|optional| optional[index]), value) {
                (true, Value::Optional(None)) => {
                    map.remove(&key)?;
                    continue;
                }
                (true, Value::Optional(Some(inner))) => (*inner).clone(),
                (_, value) => value,
            };
            let value = self.settle(value);
            map.set(key, value)?;
        }
        self.stack.push(Value::Map(Arc::new(map)));
        Ok(())
    }

    /// Appends to an unfinished list; `None` if the left operand is not such a list.
    pub(crate) fn grow(&mut self, target: &Value<'v>, other: &Value<'v>) -> Result<Option<Value<'v>>, Stop> {
        let Value::Growing(number) = target else { return Ok(None) };
        let added = match other {
            Value::List(_) | Value::Growing(_) => self.as_list(other),
            _ => return Ok(Some(Value::error("no such overload"))),
        };
        self.allocate_elements(added.len())?;
        if let Some(items) = self.rare().growing.get_mut(*number as usize) {
            items.extend(added.iter().cloned());
        }
        Ok(Some(target.clone()))
    }

    /// Inserts into an unfinished map.
    pub(crate) fn insert(
        &mut self,
        target: &Value<'v>,
        key: Value<'v>,
        value: Value<'v>,
    ) -> Result<Value<'v>, Stop> {
        self.allocate_elements(3)?;
        if qualify::map_find(self, target, &key)?.is_some() {
            return Ok(Value::error(format!("insert failed: key {} already exists", show(self, &key))));
        }
        let value = self.settle(value);
        match target {
            Value::GrowingMap(number) => {
                self.rare().growing_maps[*number as usize].set(key, value)?;
                Ok(target.clone())
            }
            _ => {
                let mut copy = Map::default();
                let entries = qualify::map_entries(self, target);
                self.allocate_elements(3 * entries.len() as u64)?;
                for (key, value) in entries {
                    copy.set(key, value)?;
                }
                copy.set(key, value)?;
                Ok(Value::Map(Arc::new(copy)))
            }
        }
    }
}
