//! Errors of converting a value to one of Go's types: the texts of cel-go's `ConvertToNative`.

use super::value::Value;

/// The reason why the value cannot be converted to `wanted`, a type as printed by Go.
pub(crate) fn refusal(value: &Value<'_>, wanted: &str) -> String {
    let name = match value {
        Value::Int(_) | Value::Uint(_) => {
            return format!("unsupported type conversion from '{}' to {wanted}", value.type_name());
        }
        Value::String(_) => return format!("unsupported native conversion from string to '{wanted}'"),
        Value::Type(_) => return "type conversion not supported for 'type'".to_owned(),
        Value::Optional(_) => return "optional.none() dereference".to_owned(),
        Value::Bool(_) => "bool",
        Value::Double(_) => "Double",
        Value::Bytes(_) => "Bytes",
        Value::Null => "'null_type'",
        Value::Duration(_) => "'Duration'",
        Value::Timestamp(_) => "'Timestamp'",
        Value::Quantity { .. } => "'Quantity'",
        Value::Version(_) => "'Semver'",
        Value::Ip(_) => "'IP'",
        Value::Cidr { .. } => "'CIDR'",
        Value::Url(_) => "'URL'",
        Value::Format(_) => "'Format'",
        Value::Empty => "'*dynamicpb.Message'",
        other => other.type_name(),
    };
    format!("type conversion error from {name} to '{wanted}'")
}
