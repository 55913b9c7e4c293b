//! Protobuf's well-known messages, available in every environment of cel-go: their types and fields.

use std::sync::Arc;

use super::types::Type;

/// The content of a field, by protobuf's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Bool,
    Bytes,
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    String,
    /// `google.protobuf.NullValue`
    Null,
    /// A map of texts to JSON values, or the message around one.
    Struct,
    /// A list of JSON values, or the message around one.
    List,
}

impl FieldKind {
    /// The type accepted by the checker.
    pub(crate) fn wanted(self) -> Type {
        match self {
            FieldKind::Bool => Type::Bool,
            FieldKind::Bytes => Type::Bytes,
            FieldKind::Double | FieldKind::Float => Type::Double,
            FieldKind::Int32 | FieldKind::Int64 | FieldKind::Null => Type::Int,
            FieldKind::Uint32 | FieldKind::Uint64 => Type::Uint,
            FieldKind::String => Type::String,
            FieldKind::Struct => Type::map(Type::String, Type::Dyn),
            FieldKind::List => Type::list(Type::Dyn),
        }
    }
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub name: &'static str,
    pub fields: &'static [(&'static str, FieldKind)],
}

const fn wrapper(name: &'static str, value: &'static [(&'static str, FieldKind)]) -> Message {
    Message { name, fields: value }
}

/// Name of the enumeration value for JSON's null.
pub(crate) const NULL_VALUE: &str = "google.protobuf.NullValue.NULL_VALUE";
pub(crate) const EMPTY: &str = "google.protobuf.Empty";

/// `wellknowntypes.go` of cel-go 0.26 registers these.
static MESSAGES: &[Message] = &[
    wrapper("google.protobuf.BoolValue", &[("value", FieldKind::Bool)]),
    wrapper("google.protobuf.BytesValue", &[("value", FieldKind::Bytes)]),
    wrapper("google.protobuf.DoubleValue", &[("value", FieldKind::Double)]),
    wrapper("google.protobuf.FloatValue", &[("value", FieldKind::Float)]),
    wrapper("google.protobuf.Int32Value", &[("value", FieldKind::Int32)]),
    wrapper("google.protobuf.Int64Value", &[("value", FieldKind::Int64)]),
    wrapper("google.protobuf.StringValue", &[("value", FieldKind::String)]),
    wrapper("google.protobuf.UInt32Value", &[("value", FieldKind::Uint32)]),
    wrapper("google.protobuf.UInt64Value", &[("value", FieldKind::Uint64)]),
    Message {
        name: "google.protobuf.Any",
        fields: &[("type_url", FieldKind::String), ("value", FieldKind::Bytes)],
    },
    Message {
        name: "google.protobuf.Duration",
        fields: &[("seconds", FieldKind::Int64), ("nanos", FieldKind::Int32)],
    },
    Message {
        name: "google.protobuf.Timestamp",
        fields: &[("seconds", FieldKind::Int64), ("nanos", FieldKind::Int32)],
    },
    Message { name: EMPTY, fields: &[] },
    Message { name: "google.protobuf.ListValue", fields: &[("values", FieldKind::List)] },
    Message { name: "google.protobuf.Struct", fields: &[("fields", FieldKind::Struct)] },
    Message {
        name: "google.protobuf.Value",
        fields: &[
            ("null_value", FieldKind::Null),
            ("number_value", FieldKind::Double),
            ("string_value", FieldKind::String),
            ("bool_value", FieldKind::Bool),
            ("struct_value", FieldKind::Struct),
            ("list_value", FieldKind::List),
        ],
    },
];

/// The message of this name.
pub(crate) fn message(name: &str) -> Option<&'static Message> {
    MESSAGES.iter().find(|message| message.name == name)
}

impl Message {
    pub(crate) fn field(&self, name: &str) -> Option<FieldKind> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// The type of its values: CEL uses its own types instead of some messages.
    pub(crate) fn result(&self) -> Type {
        match (self.name, self.fields) {
            ("google.protobuf.Any", _) => Type::Any,
            ("google.protobuf.Duration", _) => Type::Duration,
            ("google.protobuf.Timestamp", _) => Type::Timestamp,
            ("google.protobuf.ListValue", _) => FieldKind::List.wanted(),
            ("google.protobuf.Struct", _) => FieldKind::Struct.wanted(),
            ("google.protobuf.Value", _) => Type::Dyn,
            (_, [(_, kind)]) => Type::Wrapper(Arc::new(kind.wanted())),
            _ => Type::Struct(EMPTY),
        }
    }
}
