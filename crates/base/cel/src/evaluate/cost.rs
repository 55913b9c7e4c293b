//! The cost of calls, counted like cel-go and the estimator of k8s.io/apiserver.

use tessera_api::kubernetes::KubernetesVersion;

use super::list::List;
use super::machine::Machine;
use super::qualify;
use super::value::Value;
use crate::environment::is_1_37;

/// How the cost of a call depends on its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CostRule {
    Fixed(u64),
    /// A tenth of the first argument's size, rounded up.
    TraverseFirst,
    /// A tenth of the second argument's size, rounded up.
    TraverseSecond,
    /// A fifth of the first argument's size.
    TraverseFirstTwice,
    /// A fifth of the result's size.
    TraverseResultTwice,
    /// The first argument's size times the pattern's.
    Pattern,
    /// Every element of the first argument, strings by their bytes.
    TraverseElements,
    /// `==`
    Equals,
    /// A tenth of the smaller argument's size.
    TraverseSmaller,
    /// A tenth of both sizes.
    TraverseBoth,
    /// The second argument's size.
    SizeOfSecond,
    /// A tenth of one size times a tenth of the other.
    Contains,
    ContainsIp {
        parse: bool,
    },
    ContainsCidr {
        parse: bool,
    },
    Validate,
    FieldSelector,
    /// The result's size and a new list.
    NewList,
    Flatten,
    /// Every pair of elements of the argument with this index.
    SelfCompare(u8),
    /// Every pair of elements of both arguments, this many times.
    Sets(u64),
}

/// The rule of a function; `overload` is its overload if the checker found exactly one.
pub(crate) fn rule(function: &str, overload: Option<&str>, version: KubernetesVersion) -> CostRule {
    if let Some(rule) = overload.and_then(overload_rule) {
        return rule;
    }
    match function {
        "includes" if is_1_37(version) => CostRule::TraverseElements,
        "check" => CostRule::Fixed(350_000),
        "fieldSelector" | "labelSelector" => CostRule::FieldSelector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => CostRule::TraverseElements,
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR"
        | "quantity" | "isQuantity" | "semver" | "isSemver" => CostRule::TraverseFirst,
        "ip" if overload == Some("cidr_ip") => CostRule::Fixed(1),
        "ip" => CostRule::TraverseFirst,
        "replace" | "split" | "ip.isCanonical" => CostRule::TraverseFirstTwice,
        "join" => CostRule::TraverseResultTwice,
        "find" | "findAll" => CostRule::Pattern,
        "containsIP" => CostRule::ContainsIp { parse: overload == Some("cidr_contains_ip_string") },
        "containsCIDR" => CostRule::ContainsCidr { parse: overload == Some("cidr_contains_cidr_string") },
        "validate" => CostRule::Validate,
        _ => default_rule(overload, version),
    }
}

/// Rules assigned to an overload by libraries.
fn overload_rule(overload: &str) -> Option<CostRule> {
    Some(match overload {
        "list_slice" | "lists_range" | "list_reverse" => CostRule::NewList,
        "list_flatten" | "list_flatten_int" => CostRule::Flatten,
        "list_distinct" => CostRule::SelfCompare(0),
        "list_sets_contains_list" | "list_sets_intersects_list" => CostRule::Sets(1),
        "list_sets_equivalent_list" => CostRule::Sets(2),
        other if other.ends_with("_sortByAssociatedKeys") => CostRule::SelfCompare(1),
        other if other.starts_with("list_") && other.ends_with("_sort") => CostRule::SelfCompare(0),
        _ => return None,
    })
}

fn default_rule(overload: Option<&str>, version: KubernetesVersion) -> CostRule {
    match overload {
        Some("starts_with_string" | "ends_with_string") if is_1_37(version) => CostRule::TraverseSecond,
        Some("matches") if is_1_37(version) => CostRule::Pattern,
        Some(
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format",
        ) => CostRule::TraverseFirst,
        Some("in_list") => CostRule::SizeOfSecond,
        Some(
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "not_equals",
        ) => CostRule::TraverseSmaller,
        Some("equals") => CostRule::Equals,
        Some("add_string" | "add_bytes") => CostRule::TraverseBoth,
        Some("matches_string") => CostRule::Pattern,
        Some("contains_string") => CostRule::Contains,
        _ => CostRule::Fixed(1),
    }
}

fn tenth(size: u64) -> u64 {
    (size as f64 * 0.1).ceil() as u64
}

/// Cost of comparing two texts for equality.
pub(crate) fn of_equal_texts(one: &str, two: &str) -> u64 {
    tenth(characters(one).min(characters(two)))
}

fn fifth(size: u64) -> u64 {
    (size as f64 * 2.0 * 0.1).ceil() as u64
}

/// Number of characters: bytes other than continuation bytes.
fn characters(text: &str) -> u64 {
    text.as_bytes().iter().map(|byte| u64::from(byte & 0xc0 != 0x80)).sum()
}

/// The size of a value; 1 without a size.
pub(crate) fn size<'v>(machine: &Machine<'v>, value: &Value<'v>) -> u64 {
    match value {
        Value::String(text) => characters(text),
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::List(list) => list.len(),
        Value::Growing(number) => machine.growing(*number).len() as u64,
        Value::Map(_)
        | Value::Device
        | Value::Domains { .. }
        | Value::Domain { .. }
        | Value::GrowingMap(_) => qualify::map_len(machine, value),
        Value::Ip(address) => {
            if address.is_ipv4() {
                4
            } else {
                16
            }
        }
        Value::Cidr { length, .. } => u64::from(length.div_ceil(8)),
        _ => 1,
    }
}

/// Like [`size`], also inside optionals.
fn deep_size<'v>(machine: &Machine<'v>, value: &Value<'v>) -> u64 {
    let mut value = value;
    while let Value::Optional(Some(inner)) = value {
        value = inner;
    }
    size(machine, value)
}

/// The cost of a call. `result` is known only where needed by the rule: all other costs are counted before the call, so
/// a call beyond the limit is not made.
pub(crate) fn cost<'v>(
    machine: &Machine<'v>,
    rule: CostRule,
    arguments: &[Value<'v>],
    result: Option<&Value<'v>>,
) -> Result<u64, String> {
    let first = || arguments.first().map_or(1, |value| size(machine, value));
    let second = || arguments.get(1).map_or(1, |value| size(machine, value));
    Ok(match rule {
        CostRule::Fixed(cost) => cost,
        CostRule::TraverseFirst => tenth(arguments.first().map_or(1, |value| deep_size(machine, value))),
        CostRule::TraverseSecond => tenth(arguments.get(1).map_or(1, |value| deep_size(machine, value))),
        CostRule::TraverseFirstTwice => fifth(first()),
        CostRule::TraverseResultTwice => fifth(result.map_or(1, |value| size(machine, value))),
        CostRule::Pattern => {
            let text = ((1.0 + first() as f64) * 0.1).ceil() as u64;
            text.saturating_mul((second() as f64 * 0.25).ceil() as u64)
        }
        CostRule::TraverseElements => {
            let limit = machine.limit().saturating_add(1);
            arguments.first().map_or(1, |value| traverse(machine, value, limit))
        }
        CostRule::Equals => match arguments.first() {
            Some(
                Value::Quantity { .. }
                | Value::Ip(_)
                | Value::Cidr { .. }
                | Value::Format(_)
                | Value::Url(_)
                | Value::Version(_),
            ) => 1,
            _ => smaller(machine, arguments),
        },
        CostRule::TraverseSmaller => smaller(machine, arguments),
        CostRule::TraverseBoth => {
            let sum = arguments.iter().map(|value| deep_size(machine, value)).fold(0, u64::saturating_add);
            tenth(sum)
        }
        CostRule::SizeOfSecond => arguments.get(1).map_or(1, |value| deep_size(machine, value)),
        CostRule::Contains => tenth(first()).saturating_mul(tenth(second())),
        CostRule::ContainsIp { parse } => fraction(first() * 2) + if parse { tenth(second()) } else { 0 },
        CostRule::ContainsCidr { parse } => {
            let compare = fraction(first() * 2) + tenth(first()) + 1;
            compare + if parse { tenth(second()) } else { 0 }
        }
        CostRule::Validate => match arguments.first() {
            Some(Value::Format(format)) => {
                let text = ((1.0 + second() as f64) * 0.1).ceil() as u64;
                text.saturating_mul((format.regex_size as f64 * 0.25).ceil() as u64)
            }
            _ => 1,
        },
        CostRule::FieldSelector => {
            let length = second();
            10 + tenth(length) + 50 * (length as f64 * 0.5).ceil() as u64
        }
        CostRule::NewList => result.map_or(1, |value| size(machine, value)).saturating_add(11),
        CostRule::Flatten => {
            let depth = match arguments.get(1) {
                None => 1.0,
                Some(Value::Int(depth)) => *depth as f64,
                Some(other) => return Err(conversion_panic(other, "types.Int")),
            };
            if machine.is_1_37() {
                let factor = if depth < 0.0 { 1.0 } else { depth };
                return Ok(unsigned(first() as f64 * factor).saturating_add(11));
            }
            unsigned(first() as f64 * depth).wrapping_add(11)
        }
        CostRule::SelfCompare(index) => {
            let Some(value) = arguments.get(usize::from(index)) else { return Ok(1) };
            self_compare(machine, value)?
        }
        CostRule::Sets(factor) => first().saturating_mul(second()).saturating_mul(factor).saturating_add(1),
    })
}

/// As Go converts a float to an unsigned number: a negative one wraps around to a refund.
fn unsigned(value: f64) -> u64 {
    const BEYOND: f64 = 18_446_744_073_709_551_616.0;
    if value < 0.0 {
        value as i64 as u64
    } else if value < BEYOND {
        value as u64
    } else {
        1 << 63
    }
}

/// A tenth rounded up.
fn fraction(size: u64) -> u64 {
    tenth(size)
}

fn smaller<'v>(machine: &Machine<'v>, arguments: &[Value<'v>]) -> u64 {
    tenth(arguments.iter().map(|value| deep_size(machine, value)).min().unwrap_or(1))
}

fn conversion_panic(value: &Value<'_>, wanted: &str) -> String {
    format!("interface conversion: ref.Val is {}, not {wanted}", value.go_type())
}

fn self_compare<'v>(machine: &Machine<'v>, value: &Value<'v>) -> Result<u64, String> {
    let (length, has_text) = match value {
        Value::List(list) => (list.len(), matches!(list.get(0), Some(Value::String(_) | Value::Bytes(_)))),
        Value::Growing(number) => {
            let items = machine.growing(*number);
            (items.len() as u64, matches!(items.first(), Some(Value::String(_) | Value::Bytes(_))))
        }
        other => {
            let has_add = matches!(
                other,
                Value::Int(_)
                    | Value::Uint(_)
                    | Value::Double(_)
                    | Value::String(_)
                    | Value::Bytes(_)
                    | Value::Duration(_)
                    | Value::Timestamp(_)
            );
            return Err(format!(
                "interface conversion: {} is not traits.Lister: missing method {}",
                other.go_type(),
                if has_add { "Contains" } else { "Add" }
            ));
        }
    };
    let factor = if has_text { 2.1 } else { 2.0 };
    Ok(((length.saturating_mul(length)) as f64 * factor).min(1e18) as u64 + 11)
}

/// Cost of traversing a value once; stops counting at `limit`, and when the comparison budget is used up.
fn traverse<'v>(machine: &Machine<'v>, value: &Value<'v>, limit: u64) -> u64 {
    let list_cost = |list: &List<'v>| {
        let mut cost = 0u64;
        for item in list.iter() {
            cost = cost.saturating_add(traverse(machine, item, limit));
            if cost > limit {
                break;
            }
        }
        cost
    };
    if machine.count_comparison().is_err() {
        return u64::MAX;
    }
    match value {
        Value::String(text) => (text.len() as f64 * 0.1) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * 0.1) as u64,
        Value::List(list) => list_cost(list),
        Value::Growing(number) => list_cost(&List::from(machine.growing(*number).to_vec())),
        Value::Map(_)
        | Value::Device
        | Value::Domains { .. }
        | Value::Domain { .. }
        | Value::GrowingMap(_) => qualify::map_entries(machine, value)
            .iter()
            .map(|(key, value)| traverse(machine, key, limit).saturating_add(traverse(machine, value, limit)))
            .fold(0, u64::saturating_add),
        _ => 1,
    }
}
