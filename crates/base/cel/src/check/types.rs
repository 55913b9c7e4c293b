//! The static types of CEL.

use std::fmt;
use std::sync::Arc;

/// A type parameter: of a declaration (`<A>`), or a variable to be solved by the checker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Parameter {
    Named(char),
    Variable(u32),
}

/// A static type. Types are equal as by cel-go's `IsExactType`, which ignores whether a primitive may be null.
#[derive(Debug, Clone)]
pub(crate) enum Type {
    Any,
    Bool,
    Bytes,
    Double,
    Duration,
    Dyn,
    /// The type of an expression with an error; assignable to everything, so one mistake is reported once.
    Error,
    Int,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Null,
    Opaque(&'static str, Arc<[Type]>),
    Parameter(Parameter),
    String,
    Struct(&'static str),
    Timestamp,
    /// The type of a type.
    Meta(Option<Arc<Type>>),
    Uint,
    /// A primitive type or null: the type of protobuf's wrapper messages.
    Wrapper(Arc<Type>),
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self.unwrapped(), other.unwrapped()) {
            (Type::List(one), Type::List(two)) => one == two,
            (Type::Map(one), Type::Map(two)) => one == two,
            (Type::Opaque(one, ones), Type::Opaque(two, twos)) => one == two && ones == twos,
            (Type::Parameter(one), Type::Parameter(two)) => one == two,
            (Type::Struct(one), Type::Struct(two)) => one == two,
            (Type::Meta(one), Type::Meta(two)) => one == two,
            (one, two) => std::mem::discriminant(one) == std::mem::discriminant(two),
        }
    }
}

/// Name of the opaque type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";
/// Name of the type of the variable `device`.
pub(crate) const DEVICE: &str = "kubernetes.DRADevice";
pub(crate) const QUANTITY: &str = "kubernetes.Quantity";

impl Type {
    pub(crate) fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    pub(crate) fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(of: Type) -> Type {
        Type::Opaque(OPTIONAL, Arc::new([of]))
    }

    /// The type itself; for a wrapper, its primitive.
    pub(crate) fn unwrapped(&self) -> &Type {
        match self {
            Type::Wrapper(of) => of,
            other => other,
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Error)
    }

    /// The type inside an optional, and whether the type was an optional.
    pub(crate) fn unwrap_optional(&self) -> (Type, bool) {
        match self {
            Type::Opaque(OPTIONAL, parameters) => (parameters[0].clone(), true),
            other => (other.clone(), false),
        }
    }

    pub(crate) fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::List(element) => vec![element],
            Type::Map(pair) => vec![&pair.0, &pair.1],
            Type::Opaque(_, parameters) => parameters.iter().collect(),
            Type::Meta(Some(of)) => vec![of],
            _ => Vec::new(),
        }
    }

    /// The runtime name.
    pub(crate) fn name(&self) -> String {
        match self {
            Type::Any => "google.protobuf.Any".to_owned(),
            Type::Bool => "bool".to_owned(),
            Type::Bytes => "bytes".to_owned(),
            Type::Double => "double".to_owned(),
            Type::Duration => "google.protobuf.Duration".to_owned(),
            Type::Dyn => "dyn".to_owned(),
            Type::Error => "error".to_owned(),
            Type::Int => "int".to_owned(),
            Type::List(_) => "list".to_owned(),
            Type::Map(_) => "map".to_owned(),
            Type::Null => "null_type".to_owned(),
            Type::Opaque(name, _) | Type::Struct(name) => (*name).to_owned(),
            Type::Parameter(Parameter::Named(name)) => name.to_string(),
            Type::Parameter(Parameter::Variable(number)) => format!("_var{number}"),
            Type::String => "string".to_owned(),
            Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Type::Meta(_) => "type".to_owned(),
            Type::Uint => "uint".to_owned(),
            Type::Wrapper(of) => of.name(),
        }
    }

    /// The type in the spelling of the checker's messages.
    pub(crate) fn in_messages(&self) -> String {
        match self {
            Type::Any => "any".to_owned(),
            Type::Duration => "duration".to_owned(),
            Type::Timestamp => "timestamp".to_owned(),
            Type::Error => "!error!".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Wrapper(of) => format!("wrapper({})", of.in_messages()),
            other => {
                let parameters: Vec<String> =
                    other.parameters().iter().map(|part| part.in_messages()).collect();
                if parameters.is_empty() {
                    other.name()
                } else {
                    format!("{}({})", other.name(), parameters.join(", "))
                }
            }
        }
    }

    /// Whether the type has more than `limit` parts.
    pub(crate) fn is_larger_than(&self, limit: usize) -> bool {
        let mut seen = 0;
        let mut open = vec![self];
        while let Some(part) = open.pop() {
            seen += 1;
            if seen > limit {
                return true;
            }
            open.extend(part.parameters());
        }
        false
    }

    /// Equal except for the names of type parameters.
    pub(crate) fn is_equivalent(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Parameter(_), Type::Parameter(_)) => true,
            (Type::List(one), Type::List(two)) => one.is_equivalent(two),
            (Type::Map(one), Type::Map(two)) => one.0.is_equivalent(&two.0) && one.1.is_equivalent(&two.1),
            (Type::Opaque(one, ones), Type::Opaque(two, twos)) => {
                one == two
                    && ones.len() == twos.len()
                    && ones.iter().zip(twos.iter()).all(|(a, b)| a.is_equivalent(b))
            }
            (Type::Meta(Some(one)), Type::Meta(Some(two))) => one.is_equivalent(two),
            (one, two) => one == two,
        }
    }
}

impl fmt::Display for Type {
    /// As upstream prints an expression's output type.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = self.parameters();
        if let Type::Parameter(_) = self {
            return write!(formatter, "<{}>", self.name());
        }
        if let Type::Wrapper(of) = self {
            return write!(formatter, "wrapper({of})");
        }
        formatter.write_str(&self.name())?;
        for (index, parameter) in parameters.iter().enumerate() {
            write!(formatter, "{}{parameter}", if index == 0 { "(" } else { ", " })?;
        }
        if parameters.is_empty() { Ok(()) } else { formatter.write_str(")") }
    }
}
