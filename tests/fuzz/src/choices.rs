//! An input read as choices: values and their places in JSON.

use serde_json::{Value, json};

/// Bytes, two for each choice; when they are used up every choice is the first.
pub struct Choices<'d> {
    data: &'d [u8],
}

const TEXTS: [&str; 24] = [
    "",
    " ",
    "NaN",
    "Inf",
    "-Inf",
    "+",
    "-",
    "1e",
    "1e999999999",
    "1e-999999999",
    "9999999999999999999999999999999999999999",
    "-1",
    "-0",
    "0.0000000000000000001",
    "1Ki1",
    "1.5Ei",
    "9223372036854775808",
    "Grüße, 世界",
    "\u{202e}\u{0}\u{fffd}",
    "a/b/c",
    "/",
    "gpu.example.com/",
    "1.0.0-",
    "true && (",
];

impl<'d> Choices<'d> {
    /// The choices of an input's first fourth, and the rest.
    pub fn split(data: &'d [u8]) -> (Self, &'d [u8]) {
        let (choices, rest) = data.split_at(data.len() / 4);
        (Choices { data: choices }, rest)
    }

    /// A number below the limit.
    pub fn below(&mut self, limit: usize) -> usize {
        let (used, rest) = self.data.split_at(self.data.len().min(2));
        self.data = rest;
        let number = used.iter().fold(0usize, |number, byte| number << 8 | usize::from(*byte));
        number % limit.max(1)
    }

    fn leaf(&mut self) -> Value {
        match self.below(8) {
            0 => json!(i64::MIN),
            1 => json!(i64::MAX),
            2 => json!(-1),
            3 => json!(self.below(70)),
            4 => json!(self.below(2) == 1),
            5 => Value::Null,
            6 => json!("x".repeat(self.below(3_000))),
            _ => json!(TEXTS[self.below(TEXTS.len())]),
        }
    }

    /// Changes a part of the value: removed, replaced, or repeated.
    pub fn change(&mut self, value: &mut Value) {
        // Down to a part, one level at a time.
        let mut here = value;
        loop {
            let children = match here {
                Value::Array(all) => all.len(),
                Value::Object(all) => all.len(),
                _ => 0,
            };
            if children == 0 || self.below(8) == 0 {
                break;
            }
            let chosen = self.below(children);
            if self.below(24) == 0 {
                return self.change_child(here, chosen);
            }
            let next = match here {
                Value::Array(all) => all.get_mut(chosen),
                Value::Object(all) => all.values_mut().nth(chosen),
                _ => None,
            };
            // Always found: `chosen` is below the number of children.
            let Some(next) = next else { return };
            here = next;
        }
        // A leaf of the same kind is more often understood than another.
        *here = match here {
            Value::String(_) if self.below(4) > 0 => json!(TEXTS[self.below(TEXTS.len())]),
            Value::Array(_) if self.below(2) == 0 => json!([]),
            _ => self.leaf(),
        };
    }

    fn change_child(&mut self, parent: &mut Value, chosen: usize) {
        match parent {
            Value::Array(all) => {
                let child = all[chosen].clone();
                match self.below(3) {
                    0 => drop(all.remove(chosen)),
                    1 => all.push(child),
                    _ => all.extend(std::iter::repeat_n(child, self.below(150))),
                }
            }
            Value::Object(all) => {
                let Some(key) = all.keys().nth(chosen).cloned() else { return };
                let Some(child) = all.remove(&key) else { return };
                if self.below(2) == 0 {
                    all.insert(TEXTS[self.below(TEXTS.len())].to_owned(), child);
                }
            }
            _ => {}
        }
    }
}
