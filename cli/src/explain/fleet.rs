//! All devices with their usage, for finding obstacles.

mod counters;
mod selectors;

use std::collections::HashMap;

use k8s_openapi::api::resource::v1::DeviceClass;
use tessera_allocator::claim::{Ask, Claim, DeviceRequest, Rule};
use tessera_allocator::explain::Reason;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cel::Environment;
use tessera_cluster::Cluster;

use self::counters::CounterUsers;
pub use self::counters::Users;
use self::selectors::Selectors;
use super::Obstacle;
use crate::devices::{self, DeviceId, Place};
use crate::hints;

/// Devices, users of counters, and selectors.
pub struct Fleet<'s> {
    /// All devices in kube-scheduler's order.
    pub places: Vec<Place<'s>>,
    by_id: HashMap<DeviceId, usize>,
    evaluated: Vec<Option<tessera_cel::Device>>,
    classes: HashMap<&'s str, &'s DeviceClass>,
    counters: CounterUsers,
    selectors: Selectors,
}

impl<'s> Fleet<'s> {
    /// The devices of the cluster, as for kube-scheduler of this release. The claims named in `without` hold nothing.
    pub fn new(cluster: &'s Cluster, without: &[String], kubernetes: KubernetesVersion) -> Self {
        let environment = Environment::from(kubernetes);
        let places = devices::devices(cluster.objects().slices.values());
        let by_id = places.iter().enumerate().map(|(index, place)| (place.id.clone(), index)).collect();
        let evaluated = places
            .iter()
            .map(|place| {
                devices::for_evaluation(
                    &place.id.driver,
                    place.device.attributes.as_ref(),
                    place.device.capacity.as_ref(),
                    place.device.allow_multiple_allocations == Some(true),
                    environment.reads_lists(),
                )
                .ok()
            })
            .collect();
        let counters = CounterUsers::new(cluster.objects(), &places, without);
        let classes = cluster.objects().classes.iter().map(|(key, class)| (key.name.as_str(), class));
        let classes = classes.collect();
        Fleet { by_id, evaluated, classes, counters, selectors: Selectors::new(environment), places }
    }

    /// Index of the device in the fleet.
    pub fn place(&self, id: &DeviceId) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// Whether there is a class with this name.
    pub fn has_class(&self, name: &str) -> bool {
        self.classes.contains_key(name)
    }

    /// Whether the device, or a counter shared with others, is in use.
    pub fn is_touched(&self, place: usize) -> bool {
        self.counters.is_touched(&self.places[place])
    }

    /// The device in the form for selectors.
    pub fn evaluated(&self, place: usize) -> Option<&tessera_cel::Device> {
        self.evaluated[place].as_ref()
    }

    /// All selectors of a request, its class's first.
    pub fn selectors_of(&self, request: &DeviceRequest) -> Vec<String> {
        let class = self.classes.get(request.class.as_str()).and_then(|class| class.spec.as_ref());
        let of_class = class
            .and_then(|spec| spec.selectors.as_ref())
            .into_iter()
            .flatten()
            .filter_map(|selector| selector.cel.as_ref())
            .map(|cel| cel.expression.clone());
        of_class.chain(request.selectors.iter().flatten().map(|expression| expression.to_string())).collect()
    }

    /// The allocator's reason, with the false part of the selector and the claims using up a counter.
    pub fn obstacle(&mut self, id: &DeviceId, reason: Reason) -> Obstacle {
        let (mut part, mut users) = (None, Users::default());
        match &reason {
            Reason::Selector { expression, .. } => {
                let place = self.place(id);
                part = place.and_then(|place| self.false_parts(expression, place).into_iter().next());
            }
            Reason::Counter { set, counter, .. } => users = self.counters.of(id, set, counter),
            _ => {}
        }
        Obstacle { reason, part, users }
    }

    /// Unknown names in the claims' selectors and constraints.
    pub fn hints(&mut self, claims: &[Claim]) -> Vec<String> {
        let mut found = Vec::new();
        let (attributes, _) = devices::published_names(&self.places);
        for claim in claims {
            for request in requests(claim) {
                if !self.has_class(&request.class) {
                    let known = self.classes.keys().map(|name| (*name).to_owned()).collect();
                    let near = hints::nearest(&request.class, &known)
                        .map(|near| format!(": did you mean {near}?"))
                        .unwrap_or_default();
                    found.push(format!("there is no DeviceClass {}{near}", request.class));
                }
                for expression in self.selectors_of(request) {
                    if let Ok(selector) = self.selectors.compiled(&expression) {
                        found.extend(hints::unknown_names(&selector, &self.places));
                    }
                }
            }
            for constraint in &claim.constraints {
                let (Rule::MatchAttribute(name) | Rule::DistinctAttribute(name)) = &constraint.rule else {
                    continue;
                };
                if !attributes.contains(name) {
                    found.push(hints::unknown("attribute", name, &attributes));
                }
            }
        }
        let mut unique = Vec::new();
        for hint in found {
            if !unique.contains(&hint) {
                unique.push(hint);
            }
        }
        unique
    }

    /// The false parts of a selector for a device.
    pub fn false_parts(&mut self, expression: &str, place: usize) -> Vec<String> {
        self.selectors.false_parts(expression, self.evaluated[place].as_ref())
    }

    /// Values of a device read by a part of a selector, as `name is value`.
    pub fn values(&mut self, part: &str, place: usize) -> Option<String> {
        self.selectors.values(part, self.evaluated[place].as_ref()?)
    }
}

/// All requests of a claim, alternatives too.
pub fn requests(claim: &Claim) -> Vec<&DeviceRequest> {
    claim
        .requests
        .iter()
        .flat_map(|request| match &request.ask {
            Ask::Exactly(exactly) => std::slice::from_ref(exactly).iter(),
            Ask::FirstAvailable(alternatives) => alternatives.iter(),
            Ask::Unknown => [].iter(),
        })
        .collect()
}
