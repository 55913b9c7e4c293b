//! Checks literals of lists, maps and messages.

use tessera_api::kubernetes::KubernetesVersion;

use super::Checker;
use super::names::Named;
use crate::check::messages::{self, FieldKind};
use crate::check::types::{DEVICE, Type};
use crate::check::unify::most_general;
use crate::environment::is_1_37;
use crate::syntax::ast::{Kind, NodeId};

/// The message with the fields for a literal of this type name, if such a literal is allowed. Also for short names, for which
/// evaluation fails.
fn makes(name: &str, version: KubernetesVersion) -> Option<&str> {
    match name {
        "list" if is_1_37(version) => Some("google.protobuf.ListValue"),
        "duration" => Some("google.protobuf.Duration"),
        "timestamp" => Some("google.protobuf.Timestamp"),
        "null_type" | DEVICE => Some(name),
        name => messages::message(name).map(|message| message.name),
    }
}

impl Checker<'_> {
    /// The common type of the elements so far and one more. Mixed types are dyn here; a validator refuses most of them
    /// later.
    pub(super) fn join(&mut self, former: Option<Type>, current: Type) -> Type {
        match former {
            None => current,
            Some(former) if self.substitutions.assign(&former, &current) => most_general(&former, &current),
            Some(_) => Type::Dyn,
        }
    }

    pub(super) fn unwrap_element(&mut self, node: NodeId, found: Type) -> Type {
        let (inner, is_optional) = found.unwrap_optional();
        if !is_optional && !inner.is_dyn() {
            let message = format!(
                "expected type 'optional_type({})' but found '{}'",
                inner.in_messages(),
                inner.in_messages()
            );
            self.report(node, message);
        }
        inner
    }

    pub(super) fn list(&mut self, node: NodeId) {
        let Kind::List { elements, optional } = self.ast.kind(node) else { return };
        let pairs: Vec<(NodeId, bool)> = elements.iter().copied().zip(optional.iter().copied()).collect();
        let mut element_type = None;
        for (element, optional) in pairs {
            let mut found = self.get(element);
            if optional {
                found = self.unwrap_element(element, found);
            }
            element_type = Some(self.join(element_type, found));
        }
        let element_type = element_type.unwrap_or_else(|| self.substitutions.new_variable());
        self.set(node, Type::list(element_type));
    }

    pub(super) fn map(&mut self, node: NodeId) {
        let Kind::Map { entries } = self.ast.kind(node) else { return };
        let entries = entries.clone();
        let (mut key_type, mut value_type) = (None, None);
        for entry in entries {
            let found = self.get(entry.key);
            key_type = Some(self.join(key_type, found));
            let mut found = self.get(entry.value);
            if entry.optional {
                found = self.unwrap_element(entry.value, found);
            }
            value_type = Some(self.join(value_type, found));
        }
        let key_type = key_type.unwrap_or_else(|| self.substitutions.new_variable());
        let value_type = value_type.unwrap_or_else(|| self.substitutions.new_variable());
        self.set(node, Type::map(key_type, value_type));
    }

    /// Message literals: of a device's type, which cannot be made, and of protobuf's well-known messages.
    pub(super) fn message(&mut self, node: NodeId) {
        let Kind::Message { name, fields } = self.ast.kind(node) else { return };
        let (name, fields) = (name.strip_prefix('.').unwrap_or(name).to_owned(), fields.clone());
        let makes = makes(&name, self.environment.version);
        match (self.look_up_message(&name), makes) {
            (Some(Named::TypeName(_, Type::Meta(Some(made)))), Some(fields_of)) => {
                for field in fields {
                    let wanted = match messages::message(fields_of) {
                        Some(message) => message.field(&field.name).map(FieldKind::wanted),
                        None if fields_of == DEVICE => self.device_field(&field.name),
                        None => None,
                    };
                    let mut found = self.get(field.value);
                    if field.optional {
                        found = self.unwrap_element(field.value, found);
                    }
                    match wanted {
                        Some(wanted) if self.substitutions.assign(&wanted, &found) => {}
                        Some(wanted) => {
                            let message = format!(
                                "expected type of field '{}' is '{}' but provided type is '{}'",
                                field.name,
                                wanted.in_messages(),
                                found.in_messages()
                            );
                            self.report(field.value, message);
                        }
                        None => self.report(field.value, format!("undefined field '{}'", field.name)),
                    }
                }
                self.set(node, (*made).clone());
            }
            (Some(Named::TypeName(..)), _) => {
                self.report(node, format!("'{name}' is not a message type"));
                self.set(node, Type::Error);
            }
            (Some(Named::Variable(..)), _) => {
                self.report(node, format!("'{name}' is not a type"));
                self.set(node, Type::Error);
            }
            (None, _) => self.undeclared(node, &name),
        }
    }
}
