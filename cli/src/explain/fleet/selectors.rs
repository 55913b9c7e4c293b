//! Evaluates selectors part by part.

use std::collections::HashMap;

use tessera_cel::{CompileError, Device, Environment, Selector};

use crate::explain::conjuncts;

/// Compiled selectors and their parts.
#[derive(Debug)]
pub struct Selectors {
    environment: Environment,
    compiled: HashMap<String, Result<Selector, CompileError>>,
}

impl Selectors {
    /// None yet; they will be read as kube-scheduler reads stored ones.
    pub fn new(environment: Environment) -> Self {
        Selectors { environment, compiled: HashMap::new() }
    }

    /// The selector with this text.
    pub fn compiled(&mut self, expression: &str) -> Result<Selector, CompileError> {
        if let Some(found) = self.compiled.get(expression) {
            return found.clone();
        }
        let compiled = Selector::compile_with(expression, self.environment);
        self.compiled.insert(expression.to_owned(), compiled.clone());
        compiled
    }

    /// All false parts for the device.
    pub fn false_parts(&mut self, expression: &str, device: Option<&Device>) -> Vec<String> {
        let Some(device) = device else { return Vec::new() };
        let parts = conjuncts::split(expression).into_iter();
        parts
            .filter(|part| self.compiled(part).is_ok_and(|part| part.matches(device) == Ok(false)))
            .map(one_line)
            .collect()
    }

    /// Values of the device read by a part, as `name is value`.
    pub fn values(&mut self, part: &str, device: &Device) -> Option<String> {
        let selector = self.compiled(part).ok()?;
        selector.explain(device).into_iter().find_map(|found| {
            let text = selector.source().get(found.start..found.end)?;
            // The operands come first; the whole part and literals add no information.
            (text.starts_with("device.") && text.len() < selector.source().trim().len())
                .then(|| format!("{} is {}", short(text), found.value))
        })
    }
}

/// The last name: `memoryMiB` of `device.attributes["gpu.tessera.dev"].memoryMiB`.
fn short(text: &str) -> String {
    let text = one_line(text);
    match text.rsplit_once("].") {
        Some((_, name)) if name.chars().all(|letter| letter.is_alphanumeric() || letter == '_') => {
            name.to_owned()
        }
        _ => text,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
