//! Sufficient changes: each is tried with the allocator.

use std::borrow::Cow;
use std::collections::HashMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceToleration, ResourceClaim};
use tessera_allocator::claim::{Ask, Claim, DeviceRequest, Rule};
use tessera_allocator::held::Held;
use tessera_cluster::outcome::{self, Reason};
use tessera_cluster::subject::Subject;
use tessera_cluster::{Asker, ClaimExt, Cluster, ObjectError, reference};

use super::fleet::requests;
use super::{Fleet, Nearest, NodeDiagnosis, Obstacle};

/// Limit of tried allocations, to bound the user's waiting time.
pub const TRIES: usize = 400;

/// Limit of a node's claims removed hypothetically.
const CLAIMS_OF_NODE: usize = 48;

/// Limit of claims named by a change.
const CLAIMS_NAMED: usize = 3;

struct Search<'c> {
    cluster: &'c Cluster,
    asker: &'c mut Asker,
    tries: usize,
    /// Whether something was not tried because the limit was reached.
    ran_out: bool,
    /// The largest fitting count on any node, by claim and request: a node with less adds nothing.
    counts: HashMap<(usize, usize), i64>,
    found: Vec<Nearest>,
}

/// Sufficient changes with their nodes, and the nodes where the limit of tries was reached. Nodes with the fewest missing devices
/// come first.
pub fn of(
    cluster: &Cluster,
    fleet: &mut Fleet<'_>,
    subject: &Subject,
    nodes: &[Cow<'_, Node>],
    diagnoses: &[NodeDiagnosis],
    asker: &mut Asker,
) -> Result<(Vec<Nearest>, Vec<String>), ObjectError> {
    let mut search =
        Search { cluster, asker, tries: TRIES, ran_out: false, counts: HashMap::new(), found: Vec::new() };
    let mut untried = Vec::new();
    let mut short: Vec<(&Node, &NodeDiagnosis)> = nodes
        .iter()
        .map(|node| &**node)
        .zip(diagnoses)
        .filter(|(_, diagnosis)| matches!(diagnosis.outcome.reason, Some(Reason::Devices(_))))
        // More devices alone would not be sufficient there.
        .filter(|(_, diagnosis)| diagnosis.outcome.shortage.is_none())
        .collect();
    short.sort_by_key(|(_, diagnosis)| diagnosis.missing());
    for (node, diagnosis) in short {
        let claims = outcome::converted(&outcome::to_allocate(subject, node))?;
        search.node(node, diagnosis, &claims)?;
        if search.ran_out {
            untried.push(diagnosis.outcome.node.clone());
        }
    }
    let mut found = search.found;
    found.sort_by_key(|nearest| match nearest.claims.len() {
        1 => 0,
        0 => 1,
        many => many,
    });
    found.extend(nearest_devices(fleet, diagnoses, subject)?);
    Ok((found, untried))
}

impl Search<'_> {
    fn node(&mut self, node: &Node, diagnosis: &NodeDiagnosis, claims: &[Claim]) -> Result<(), ObjectError> {
        self.claims_end(node, diagnosis, claims)?;
        let held = self.cluster.held();
        let mut changes: Vec<(String, Vec<Claim>)> = Vec::new();
        let mut fewer: Vec<(usize, usize)> = Vec::new();
        for (index, claim) in claims.iter().enumerate() {
            for (number, request) in claim.requests.iter().enumerate() {
                let Ask::Exactly(exactly) = &request.ask else { continue };
                if exactly.count > 1 {
                    fewer.push((index, number));
                }
            }
            for (number, constraint) in claim.constraints.iter().enumerate() {
                let (Rule::MatchAttribute(name) | Rule::DistinctAttribute(name)) = &constraint.rule else {
                    continue;
                };
                let mut changed = claims.to_vec();
                changed[index].constraints.remove(number);
                changes.push((format!("the constraint on {name} is removed"), changed));
            }
        }
        let taints: Vec<(String, String)> = diagnosis
            .requests
            .iter()
            .flat_map(|request| &request.verdicts)
            .filter_map(|verdict| verdict.obstacle.as_ref()?.taint())
            .fold(Vec::new(), |mut all, taint| {
                if !all.contains(&taint) {
                    all.push(taint);
                }
                all
            });
        if !taints.is_empty() {
            let mut changed = claims.to_vec();
            for claim in &mut changed {
                for request in &mut claim.requests {
                    for_each_request(&mut request.ask, |request| {
                        request.tolerations.extend(taints.iter().map(|(key, _)| DeviceToleration {
                            key: Some(key.clone()),
                            operator: Some("Exists".to_owned()),
                            ..DeviceToleration::default()
                        }));
                    });
                }
            }
            let taints: Vec<&str> = taints.iter().map(|(_, taint)| taint.as_str()).collect();
            changes.push((format!("it tolerates {}", taints.join(", ")), changed));
        }
        for (claim, number) in fewer {
            self.fewer(node, claims, (claim, number), held);
        }
        for (change, changed) in changes {
            if self.fits(node, &changed, held) {
                self.add(change, Vec::new(), node);
            }
        }
        Ok(())
    }

    /// The largest fitting count of a request.
    fn fewer(&mut self, node: &Node, claims: &[Claim], place: (usize, usize), held: &Held) {
        let request = &claims[place.0].requests[place.1];
        let Ask::Exactly(exactly) = &request.ask else { return };
        let least = self.counts.get(&place).copied().unwrap_or(1);
        for count in (least..exactly.count).rev() {
            let changed = with_request(claims, place.0, place.1, |request| request.count = count);
            if self.fits(node, &changed, held) {
                self.counts.insert(place, count);
                self.add(
                    format!("request {} asks for {count} instead of {}", request.name, exactly.count),
                    Vec::new(),
                    node,
                );
                return;
            }
        }
    }

    /// One claim to end; if no single one suffices, the smallest set found.
    fn claims_end(
        &mut self,
        node: &Node,
        diagnosis: &NodeDiagnosis,
        claims: &[Claim],
    ) -> Result<(), ObjectError> {
        let mut names: Vec<&String> = Vec::new();
        for by in diagnosis.requests.iter().flat_map(|request| &request.reasons).flat_map(|reason| &reason.by)
        {
            if !names.contains(&by) && names.len() < CLAIMS_OF_NODE {
                names.push(by);
            }
        }
        let all: Vec<ResourceClaim> = names
            .iter()
            .filter_map(|name| {
                self.cluster.objects().claims.values().find(|claim| reference(claim) == **name)
            })
            .map(|claim| claim.as_ref().clone())
            .collect();
        let mut single = false;
        for claim in &all {
            let held = self.cluster.held_without(&[claim])?;
            if self.fits(node, claims, &held) {
                self.add(format!("{} ends", describe(claim)), vec![reference(claim)], node);
                single = true;
            }
        }
        if single || all.len() < 2 {
            return Ok(());
        }
        let mut needed: Vec<&ResourceClaim> = all.iter().collect();
        if !self.fits(node, claims, &self.cluster.held_without(&needed)?) {
            return Ok(());
        }
        // Keep the last ones in order, if possible.
        for claim in all.iter().rev() {
            let fewer: Vec<&ResourceClaim> =
                needed.iter().copied().filter(|kept| !std::ptr::eq(*kept, claim)).collect();
            if self.fits(node, claims, &self.cluster.held_without(&fewer)?) {
                needed = fewer;
            }
        }
        let names: Vec<String> = needed.iter().map(|claim| describe(claim)).collect();
        let change = match names.len() - names.len().min(CLAIMS_NAMED) {
            0 => format!("{} end", names.join(" and ")),
            more => format!("{} and {more} more claims end", names[..CLAIMS_NAMED].join(", ")),
        };
        self.add(change, needed.iter().map(|claim| reference(claim)).collect(), node);
        Ok(())
    }

    fn fits(&mut self, node: &Node, claims: &[Claim], held: &Held) -> bool {
        if self.tries == 0 {
            self.ran_out = true;
            return false;
        }
        self.tries -= 1;
        matches!(self.cluster.allocate(node, claims, held, self.asker), Ok(Some(_)))
    }

    fn add(&mut self, change: String, claims: Vec<String>, node: &Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        match self.found.iter_mut().find(|known| known.change == change && known.claims == claims) {
            Some(known) => known.nodes.push(name),
            None => self.found.push(Nearest { change, claims, nodes: vec![name] }),
        }
    }
}

/// `claim default/a (pod p)`
pub fn describe(claim: &ResourceClaim) -> String {
    let users = claim.users();
    let shown: Vec<String> = users
        .iter()
        .take(3)
        .map(|user| format!("{} {}", user.resource.trim_end_matches('s'), user.name))
        .collect();
    let more = if users.len() > 3 { ", …" } else { "" };
    if shown.is_empty() {
        return format!("claim {}", reference(claim));
    }
    format!("claim {} ({}{more})", reference(claim), shown.join(", "))
}

fn with_request(
    claims: &[Claim],
    claim: usize,
    request: usize,
    change: impl Fn(&mut DeviceRequest),
) -> Vec<Claim> {
    let mut changed = claims.to_vec();
    for_each_request(&mut changed[claim].requests[request].ask, change);
    changed
}

fn for_each_request(ask: &mut Ask, change: impl Fn(&mut DeviceRequest)) {
    match ask {
        Ask::Exactly(exactly) => change(exactly),
        Ask::FirstAvailable(alternatives) => alternatives.iter_mut().for_each(change),
        Ask::Unknown => {}
    }
}

/// For requests without matching devices: the device failing the fewest parts of the selectors, and its values.
fn nearest_devices(
    fleet: &mut Fleet<'_>,
    diagnoses: &[NodeDiagnosis],
    subject: &Subject,
) -> Result<Vec<Nearest>, ObjectError> {
    let waiting: Vec<_> = subject.claims.iter().filter(|wanted| !wanted.is_allocated()).collect();
    let mut found = Vec::new();
    for claim in outcome::converted(&waiting)? {
        for request in requests(&claim) {
            let is_this = |name: &str| name.rsplit('/').next() == Some(request.name.as_str());
            let verdicts: Vec<(&str, &super::DeviceVerdict)> = diagnoses
                .iter()
                .flat_map(|node| {
                    node.requests.iter().map(move |request| (node.outcome.node.as_str(), request))
                })
                .filter(|(_, diagnosis)| diagnosis.claim == claim.reference() && is_this(&diagnosis.request))
                .flat_map(|(node, diagnosis)| diagnosis.verdicts.iter().map(move |verdict| (node, verdict)))
                .collect();
            let ruled_out =
                |verdict: &super::DeviceVerdict| verdict.obstacle.as_ref().is_some_and(Obstacle::is_selector);
            if verdicts.is_empty() || !verdicts.iter().all(|(_, verdict)| ruled_out(verdict)) {
                continue;
            }
            let selectors = fleet.selectors_of(request);
            // A device in use is no help: among devices with as many failing parts, take the first free one.
            let mut best: Option<(Vec<String>, usize, &str, String)> = None;
            let mut fewest = (usize::MAX, true);
            for (node, verdict) in verdicts {
                let Some(place) = verdict.place else { continue };
                let parts: Vec<String> =
                    selectors.iter().flat_map(|expression| fleet.false_parts(expression, place)).collect();
                let missed = (parts.len(), fleet.is_touched(place));
                if !parts.is_empty() && missed < fewest {
                    fewest = missed;
                    best = Some((parts, place, node, verdict.id.device.clone()));
                }
            }
            if let Some((parts, place, node, device)) = best {
                let values: Vec<String> = parts.iter().filter_map(|part| fleet.values(part, place)).collect();
                let shown = if values.is_empty() { parts.join(" and ") } else { values.join(" and ") };
                found.push(Nearest {
                    change: format!(
                        "request {} takes {device}, the nearest device, where {shown}",
                        request.name
                    ),
                    claims: Vec::new(),
                    nodes: vec![node.to_owned()],
                });
            }
        }
    }
    Ok(found)
}
