//! Reads and selections.

use super::Machine;
use super::budget::Stop;
use crate::evaluate::program::Read;
use crate::evaluate::qualify::{self, Found};
use crate::evaluate::value::{Ref, Value};

impl<'v> Machine<'v> {
    /// A value of the device, and its reading cost.
    #[inline(always)]
    pub(super) fn read(&self, read: Read) -> (Value<'v>, u64) {
        match read {
            Read::Driver => (Value::String(Ref::Borrowed(self.device.driver())), 2),
            Read::MultipleAllocations => (Value::Bool(self.device.allow_multiple_allocations()), 2),
            Read::Named { side, domain, name } => {
                let (domain, name) = (self.constant_text(domain), self.constant_text(name));
                let value = match qualify::named(self, side, domain, name) {
                    Some(value) => value,
                    None => Value::error(format!("no such key: {name}")),
                };
                (value, 4)
            }
        }
    }

    /// Pushes a variable; if not computed yet, returns the address of its code.
    pub(super) fn read_variable(&mut self, slot: u32, free: bool) -> Result<Option<u32>, Stop> {
        let value = match &self.slots[slot as usize] {
            Some(Value::Optional(Some(inner))) => Value::some(self.reread(inner)),
            Some(value) => value.clone(),
            None => {
                if let Some(Some(lazy)) = self.program.lazy.get(slot as usize) {
                    return Ok(Some(*lazy));
                }
                Value::Null
            }
        };
        self.stack.push(value);
        if !free {
            self.charge(1)?;
        }
        Ok(None)
    }

    /// The content of an optional read as an attribute.
    pub(super) fn reread(&self, content: &Value<'v>) -> Value<'v> {
        if self.is_1_37() { content.clone() } else { qualify::reread(content) }
    }

    pub(super) fn qualify(
        &mut self,
        key: &Value<'v>,
        optional: bool,
        test: bool,
        chained: bool,
        end: u32,
    ) -> Result<Option<u32>, Stop> {
        let in_chain = chained && self.in_optional_chain();
        let presence = optional || in_chain;
        let object = self.pop();
        let found = qualify::qualify(self, &object, key, presence || test)?;
        match found {
            Found::Error(message) => {
                self.stack.push(Value::Error(message));
                self.charge(u64::from(!presence))?;
                Ok(Some(end))
            }
            Found::Absent if presence => {
                self.stack.push(Value::Optional(None));
                if let Some(chain) = self.rare().chains.last_mut() {
                    *chain = false;
                }
                Ok(Some(end))
            }
            Found::Absent => {
                self.stack.push(Value::Bool(false));
                self.charge(1)?;
                Ok(None)
            }
            Found::Value(value) => {
                self.stack.push(if test && !presence { Value::Bool(true) } else { value });
                if presence && let Some(chain) = self.rare().chains.last_mut() {
                    *chain = true;
                }
                self.charge(1)?;
                Ok(None)
            }
        }
    }

    pub(super) fn qualify_by(
        &mut self,
        optional: bool,
        chained: bool,
        end: u32,
    ) -> Result<Option<u32>, Stop> {
        let key = self.pop();
        if self.top_is_error() {
            return Ok(Some(end));
        }
        let key = match key {
            Value::Error(message) => Err(message),
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_) => Ok(key),
            other => Err(format!("invalid qualifier type: {}", other.go_type()).into()),
        };
        match key {
            Ok(key) => self.qualify(&key, optional, false, chained, end),
            Err(message) => {
                self.pop();
                self.stack.push(Value::Error(message));
                let presence = optional || (chained && self.in_optional_chain());
                self.charge(u64::from(!presence))?;
                Ok(Some(end))
            }
        }
    }
}
