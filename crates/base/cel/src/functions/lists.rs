//! Functions of lists and sets.

use std::cmp::Ordering;

use super::arithmetic::{self, is_element};
use super::{Answer, fail, mismatch};
use crate::evaluate::compare::{self, Equality};
use crate::evaluate::list::List;
use crate::evaluate::machine::{Machine, Stop};
use crate::evaluate::qualify;
use crate::evaluate::value::Value;

/// Longest list iterated over by `includes` in Kubernetes 1.36: its ResourceSliceMaxAttributeValuesPerDevice.
const MOST_INCLUDED: u64 = 48;

/// Longest list made by `lists.range` in Kubernetes 1.37: defaultMaxRangeSize of cel-go.
const LONGEST_RANGE: i64 = 1_000_000;

pub(crate) fn map_insert<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [map, key, value] = arguments else { return mismatch() };
    machine.insert(map, key.clone(), value.clone())
}

pub(crate) fn map_insert_all<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [map, added] = arguments else { return mismatch() };
    let mut map = map.clone();
    for (key, value) in qualify::map_entries(machine, added) {
        map = machine.insert(&map, key, value)?;
        if map.is_error() {
            break;
        }
    }
    Ok(map)
}

pub(crate) fn includes<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [target, wanted] = arguments else { return mismatch() };
    if !matches!(target, Value::List(_) | Value::Growing(_)) {
        return Ok(Value::Bool(compare::equals(machine, target, wanted)? == Equality::Equal));
    }
    let list = machine.as_list(target);
    for (index, element) in list.iter().enumerate() {
        if index as u64 >= MOST_INCLUDED && !machine.is_1_37() {
            return fail(format!(
                "'includes' function cannot be applied to lists longer than {MOST_INCLUDED} values"
            ));
        }
        if compare::equals(machine, element, wanted)? == Equality::Equal {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn position<'v>(machine: &Machine<'v>, arguments: &[Value<'v>], last: bool) -> Answer<'v> {
    let [list, wanted] = arguments else { return mismatch() };
    let list = machine.as_list(list);
    let mut found = -1;
    for (index, element) in list.iter().enumerate() {
        if compare::equals(machine, element, wanted)? == Equality::Equal {
            found = index as i64;
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

pub(crate) fn index_of<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    position(machine, arguments, false)
}

pub(crate) fn last_index_of<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    position(machine, arguments, true)
}

pub(crate) fn distinct<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let list = machine.as_list(&arguments[0]);
    machine.allocate_elements(list.len())?;
    let mut kept: Vec<Value<'v>> = Vec::new();
    for element in list.iter() {
        let mut seen = false;
        for other in &kept {
            if compare::equals(machine, element, other)? == Equality::Equal {
                seen = true;
                break;
            }
        }
        if !seen {
            kept.push(element.clone());
        }
    }
    Ok(Value::list(kept))
}

pub(crate) fn first<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let list = machine.as_list(&arguments[0]);
    Ok(list.get(0).map_or(Value::Optional(None), |value| Value::some(value.clone())))
}

pub(crate) fn last<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let list = machine.as_list(&arguments[0]);
    let last = list.len().checked_sub(1).and_then(|index| list.get(index));
    Ok(last.map_or(Value::Optional(None), |value| Value::some(value.clone())))
}

pub(crate) fn flatten<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let depth = match arguments {
        [_] => 1,
        [_, Value::Int(depth)] => *depth,
        _ => return mismatch(),
    };
    if !matches!(arguments[0], Value::List(_) | Value::Growing(_)) {
        let shown: Vec<&str> = arguments[1..].iter().map(Value::type_name).collect();
        return fail(format!("no such overload: {}.flatten({})", arguments[0].type_name(), shown.join(", ")));
    }
    if depth < 0 {
        return fail("level must be non-negative");
    }
    let mut items = Vec::new();
    // Lists in traversal, with the next index and the remaining depth.
    let mut open = vec![(machine.as_list(&arguments[0]), 0u64, depth)];
    while let Some((list, next, depth)) = open.last_mut() {
        let Some(element) = list.get(*next).cloned() else {
            open.pop();
            continue;
        };
        *next += 1;
        let depth = *depth;
        if depth > 0
            && let Value::List(inner) = &element
        {
            open.push((inner.clone(), 0, depth - 1));
            continue;
        }
        machine.allocate_elements(1)?;
        items.push(element);
    }
    Ok(Value::list(items))
}

pub(crate) fn reverse<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let list = machine.as_list(&arguments[0]);
    refuse_beyond_limit(machine, list.len())?;
    let mut items: Vec<Value<'v>> = list.iter().cloned().collect();
    items.reverse();
    Ok(Value::list(items))
}

/// Refuses to make a list whose cost alone exceeds the limit.
fn refuse_beyond_limit(machine: &mut Machine<'_>, length: u64) -> Result<(), Stop> {
    if length > machine.limit() {
        machine.exceed(length.saturating_add(11));
        return Err(Stop::Cost);
    }
    machine.allocate_elements(length)
}

pub(crate) fn range<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let Value::Int(end) = arguments[0] else { return mismatch() };
    if machine.is_1_37() {
        if end < 0 {
            return fail(format!("lists.range: size must be non-negative, got {end}"));
        }
        if end > LONGEST_RANGE {
            return fail(format!("lists.range: size {end} exceeds maximum allowed ({LONGEST_RANGE})"));
        }
    }
    let end = u64::try_from(end).unwrap_or(0);
    refuse_beyond_limit(machine, end)?;
    Ok(Value::list((0..end as i64).map(Value::Int).collect()))
}

pub(crate) fn slice<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [list, Value::Int(start), Value::Int(end)] = arguments else { return mismatch() };
    let list = machine.as_list(list);
    let length = list.len();
    let (Ok(from), Ok(to)) = (u64::try_from(*start), u64::try_from(*end)) else {
        return fail(format!("cannot slice({start}, {end}), negative indexes not supported"));
    };
    if from > to {
        return fail(format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        ));
    }
    if length < to {
        return fail(format!("cannot slice({start}, {end}), list is length {length}"));
    }
    refuse_beyond_limit(machine, to - from)?;
    Ok(Value::list((from..to).filter_map(|index| list.get(index).cloned()).collect()))
}

/// Order of two elements by `Compare`; elements without an order count as "not less and not greater".
fn element_order(one: &Value<'_>, two: &Value<'_>) -> Option<Ordering> {
    compare::order(one, two).ok()
}

fn is_comparable(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
    )
}

pub(crate) fn is_sorted<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let list = machine.as_list(&arguments[0]);
    let mut former: Option<&Value<'v>> = None;
    for element in list.iter() {
        if !is_comparable(element) {
            return mismatch();
        }
        if let Some(former) = former
            && element_order(former, element) == Some(Ordering::Greater)
        {
            return Ok(Value::Bool(false));
        }
        former = Some(element);
    }
    Ok(Value::Bool(true))
}

fn extreme<'v>(
    machine: &Machine<'v>,
    arguments: &[Value<'v>],
    name: &str,
    replace_when: Ordering,
) -> Answer<'v> {
    let list = machine.as_list(&arguments[0]);
    let mut best: Option<&Value<'v>> = None;
    for element in list.iter() {
        if !is_comparable(element) {
            return mismatch();
        }
        match best {
            Some(current) if element_order(current, element) != Some(replace_when) => {}
            _ => best = Some(element),
        }
    }
    best.map_or_else(|| fail(format!("{name} called on empty list")), |value| Ok(value.clone()))
}

pub(crate) fn max<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    extreme(machine, arguments, "max", Ordering::Less)
}

pub(crate) fn min<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    extreme(machine, arguments, "min", Ordering::Greater)
}

fn sum<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>], zero: Value<'v>) -> Answer<'v> {
    let list = machine.as_list(&arguments[0]);
    let mut total = zero;
    for element in list.iter() {
        total = arithmetic::add(machine, &[total, element.clone()])?;
        if total.is_error() {
            // An error cannot be added: the next step fails, and so does the whole.
            return if matches!(&total, Value::Error(message) if &**message == "no such overload") {
                mismatch()
            } else {
                Ok(total)
            };
        }
    }
    Ok(total)
}

pub(crate) fn sum_ints<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    sum(machine, arguments, Value::Int(0))
}

pub(crate) fn sum_uints<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    sum(machine, arguments, Value::Uint(0))
}

pub(crate) fn sum_doubles<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    sum(machine, arguments, Value::Double(0.0))
}

pub(crate) fn sum_durations<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    sum(machine, arguments, Value::Duration(0))
}

pub(crate) fn sort<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let list = match &arguments[0] {
        list @ (Value::List(_) | Value::Growing(_)) => machine.as_list(list),
        // Types with methods of their own refuse in other words.
        Value::String(_) | Value::Timestamp(_) | Value::Duration(_) => return mismatch(),
        _ => return fail("no such overload: sort"),
    };
    sort_with(machine, &list, &list)
}

pub(crate) fn sort_by_keys<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let [list, keys] = arguments else { return mismatch() };
    if !matches!(list, Value::List(_) | Value::Growing(_)) {
        return fail("no such overload: @sortByAssociatedKeys");
    }
    let (list, keys) = (machine.as_list(list), machine.as_list(keys));
    sort_with(machine, &list, &keys)
}

fn sort_with<'v>(machine: &mut Machine<'v>, list: &List<'v>, keys: &List<'v>) -> Answer<'v> {
    if list.len() != keys.len() {
        return fail(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        ));
    }
    let Some(first) = keys.get(0) else { return Ok(Value::List(list.clone())) };
    if !is_comparable(first) {
        return fail("list elements must be comparable");
    }
    // A single element is not compared with anything.
    if keys.len() > 1 && keys.iter().any(|key| key.type_name() != first.type_name()) {
        return fail("list elements must have the same type");
    }
    machine.allocate_elements(2 * list.len())?;
    let mut pairs: Vec<(&Value<'v>, &Value<'v>)> = keys.iter().zip(list.iter()).collect();
    pairs.sort_by(|one, two| element_order(one.0, two.0).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, value)| value.clone()).collect()))
}

fn all_in<'v>(machine: &Machine<'v>, list: &List<'v>, of: &List<'v>) -> Result<bool, Stop> {
    for element in of.iter() {
        if !is_element(machine, element, list)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn two_lists<'v>(machine: &Machine<'v>, arguments: &[Value<'v>]) -> (List<'v>, List<'v>) {
    (machine.as_list(&arguments[0]), machine.as_list(&arguments[1]))
}

pub(crate) fn sets_contains<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let (one, two) = two_lists(machine, arguments);
    Ok(Value::Bool(all_in(machine, &one, &two)?))
}

pub(crate) fn sets_equivalent<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let (one, two) = two_lists(machine, arguments);
    Ok(Value::Bool(all_in(machine, &one, &two)? && all_in(machine, &two, &one)?))
}

pub(crate) fn sets_intersects<'v>(machine: &mut Machine<'v>, arguments: &[Value<'v>]) -> Answer<'v> {
    let (one, two) = two_lists(machine, arguments);
    for element in one.iter() {
        if is_element(machine, element, &two)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
