//! Runtime values. They borrow from the device and the program where they can.

use std::net::IpAddr;
use std::sync::Arc;

use super::list::List;
use super::map::Map;
use tessera_api::Quantity;

use crate::check::messages::EMPTY;
use crate::check::types::Type;
use crate::device::AttributeValue;
use crate::values::named_format::NamedFormat;
use crate::values::time::Timestamp;
use crate::values::url::Url;
use crate::version::Version;

/// Either borrowed or shared.
#[derive(Debug)]
pub(crate) enum Ref<'v, T: ?Sized> {
    Borrowed(&'v T),
    Shared(Arc<T>),
}

impl<T: ?Sized> Clone for Ref<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Ref::Borrowed(value) => Ref::Borrowed(value),
            Ref::Shared(value) => Ref::Shared(Arc::clone(value)),
        }
    }
}

impl<T: ?Sized> std::ops::Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Ref::Borrowed(value) => value,
            Ref::Shared(value) => value,
        }
    }
}

/// One of the two maps of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Attributes,
    Capacity,
}

/// A value, or an error in its place.
#[derive(Debug, Clone)]
pub(crate) enum Value<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Ref<'v, str>),
    Bytes(Ref<'v, [u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(List<'v>),
    Map(Arc<Map<'v>>),
    /// A type, by its runtime name.
    Type(&'static str),
    Optional(Option<Arc<Value<'v>>>),
    /// `result_of_sum`: upstream's `add` and `sub` return a pointer, unequal to everything as a right operand.
    Quantity {
        value: Ref<'v, Quantity>,
        result_of_sum: bool,
    },
    Version(Ref<'v, Version>),
    Ip(IpAddr),
    Cidr {
        address: IpAddr,
        length: u8,
    },
    Url(Arc<Url>),
    Format(&'static NamedFormat),
    /// The variable `device`.
    Device,
    /// `device.attributes` or `device.capacity`. `has_default`: an unknown domain is an empty map.
    Domains {
        side: Side,
        has_default: bool,
    },
    /// The entries of a device in one domain.
    Domain {
        side: Side,
        domain: Ref<'v, str>,
    },
    /// `google.protobuf.Empty{}`, the only message without a CEL type of its own.
    Empty,
    /// A list or map being built by a comprehension, by its index in the machine.
    Growing(u32),
    GrowingMap(u32),
    Error(Arc<str>),
}

impl<'v> Value<'v> {
    pub(crate) fn shared_string(text: impl Into<Arc<str>>) -> Self {
        Value::String(Ref::Shared(text.into()))
    }

    pub(crate) fn quantity(value: Quantity) -> Self {
        Value::Quantity { value: Ref::Shared(Arc::new(value)), result_of_sum: false }
    }

    pub(crate) fn error(message: impl Into<Arc<str>>) -> Self {
        Value::Error(message.into())
    }

    pub(crate) fn list(items: Vec<Value<'v>>) -> Self {
        Value::List(List::from(items))
    }

    pub(crate) fn some(value: Value<'v>) -> Self {
        Value::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }

    /// A view of `self` without allocation, for a program's constants.
    pub(crate) fn borrowed<'a>(&'a self) -> Value<'a> {
        match self {
            Value::String(text) => Value::String(Ref::Borrowed(text)),
            Value::Bytes(bytes) => Value::Bytes(Ref::Borrowed(bytes)),
            Value::Quantity { value, result_of_sum } => {
                Value::Quantity { value: Ref::Borrowed(value), result_of_sum: *result_of_sum }
            }
            Value::Version(version) => Value::Version(Ref::Borrowed(version)),
            other => other.clone(),
        }
    }

    pub(crate) fn from_attribute(attribute: AttributeValue<'v>) -> Self {
        match attribute {
            AttributeValue::Int(value) => Value::Int(value),
            AttributeValue::Bool(value) => Value::Bool(value),
            AttributeValue::String(value) => Value::String(Ref::Borrowed(value)),
            AttributeValue::Version(value) => Value::Version(Ref::Borrowed(value)),
            AttributeValue::Ints(values) => {
                Value::list(values.iter().map(|value| Value::Int(*value)).collect())
            }
            AttributeValue::Bools(values) => {
                Value::list(values.iter().map(|value| Value::Bool(*value)).collect())
            }
            AttributeValue::Strings(values) => {
                Value::list(values.iter().map(|value| Value::String(Ref::Borrowed(value))).collect())
            }
            AttributeValue::Versions(values) => {
                Value::list(values.iter().map(|value| Value::Version(Ref::Borrowed(value))).collect())
            }
        }
    }

    /// Name of the value's type, as compared by `type(value)` and shown in messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::List(_) | Value::Growing(_) => "list",
            Value::Map(_)
            | Value::Device
            | Value::Domains { .. }
            | Value::Domain { .. }
            | Value::GrowingMap(_) => "map",
            Value::Type(_) => "type",
            Value::Optional(_) => "optional_type",
            Value::Quantity { .. } => "kubernetes.Quantity",
            Value::Version(_) => "kubernetes.Semver",
            Value::Ip(_) => "net.IP",
            Value::Cidr { .. } => "net.CIDR",
            Value::Url(_) => "kubernetes.URL",
            Value::Format(_) => "kubernetes.NamedFormat",
            Value::Empty => EMPTY,
            Value::Error(_) => "error",
        }
    }

    /// Name of upstream's Go type for the value, shown in some of its messages.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Value::Null => "types.Null",
            Value::Bool(_) => "types.Bool",
            Value::Int(_) => "types.Int",
            Value::Uint(_) => "types.Uint",
            Value::Double(_) => "types.Double",
            Value::String(_) => "types.String",
            Value::Bytes(_) => "types.Bytes",
            Value::Duration(_) => "types.Duration",
            Value::Timestamp(_) => "types.Timestamp",
            Value::List(_) | Value::Growing(_) => "*types.baseList",
            Value::Map(_)
            | Value::Device
            | Value::Domains { .. }
            | Value::Domain { .. }
            | Value::GrowingMap(_) => "*types.baseMap",
            Value::Type(_) => "*types.Type",
            Value::Optional(_) => "*types.Optional",
            Value::Quantity { result_of_sum: false, .. } => "cel.Quantity",
            Value::Quantity { .. } => "*cel.Quantity",
            Value::Version(_) => "cel.Semver",
            Value::Ip(_) => "cel.IP",
            Value::Cidr { .. } => "cel.CIDR",
            Value::Url(_) => "cel.URL",
            Value::Format(_) => "cel.Format",
            Value::Empty => "*types.protoObj",
            Value::Error(_) => "*types.Err",
        }
    }
}

/// The runtime name of a static type, for type values.
pub(crate) fn runtime_name(of: &Type) -> &'static str {
    match of {
        Type::Any => "google.protobuf.Any",
        Type::Bool => "bool",
        Type::Bytes => "bytes",
        Type::Double => "double",
        Type::Duration => "google.protobuf.Duration",
        Type::Dyn | Type::Parameter(_) => "dyn",
        Type::Error => "error",
        Type::Int => "int",
        Type::List(_) => "list",
        Type::Map(_) => "map",
        Type::Null => "null_type",
        Type::Opaque(name, _) | Type::Struct(name) => name,
        Type::String => "string",
        Type::Timestamp => "google.protobuf.Timestamp",
        Type::Meta(_) => "type",
        Type::Uint => "uint",
        Type::Wrapper(of) => runtime_name(of),
    }
}
