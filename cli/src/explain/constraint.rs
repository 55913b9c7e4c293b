//! Constraints not satisfiable by the free devices.

use std::collections::{BTreeMap, HashSet};

use tessera_allocator::claim::{Claim, Constraint, Rule};
use tessera_cel::{AttributeValue, DeviceView};

use super::{Fleet, RequestDiagnosis};
use crate::output::counted;

/// Constraints with too few free devices, on the node of the requests' diagnosis.
pub fn diagnose(fleet: &Fleet<'_>, claim: &Claim, requests: &[RequestDiagnosis]) -> Vec<String> {
    claim.constraints.iter().filter_map(|constraint| one(fleet, claim, constraint, requests)).collect()
}

fn one(
    fleet: &Fleet<'_>,
    claim: &Claim,
    constraint: &Constraint,
    requests: &[RequestDiagnosis],
) -> Option<String> {
    let (attribute, is_match) = match &constraint.rule {
        Rule::MatchAttribute(attribute) => (attribute, true),
        Rule::DistinctAttribute(attribute) => (attribute, false),
        Rule::Unknown => return None,
    };
    let concerns = |name: &str| {
        let base = name.split('/').next().unwrap_or(name);
        constraint.requests.is_empty()
            || constraint.requests.iter().any(|wanted| wanted == name || wanted == base)
    };
    let concerned: Vec<&RequestDiagnosis> =
        requests.iter().filter(|request| concerns(&request.request)).collect();
    // Alternatives are tried one at a time; the request's own diagnosis names the one short of devices.
    let has_alternatives = concerned.iter().any(|request| request.request.contains('/'));
    let needed: usize = concerned.iter().map(|request| request.wanted.unwrap_or(request.devices)).sum();
    if has_alternatives || needed < 2 {
        return None;
    }
    let free: HashSet<usize> = concerned
        .iter()
        .flat_map(|request| request.verdicts.iter())
        .filter(|verdict| verdict.obstacle.is_none())
        .filter_map(|verdict| verdict.place)
        .collect();
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    let mut lacking = 0;
    for place in &free {
        match value(fleet, *place, attribute) {
            Some(value) => *groups.entry(value).or_default() += 1,
            None => lacking += 1,
        }
    }
    let without = if lacking > 0 { format!("; without it: {lacking}") } else { String::new() };
    let in_claim =
        format!("{} of {}", if is_match { "matchAttribute" } else { "distinctAttribute" }, claim.reference());
    if is_match {
        let best = groups.iter().max_by_key(|(_, count)| **count);
        let (most, value) = best.map_or((0, ""), |(value, count)| (*count, value.as_str()));
        if most >= needed {
            return None;
        }
        let example = if most < 2 { String::new() } else { format!(" (where it is {value})") };
        return Some(format!(
            "{in_claim}: {needed} devices must agree in {attribute}, of the {} free ones at most {most} do{example}{without}",
            free.len()
        ));
    }
    (groups.len() < needed).then(|| {
        format!(
            "{in_claim}: {needed} devices must differ in {attribute}, the {} free ones have {}{without}",
            free.len(),
            counted(groups.len(), "value")
        )
    })
}

fn value(fleet: &Fleet<'_>, place: usize, attribute: &str) -> Option<String> {
    let device = fleet.evaluated(place)?;
    let (domain, name) = attribute.split_once('/')?;
    Some(match device.attribute(domain, name)? {
        AttributeValue::Int(value) => value.to_string(),
        AttributeValue::Bool(value) => value.to_string(),
        AttributeValue::String(value) => value.to_owned(),
        AttributeValue::Version(value) => value.to_string(),
        AttributeValue::Ints(values) => list(values),
        AttributeValue::Bools(values) => list(values),
        AttributeValue::Strings(values) => list(values),
        AttributeValue::Versions(values) => list(values),
    })
}

fn list<T: ToString>(values: &[T]) -> String {
    format!("[{}]", values.iter().map(T::to_string).collect::<Vec<_>>().join(", "))
}
