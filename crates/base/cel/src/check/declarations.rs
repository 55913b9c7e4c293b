//! The functions of the environment.
//!
//! `declarations.tsv` was printed by `tests/oracle -declarations` from the environments of Kubernetes 1.36 and 1.37
//! for stored expressions of devices: function, overload, member or global, arguments, result, and the release
//! where only one of them has the line; in the order of the checker.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use tessera_api::kubernetes::KubernetesVersion;

use super::messages::{self, Message};
use super::types::{OPTIONAL, Parameter, Type};
use crate::environment::is_1_37;

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub id: &'static str,
    pub member: bool,
    pub arguments: Vec<Type>,
    pub result: Type,
    /// Names of its type parameters.
    pub parameters: Vec<char>,
}

/// A function and its overloads.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: &'static str,
    pub overloads: Vec<Overload>,
}

type Functions = HashMap<&'static str, Function>;

static FUNCTIONS_1_36: LazyLock<Functions> = LazyLock::new(|| read("1.36"));
static FUNCTIONS_1_37: LazyLock<Functions> = LazyLock::new(|| read("1.37"));

fn read(release: &str) -> Functions {
    let mut functions = Functions::new();
    for line in include_str!("declarations.tsv").lines() {
        let mut fields = line.split('\t');
        let (Some(name), Some(id), Some(style), Some(arguments), Some(result)) =
            (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if fields.next().is_some_and(|only| only != release) {
            continue;
        }
        let arguments: Vec<Type> = arguments
            .split(" ; ")
            .filter(|part| !part.is_empty())
            .map(|part| parse(&mut Text(part)))
            .collect();
        let result = parse(&mut Text(result));
        let mut parameters = Vec::new();
        for part in arguments.iter().chain([&result]) {
            collect_parameters(part, &mut parameters);
        }
        let overload = Overload { id, member: style == "m", arguments, result, parameters };
        functions
            .entry(name)
            .or_insert_with(|| Function { name, overloads: Vec::new() })
            .overloads
            .push(overload);
    }
    functions
}

/// The function of this name.
pub(crate) fn function(name: &str, version: KubernetesVersion) -> Option<&'static Function> {
    let functions = if is_1_37(version) { &FUNCTIONS_1_37 } else { &FUNCTIONS_1_36 };
    functions.get(name.strip_prefix('.').unwrap_or(name))
}

fn collect_parameters(of: &Type, names: &mut Vec<char>) {
    if let Type::Parameter(Parameter::Named(name)) = of
        && !names.contains(name)
    {
        names.push(*name);
    }
    for part in of.parameters() {
        collect_parameters(part, names);
    }
}

/// The remaining text of a type.
struct Text(&'static str);

impl Text {
    fn take(&mut self, prefix: &str) -> bool {
        match self.0.strip_prefix(prefix) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }
}

fn parse(text: &mut Text) -> Type {
    if text.take("<") {
        let mut characters = text.0.chars();
        let name = characters.next().unwrap_or('?');
        text.0 = characters.as_str();
        text.take(">");
        return Type::Parameter(Parameter::Named(name));
    }
    let end = text.0.find(['(', ')', ',', ' ']).unwrap_or(text.0.len());
    let (name, rest) = text.0.split_at(end);
    text.0 = rest;
    let mut parameters = Vec::new();
    if text.take("(") {
        loop {
            parameters.push(parse(text));
            if !text.take(", ") {
                break;
            }
        }
        text.take(")");
    }
    let mut parameters = parameters.into_iter();
    let mut next = || parameters.next().unwrap_or(Type::Dyn);
    match name {
        "any" | "google.protobuf.Any" => Type::Any,
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "dyn" => Type::Dyn,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "int" => Type::Int,
        "list" => Type::list(next()),
        "map" => {
            let key = next();
            Type::map(key, next())
        }
        "null_type" => Type::Null,
        OPTIONAL => Type::optional(next()),
        "string" => Type::String,
        "type" => Type::Meta(Some(Arc::new(next()))),
        "uint" => Type::Uint,
        "net.IP" | "net.CIDR" => Type::Opaque(name, Arc::new([])),
        _ => Type::Struct(name),
    }
}

/// The type named by an identifier, if any: `int`, `net.IP`, …
///
/// Some names are known to the checker but not to the evaluator: using them is an error when the program is made.
pub(crate) fn named_type(name: &str, version: KubernetesVersion) -> Option<Type> {
    let parameter = |name| if is_1_37(version) { Type::Dyn } else { Type::Parameter(Parameter::Named(name)) };
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "duration" | "google.protobuf.Duration" => Type::Duration,
        "int" => Type::Int,
        "list" => Type::list(parameter('A')),
        "map" => Type::map(parameter('A'), parameter('B')),
        "null_type" => Type::Null,
        "string" => Type::String,
        "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
        "type" => Type::Meta(None),
        "uint" => Type::Uint,
        "net.IP" => Type::Opaque("net.IP", Arc::new([])),
        "net.CIDR" => Type::Opaque("net.CIDR", Arc::new([])),
        OPTIONAL if is_1_37(version) => Type::optional(Type::Dyn),
        OPTIONAL => Type::Opaque(OPTIONAL, Arc::new([])),
        super::types::DEVICE => Type::Struct(super::types::DEVICE),
        name => return messages::message(name).map(Message::result),
    })
}

/// Whether the evaluator has a value for this type name.
pub(crate) fn is_runtime_type(name: &str) -> bool {
    match name {
        "duration" | "timestamp" | super::types::DEVICE => false,
        "google.protobuf.Duration" | "google.protobuf.Timestamp" | messages::EMPTY => true,
        name => !name.starts_with('.') && messages::message(name).is_none(),
    }
}
