//! Resolves names.

use std::sync::Arc;

use super::{Checker, Reference};
use crate::check::declarations::{self, Function};
use crate::check::messages::NULL_VALUE;
use crate::check::types::Type;
use crate::environment::is_1_37;
use crate::syntax::ast::NodeId;

/// The result of resolving a name.
pub(super) enum Named {
    Variable(Arc<str>, Type),
    TypeName(Arc<str>, Type),
}

impl Named {
    /// The same from inside a loop with a variable hiding this one.
    fn behind_dot(self) -> Self {
        match self {
            Named::Variable(name, found) => Named::Variable(format!(".{name}").into(), found),
            Named::TypeName(name, found) => Named::TypeName(format!(".{name}").into(), found),
        }
    }
}

impl Checker<'_> {
    /// The function of this name.
    pub(super) fn function(&self, name: &str) -> Option<&'static Function> {
        let found = declarations::function(name, self.environment.version)?;
        let declared = found.name != "includes" || self.environment.has_includes(self.origin);
        declared.then_some(found)
    }

    /// The type of this name.
    fn type_of_name(&self, name: &str) -> Option<Named> {
        if name == NULL_VALUE {
            return Some(Named::TypeName(name.into(), Type::Int));
        }
        let found = declarations::named_type(name, self.environment.version)?;
        Some(Named::TypeName(name.into(), Type::Meta(Some(Arc::new(found)))))
    }

    /// Resolves the name of a message literal.
    pub(super) fn look_up_message(&self, name: &str) -> Option<Named> {
        if is_1_37(self.environment.version) { self.type_of_name(name) } else { self.look_up(name) }
    }

    fn look_up(&self, name: &str) -> Option<Named> {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let variable = |(name, found): (&Arc<str>, &Type)| Named::Variable(name.clone(), found.clone());
        if !is_1_37(self.environment.version) {
            let mut scopes = self.scopes.iter().rev();
            let found = scopes.find_map(|scope| scope.get_key_value(plain)).map(variable);
            return found.or_else(|| self.type_of_name(plain));
        }
        // A loop's variable hides whatever begins with its name, unless a dot is in front.
        let first = plain.split('.').next().unwrap_or(plain);
        let local = self.scopes[1..].iter().rev().find_map(|scope| scope.get_key_value(first));
        if local.is_some() && plain.len() == name.len() {
            return local.filter(|_| first == plain).map(variable);
        }
        let found = self.scopes[0].get_key_value(plain).map(variable);
        let found = found.or_else(|| self.type_of_name(plain))?;
        Some(if local.is_some() { found.behind_dot() } else { found })
    }

    /// Makes `node` a reference to the variable or type of this name.
    pub(super) fn refer(&mut self, node: NodeId, name: &str) -> bool {
        let (reference, found) = match self.look_up(name) {
            Some(Named::Variable(name, found)) => (Reference::Variable(name), found),
            Some(Named::TypeName(name, found)) => (Reference::TypeName(name), found),
            None => return false,
        };
        self.set(node, found);
        self.references[node as usize] = reference;
        true
    }
}
