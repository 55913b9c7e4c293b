//! Implementations of the environment's functions.

pub(crate) mod arithmetic;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod kubernetes;
pub(crate) mod lists;
pub(crate) mod named_format;
pub(crate) mod network;
pub(crate) mod optional;
pub(crate) mod pattern;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use crate::evaluate::machine::{Machine, Stop};
use crate::evaluate::program::Implementation;
use crate::evaluate::value::Value;
use crate::syntax::ast::operators;

/// Result of an implementation.
pub(crate) type Answer<'v> = Result<Value<'v>, Stop>;

/// An error value.
pub(crate) fn fail<'v>(message: impl Into<std::sync::Arc<str>>) -> Answer<'v> {
    Ok(Value::Error(message.into()))
}

/// The error of an argument of the wrong type.
pub(crate) fn mismatch<'v>() -> Answer<'v> {
    fail("no such overload")
}

/// Functions with one implementation for all their overloads.
pub(crate) fn direct(function: &str) -> Option<Implementation> {
    Some(match function {
        operators::ADD => arithmetic::add,
        operators::SUBTRACT => arithmetic::subtract,
        operators::MULTIPLY => arithmetic::multiply,
        operators::DIVIDE => arithmetic::divide,
        operators::MODULO => arithmetic::modulo,
        operators::NEGATE => arithmetic::negate,
        operators::IN => arithmetic::contains,
        "size" => arithmetic::size,
        "type" => convert::type_of,
        "dyn" => convert::identity,
        "matches" => pattern::matches,
        "sort" => lists::sort,
        operators::SORT_BY_KEYS => lists::sort_by_keys,
        // These have one overload and check their arguments themselves.
        "contains" => strings::contains,
        "startsWith" => strings::starts_with,
        "endsWith" => strings::ends_with,
        _ => return None,
    })
}

/// The implementation of an overload; `None` for overloads declared but never callable, such as those of the
/// authorizer, missing in all selectors.
pub(crate) fn overload(id: &str) -> Option<Implementation> {
    Some(match id {
        "bool_to_bool"
        | "bytes_to_bytes"
        | "double_to_double"
        | "duration_to_duration"
        | "int64_to_int64"
        | "string_to_string"
        | "timestamp_to_timestamp"
        | "uint64_to_uint64" => convert::identity,
        "string_to_bool" => convert::to_bool,
        "string_to_bytes" => convert::to_bytes,
        "int64_to_double" | "string_to_double" | "uint64_to_double" => convert::to_double,
        "int64_to_duration" | "string_to_duration" => convert::to_duration,
        "double_to_int64" | "duration_to_int64" | "string_to_int64" | "timestamp_to_int64"
        | "uint64_to_int64" => convert::to_int,
        "bool_to_string"
        | "bytes_to_string"
        | "double_to_string"
        | "duration_to_string"
        | "int64_to_string"
        | "timestamp_to_string"
        | "uint64_to_string"
        | "ip_to_string"
        | "cidr_to_string" => convert::to_string,
        "int64_to_timestamp" | "string_to_timestamp" => convert::to_timestamp,
        "double_to_uint64" | "int64_to_uint64" | "string_to_uint64" => convert::to_uint,

        "@mapInsert_map_key_value" => lists::map_insert,
        "@mapInsert_map_map" => lists::map_insert_all,
        "dra_includes_dyn_dyn" | "list_includes_dyn_dyn" => lists::includes,
        "list_a_index_of_int" => lists::index_of,
        "list_a_last_index_of_int" => lists::last_index_of,
        "list_distinct" => lists::distinct,
        "list_first" => lists::first,
        "list_last" => lists::last,
        "list_flatten" | "list_flatten_int" => lists::flatten,
        "list_join" | "list_join_string" => strings::join,
        "list_reverse" => lists::reverse,
        "list_sets_contains_list" => lists::sets_contains,
        "list_sets_equivalent_list" => lists::sets_equivalent,
        "list_sets_intersects_list" => lists::sets_intersects,
        "list_slice" => lists::slice,
        "lists_range" => lists::range,
        sorted if sorted.starts_with("list_") && sorted.ends_with("_is_sorted_bool") => lists::is_sorted,
        maximum if maximum.starts_with("list_") && maximum.contains("_max_") => lists::max,
        minimum if minimum.starts_with("list_") && minimum.contains("_min_") => lists::min,
        "list_int_sum_int" => lists::sum_ints,
        "list_uint_sum_uint" => lists::sum_uints,
        "list_double_sum_double" => lists::sum_doubles,
        "list_duration_sum_duration" => lists::sum_durations,

        "string_char_at_int" => strings::char_at,
        "string_format" => format::format,
        "string_index_of_string" | "string_index_of_string_int" => strings::index_of,
        "string_last_index_of_string" | "string_last_index_of_string_int" => strings::last_index_of,
        "string_lower_ascii" => strings::lower_ascii,
        "string_upper_ascii" => strings::upper_ascii,
        "string_replace_string_string" | "string_replace_string_string_int" => strings::replace,
        "string_split_string" | "string_split_string_int" => strings::split,
        "string_substring_int" | "string_substring_int_int" => strings::substring,
        "string_trim" => strings::trim,
        "strings_quote" => strings::quote,
        "string_find_string" => pattern::find_dynamic,
        "string_find_all_string" | "string_find_all_string_int" => pattern::find_all_dynamic,

        "optional_of" => optional::of,
        "optional_ofNonZeroValue" => optional::of_non_zero,
        "optional_none" => optional::none,
        "optional_value" => optional::value,
        "optional_hasValue" => optional::has_value,
        "optional_unwrap" | "optional_unwrapOpt" => optional::unwrap,

        "string_to_quantity" => kubernetes::quantity,
        "is_quantity_string" => kubernetes::is_quantity,
        "quantity_sign" => kubernetes::quantity_sign,
        "quantity_is_greater_than" => kubernetes::quantity_is_greater,
        "quantity_is_less_than" => kubernetes::quantity_is_less,
        "quantity_compare_to" => kubernetes::quantity_compare,
        "quantity_get_float" => kubernetes::quantity_float,
        "quantity_get_int" => kubernetes::quantity_integer,
        "quantity_is_integer" => kubernetes::quantity_is_integer,
        "quantity_add" | "quantity_add_int" => kubernetes::quantity_add,
        "quantity_sub" | "quantity_sub_int" => kubernetes::quantity_sub,
        "string_to_semver" | "string_bool_to_semver" => kubernetes::semver,
        "is_semver_string" | "is_semver_string_bool" => kubernetes::is_semver,
        "semver_is_greater_than" => kubernetes::semver_is_greater,
        "semver_is_less_than" => kubernetes::semver_is_less,
        "semver_compare_to" => kubernetes::semver_compare,
        "semver_major" => kubernetes::semver_major,
        "semver_minor" => kubernetes::semver_minor,
        "semver_patch" => kubernetes::semver_patch,

        "string_to_ip" => network::ip,
        "is_ip" => network::is_ip,
        "ip_is_canonical" => network::is_canonical,
        "ip_family" => network::family,
        "ip_is_unspecified" => network::is_unspecified,
        "ip_is_loopback" => network::is_loopback,
        "ip_is_link_local_multicast" => network::is_link_local_multicast,
        "ip_is_link_local_unicast" => network::is_link_local_unicast,
        "ip_is_global_unicast" => network::is_global_unicast,
        "string_to_cidr" => network::cidr,
        "is_cidr" => network::is_cidr,
        "cidr_ip" => network::cidr_ip,
        "cidr_prefix_length" => network::prefix_length,
        "cidr_masked" => network::masked,
        "cidr_contains_ip_string" | "cidr_contains_ip_ip" => network::contains_ip,
        "cidr_contains_cidr_string" | "cidr_contains_cidr" => network::contains_cidr,

        "string_to_url" => url::url,
        "is_url_string" => url::is_url,
        "url_get_scheme" => url::scheme,
        "url_get_host" => url::host,
        "url_get_hostname" => url::hostname,
        "url_get_port" => url::port,
        "url_get_escaped_path" => url::escaped_path,
        "url_get_query" => url::query,

        "format-named" => named_format::named,
        "format-validate" => named_format::validate,
        "format.dns1123Label" => named_format::get::<0>,
        "format.dns1123Subdomain" => named_format::get::<1>,
        "format.dns1035Label" => named_format::get::<2>,
        "format.qualifiedName" => named_format::get::<3>,
        "format.dns1123LabelPrefix" => named_format::get::<4>,
        "format.dns1123SubdomainPrefix" => named_format::get::<5>,
        "format.dns1035LabelPrefix" => named_format::get::<6>,
        "format.labelValue" => named_format::get::<7>,
        "format.uri" => named_format::get::<8>,
        "format.uuid" => named_format::get::<9>,
        "format.byte" => named_format::get::<10>,
        "format.date" => named_format::get::<11>,
        "format.datetime" => named_format::get::<12>,

        other => return time::overload(other),
    })
}

/// Declared for an object missing in selectors: calls always fail.
pub(crate) fn unreachable<'v>(_: &mut Machine<'v>, _: &[Value<'v>]) -> Answer<'v> {
    mismatch()
}
