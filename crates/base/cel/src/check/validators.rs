//! Checks after type checking: refuses invalid literals, lists and maps of mixed types, and format strings that
//! do not fit their arguments.

use super::checker::{Checked, Reference};
use super::types::Type;
use crate::syntax::ast::{Ast, Kind, Literal, NodeId};
use crate::syntax::source::Issue;
use crate::values::format_clause::{Clause, clause};
use crate::values::{pattern, time};

/// Checks every node of the tree.
pub(crate) fn validate(ast: &Ast, checked: &Checked) -> Vec<Issue> {
    let mut validator = Validator { ast, checked, issues: Vec::new() };
    let mut open = vec![(ast.root, false)];
    let mut children = Vec::new();
    while let Some((node, in_format)) = open.pop() {
        validator.node(node, in_format);
        let inside = in_format
            || matches!(ast.kind(node), Kind::Call { .. } if validator.function_name(node).as_deref() == Some("format"));
        children.clear();
        collect_children(ast.kind(node), &mut children);
        open.extend(children.iter().map(|child| (*child, inside)));
    }
    validator.issues
}

/// The nodes directly below one.
pub(crate) fn collect_children(kind: &Kind, children: &mut Vec<NodeId>) {
    match kind {
        Kind::Literal(_) | Kind::Identifier(_) => {}
        Kind::Select { operand, .. } => children.push(*operand),
        Kind::Call { target, arguments, .. } => {
            children.extend(target);
            children.extend(arguments);
        }
        Kind::List { elements, .. } => children.extend(elements),
        Kind::Map { entries } => children.extend(entries.iter().flat_map(|entry| [entry.key, entry.value])),
        Kind::Message { fields, .. } => children.extend(fields.iter().map(|field| field.value)),
        Kind::Comprehension(comprehension) => children.extend([
            comprehension.range,
            comprehension.initial,
            comprehension.condition,
            comprehension.step,
            comprehension.result,
        ]),
    }
}

struct Validator<'a> {
    ast: &'a Ast,
    checked: &'a Checked,
    issues: Vec<Issue>,
}

impl Validator<'_> {
    fn report(&mut self, node: NodeId, message: String) {
        self.issues.push(Issue::at(self.ast.nodes[node as usize].at, message));
    }

    fn function_name(&self, node: NodeId) -> Option<String> {
        match (&self.checked.references[node as usize], self.ast.kind(node)) {
            (Reference::Function { function, .. }, _) => Some(function.name.to_owned()),
            (_, Kind::Call { function, .. }) => Some(function.to_string()),
            _ => None,
        }
    }

    fn type_of(&self, node: NodeId) -> &Type {
        &self.checked.types[node as usize]
    }

    fn node(&mut self, node: NodeId, in_format: bool) {
        match self.ast.kind(node) {
            Kind::Call { arguments, target, .. } => {
                let Some(name) = self.function_name(node) else { return };
                if let Some(first) = arguments.first()
                    && let Kind::Literal(literal) = self.ast.kind(*first)
                    && !is_valid_literal(&name, literal)
                {
                    self.report(*first, format!("invalid {name} argument"));
                }
                if name == "format"
                    && let (Some(target), [list]) = (target, arguments.as_slice())
                    && let Kind::Literal(Literal::String(text)) = self.ast.kind(*target)
                    && let Kind::List { elements, .. } = self.ast.kind(*list)
                {
                    let (text, elements) = (text.clone(), elements.clone());
                    if let Err(message) = self.format_call(&text, &elements) {
                        self.report(node, message);
                    }
                }
            }
            Kind::List { elements, optional } if !in_format => {
                let pairs: Vec<(NodeId, bool)> =
                    elements.iter().copied().zip(optional.iter().copied()).collect();
                self.list(&pairs);
            }
            Kind::Map { entries } if !in_format => {
                let keys: Vec<(NodeId, bool)> = entries.iter().map(|entry| (entry.key, false)).collect();
                let values: Vec<(NodeId, bool)> =
                    entries.iter().map(|entry| (entry.value, entry.optional)).collect();
                self.all_of_one_type(&keys);
                self.all_of_one_type(&values);
            }
            _ => {}
        }
    }

    fn list(&mut self, elements: &[(NodeId, bool)]) {
        self.all_of_one_type(elements);
    }

    fn all_of_one_type(&mut self, elements: &[(NodeId, bool)]) {
        let mut wanted: Option<Type> = None;
        for (element, optional) in elements {
            let mut found = self.type_of(*element).clone();
            if *optional {
                let (inner, is_optional) = found.unwrap_optional();
                if !is_optional {
                    // Upstream panics here; only the refusal of the expression matters.
                    self.report(*element, "optional element of unknown type".to_owned());
                    return;
                }
                found = inner;
            }
            match &wanted {
                None => wanted = Some(found),
                Some(wanted) if wanted.is_equivalent(&found) => {}
                Some(wanted) => {
                    let message = format!(
                        "expected type '{}' but found '{}'",
                        wanted.in_messages(),
                        found.in_messages()
                    );
                    self.report(*element, message);
                    return;
                }
            }
        }
    }

    fn format_call(&self, text: &str, elements: &[NodeId]) -> Result<(), String> {
        let mut rest = text;
        let mut used = 0;
        while let Some(at) = rest.find('%') {
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('%') {
                rest = after;
                continue;
            }
            if rest.is_empty() {
                return Err("unexpected end of string".to_owned());
            }
            let Some(element) = elements.get(used) else { return Err(format!("index {used} out of range")) };
            let (clause, length) = clause(rest)?;
            self.format_argument(clause, *element)
                .map_err(|message| format!("error during formatting: {message}"))?;
            rest = &rest[length..];
            used += 1;
        }
        if elements.len() > used {
            return Err(format!(
                "too many arguments supplied to string.format (expected {used}, got {})",
                elements.len()
            ));
        }
        Ok(())
    }

    fn format_argument(&self, clause: Clause, element: NodeId) -> Result<(), String> {
        let found = self.type_of(element).unwrapped();
        if *found == Type::Dyn {
            return Ok(());
        }
        let name = found.name();
        let is_integer = matches!(found, Type::Int | Type::Uint);
        let (fits, message) = match clause {
            Clause::String => return self.format_string(element),
            Clause::Decimal => (is_integer, "decimal clause can only be used on integers, was given "),
            Clause::Fixed(_) => (
                matches!(found, Type::Double | Type::String),
                "fixed-point clause can only be used on doubles, was given ",
            ),
            Clause::Scientific(_) => (
                matches!(found, Type::Double | Type::String),
                "scientific clause can only be used on doubles, was given ",
            ),
            Clause::Binary => (
                is_integer || *found == Type::Bool,
                "only integers and bools can be formatted as binary, was given ",
            ),
            Clause::Hexadecimal { .. } => (
                is_integer || matches!(found, Type::String | Type::Bytes),
                "only integers, byte buffers, and strings can be formatted as hex, was given ",
            ),
            Clause::Octal => (is_integer, "octal clause can only be used on integers, was given "),
        };
        if fits { Ok(()) } else { Err(format!("{message}{name}")) }
    }

    fn format_string(&self, element: NodeId) -> Result<(), String> {
        let mut open = vec![element];
        while let Some(node) = open.pop() {
            let found = self.type_of(node).unwrapped();
            let fits = matches!(
                found,
                Type::Dyn
                    | Type::List(_)
                    | Type::Map(_)
                    | Type::Int
                    | Type::Uint
                    | Type::Double
                    | Type::Bool
                    | Type::String
                    | Type::Timestamp
                    | Type::Bytes
                    | Type::Duration
                    | Type::Meta(_)
                    | Type::Null
            );
            if !fits {
                return Err(format!(
                    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                     durations, and timestamps, was given {}",
                    found.name()
                ));
            }
            if let kind @ (Kind::List { .. } | Kind::Map { .. }) = self.ast.kind(node) {
                collect_children(kind, &mut open);
            }
        }
        Ok(())
    }
}

fn is_valid_literal(function: &str, literal: &Literal) -> bool {
    match (function, literal) {
        ("duration", Literal::String(text)) => time::parse_duration(text).is_some(),
        ("timestamp", Literal::String(text)) => {
            matches!(time::Timestamp::parse(text), Some(Ok(_)))
        }
        ("timestamp", Literal::Int(seconds)) => time::Timestamp::from_seconds(*seconds).is_ok(),
        ("duration" | "timestamp", _) => false,
        ("matches", Literal::String(text)) => pattern::compile(text).is_ok(),
        _ => true,
    }
}
