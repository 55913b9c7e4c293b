//! Loops over lists and maps.

use super::Machine;
use super::budget::Stop;
use crate::evaluate::list::List;
use crate::evaluate::qualify;
use crate::evaluate::value::Value;

/// A loop over a list or map.
pub(super) enum Iterator<'v> {
    List { list: List<'v>, next: u64 },
    Entries { entries: Vec<(Value<'v>, Value<'v>)>, next: usize },
}

impl<'v> Machine<'v> {
    pub(super) fn fold_begin(&mut self, two: bool, accumulator: u32, end: u32) -> Result<Option<u32>, Stop> {
        let range = self.pop();
        self.slots[accumulator as usize] = None;
        let iterator = match &range {
            Value::List(list) => Iterator::List { list: list.clone(), next: 0 },
            Value::Growing(_) => Iterator::List { list: self.as_list(&range), next: 0 },
            map if qualify::is_map(map) => {
                let entries = qualify::map_entries(self, map);
                self.allocate_elements(2 * entries.len() as u64)?;
                Iterator::Entries { entries, next: 0 }
            }
            Value::Error(_) => {
                self.stack.push(range);
                return Ok(Some(end));
            }
            other => {
                let found = other.go_type();
                let message = if two {
                    format!("unsupported comprehension range type: {found}")
                } else {
                    format!("got '{found}', expected iterable type")
                };
                self.stack.push(Value::error(message));
                return Ok(Some(end));
            }
        };
        self.rare().loops.push(iterator);
        Ok(None)
    }

    pub(super) fn fold_next(&mut self, first: u32, second: Option<u32>, done: u32) -> Option<u32> {
        let (one, two) = match self.rare().loops.last_mut() {
            Some(Iterator::List { list, next }) => {
                let Some(item) = list.get(*next) else { return Some(done) };
                let index = *next as i64;
                *next += 1;
                match second {
                    Some(_) => (Value::Int(index), item.clone()),
                    None => (item.clone(), Value::Null),
                }
            }
            Some(Iterator::Entries { entries, next }) => {
                let Some((key, value)) = entries.get(*next) else { return Some(done) };
                *next += 1;
                (key.clone(), value.clone())
            }
            None => return Some(done),
        };
        self.slots[first as usize] = Some(one);
        if let Some(second) = second {
            self.slots[second as usize] = Some(two);
        }
        None
    }
}
