//! Why devices are or are not available: each device alone, against the current allocations.

use crate::amount::{self, Amount};
use crate::claim::Claim;
use crate::error::AllocateError;
use crate::held::HolderId;
use crate::inventory::{DeviceRef, Inventory, Policy};
use crate::node::Node;
use crate::selectors::SelectorCache;
use crate::validity::{Assignment, Basis, untolerated};

/// The reason for a device's unavailability to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A selector does not match.
    Selector {
        /// Name of the selector's class; `None` for the request's own selector.
        class: Option<String>,
        /// Index among the selectors there.
        place: usize,
        /// The expression.
        expression: String,
    },
    /// A selector fails, or the amount of a capacity cannot be computed; this ends the whole scheduling attempt. The text is
    /// kube-scheduler's.
    SelectorFails(String),
    /// The device is for other nodes, or has binding conditions while the gate is off.
    NotForNode,
    /// Held by claims: `namespace/name` of each.
    InUse(Vec<String>),
    /// A requested capacity is missing from the device.
    NoSuchCapacity(String),
    /// The policy of a capacity forbids the requested amount.
    Policy {
        /// Name of the capacity.
        name: String,
        /// The requested amount, as written.
        requested: String,
        /// The allowed amounts, in words: `only 1`, `1 to 10`, `one of 1Gi, 2Gi`.
        allowed: String,
    },
    /// Too little of a capacity is left.
    Capacity {
        /// Name of the capacity.
        name: String,
        /// The requested amount, as written; `None` where the device's default applies.
        requested: Option<String>,
        /// The amount needed by the request, a quantity.
        needed: String,
        /// The remaining amount, a quantity.
        left: String,
        /// Claims holding some of the capacity.
        holders: Vec<String>,
    },
    /// Too little of a counter is left.
    Counter {
        /// Name of the counter set.
        set: String,
        /// Name of the counter.
        counter: String,
        /// The amount needed by the device, a quantity.
        needed: String,
        /// The remaining amount, a quantity.
        left: String,
    },
    /// A taint is not tolerated.
    Taint {
        /// Its key.
        key: String,
        /// Its value; may be empty.
        value: String,
        /// Its effect: `NoSchedule` or `NoExecute`.
        effect: String,
    },
    /// A constraint needs an attribute missing from the device.
    NoSuchAttribute {
        /// Index among the claim's constraints.
        constraint: usize,
        /// Name of the attribute.
        attribute: String,
    },
}

/// A device, with the reason for its unavailability.
#[derive(Debug, Clone)]
pub struct DeviceReport<'i> {
    /// The device.
    pub device: DeviceRef<'i>,
    /// The first obstacle; `None` if the device alone is available.
    pub reason: Option<Reason>,
}

/// The devices of a node for a request, or for an alternative of one.
#[derive(Debug, Clone)]
pub struct RequestReport<'i> {
    /// Index of the claim.
    pub claim: usize,
    /// Name of the request: `request` or `request/subrequest`.
    pub request: String,
    /// Number of devices wanted; for `All`, the number of existing devices.
    pub count: i64,
    /// All devices of usable pools, in the order of trying.
    pub devices: Vec<DeviceReport<'i>>,
}

/// A pool whose devices cannot be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusablePool {
    /// Name of the driver.
    pub driver: String,
    /// Name of the pool.
    pub pool: String,
    /// The pool's fault; `None` if slices are missing because the driver is updating the pool.
    pub fault: Option<String>,
}

/// The devices of a node for claims.
#[derive(Debug, Clone, Default)]
pub struct Explanation<'i> {
    /// Incomplete or invalid pools.
    pub unusable_pools: Vec<UnusablePool>,
    /// One entry for each request and alternative, in the claims' order.
    pub requests: Vec<RequestReport<'i>>,
    /// The error ending the attempt before any device is tried, such as a missing class; later requests are not
    /// reported.
    pub error: Option<AllocateError>,
}

/// See [`crate::upstream::Allocator::explain`].
pub(crate) fn explain<'a>(
    basis: Basis<'a>,
    node: &Node,
    claims: &[Claim],
    selectors: &mut SelectorCache,
) -> Result<Explanation<'a>, AllocateError> {
    let inventory = basis.inventory;
    let mut assignment = Assignment::new(basis, node, claims, selectors)?;
    let unusable = assignment.pools.iter().filter(|pool| !pool.is_usable());
    let unusable_pools = unusable
        .map(|pool| {
            let of_pool = &inventory.pools[pool.pool as usize];
            UnusablePool {
                driver: inventory.text(of_pool.driver).to_owned(),
                pool: inventory.text(of_pool.name).to_owned(),
                fault: pool.fault.clone(),
            }
        })
        .collect();
    let error = assignment.prepare().err();
    let mut requests = Vec::new();
    for slot in 0..assignment.slots.len() {
        // A claim with an error has no constraints.
        if assignment.constraints.len() > assignment.slots[slot].claim as usize {
            requests.push(report(inventory, &mut assignment, slot));
        }
    }
    Ok(Explanation { unusable_pools, requests, error })
}

fn report<'i>(
    inventory: &'i Inventory,
    assignment: &mut Assignment<'_, '_>,
    slot: usize,
) -> RequestReport<'i> {
    let devices = (0..assignment.candidates.len() as u32)
        .map(|candidate| {
            let index = assignment.candidates[candidate as usize].device;
            let device = DeviceRef { inventory, index };
            DeviceReport { device, reason: assignment.reason(slot, candidate) }
        })
        .collect();
    let of = &assignment.slots[slot];
    RequestReport { claim: of.claim as usize, request: assignment.slot_name(of), count: of.count, devices }
}

impl<'a> Assignment<'a, '_> {
    fn reason(&mut self, slot: usize, candidate: u32) -> Option<Reason> {
        let device = self.device(candidate);
        match self.is_selectable(slot, candidate) {
            Err(error) => return Some(Reason::SelectorFails(error.to_string())),
            Ok(false) => return Some(self.refusal(slot, candidate)),
            Ok(true) => {}
        }
        let admin_access = self.slots[slot].admin_access;
        if !admin_access && self.basis.held.is_whole(device.index) {
            return Some(Reason::InUse(names(self.basis.held.holders(device))));
        }
        if self.basis.features.consumable_capacity
            && let Some(reason) = self.capacity_reason(slot, device)
        {
            return Some(reason);
        }
        if let Some((set, counter, needed, left)) = self.counter_shortage(candidate) {
            let text = |name| self.basis.inventory.text(name).to_owned();
            return Some(Reason::Counter {
                set: text(set),
                counter: text(counter),
                needed: amount::show(needed),
                left: amount::show(left),
            });
        }
        if self.basis.features.device_taints
            && let Some(taint) = untolerated(device, self.slots[slot].ask, self.basis.tolerated)
        {
            return Some(Reason::Taint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.clone(),
            });
        }
        let of = &self.slots[slot];
        let (claim, request, alternative) = (of.claim as usize, of.request as usize, of.alternative as usize);
        let claims = self.claims;
        let constraints = self.constraints[claim].iter_mut().zip(&claims[claim].constraints);
        for (constraint, (state, published)) in constraints.enumerate() {
            if state.is_about(request, alternative) && state.value_of(device).is_none() {
                let attribute = published.attribute().unwrap_or_default().to_owned();
                return Some(Reason::NoSuchAttribute { constraint, attribute });
            }
        }
        None
    }

    /// The selector excluding a device.
    fn refusal(&mut self, slot: usize, candidate: u32) -> Reason {
        let device = self.device(candidate);
        for place in 0..self.slots[slot].selectors.len() {
            let selector = self.slots[slot].selectors[place];
            let Some(index) = selector.selector else { continue };
            if self.selectors.matches(index, device) != Ok(false) {
                continue;
            }
            let expression = self
                .selectors
                .selector(index)
                .map_or_else(|_| String::new(), |known| known.source().to_owned());
            let class = selector.is_of_class.then(|| self.slots[slot].class.name.clone());
            return Reason::Selector { class, place: selector.place as usize, expression };
        }
        Reason::NotForNode
    }

    fn capacity_reason(&mut self, slot: usize, device: DeviceRef<'a>) -> Option<Reason> {
        let inventory = self.basis.inventory;
        let shape = device.shape();
        let missing = self.slots[slot]
            .capacity
            .iter()
            .position(|(name, _)| !name.is_some_and(|name| shape.capacities.contains(&name)));
        if let Some(missing) = missing {
            let requested = self.slots[slot].ask.capacity.iter().flatten().nth(missing);
            return Some(Reason::NoSuchCapacity(
                requested.map_or_else(String::new, |(name, _)| name.clone()),
            ));
        }
        for cell in device.capacity_cells() {
            let capacity = &inventory.values.capacities[*cell as usize];
            let held = self.basis.held.get(device.index);
            let taken = held.map_or(0, |held| held.consumed(inventory.text(capacity.name)));
            let left = capacity.amount.nanos().saturating_sub(taken);
            let needed = match self.consumed(slot, *cell) {
                Ok(needed) => needed,
                Err(error) => {
                    let error = self.capacity_error(slot, "checking capacity", &device.id_text(), &error);
                    return Some(Reason::SelectorFails(error.to_string()));
                }
            };
            let name = inventory.text(capacity.name).to_owned();
            let requested = self.slots[slot].capacity.iter().find(|(name, _)| *name == Some(capacity.name));
            let requested = requested.map(|(_, amount)| amount.text().to_owned());
            let Some(needed) = needed else {
                let allowed = capacity.policy.as_ref().map_or_else(String::new, allowed);
                return Some(Reason::Policy { name, requested: requested.unwrap_or_default(), allowed });
            };
            if needed > left {
                return Some(Reason::Capacity {
                    name,
                    requested,
                    needed: amount::show(needed),
                    left: amount::show(left),
                    holders: held.map(|held| names(&held.holders)).unwrap_or_default(),
                });
            }
        }
        None
    }
}

/// A policy's allowed amounts besides its default, for people.
fn allowed(policy: &Policy) -> String {
    let Some(range) = &policy.range else {
        let values: Vec<&str> = policy.values.iter().map(Amount::text).collect();
        return format!("one of {}", values.join(", "));
    };
    let min = range.min.text();
    let steps = range.step.as_ref().map_or_else(String::new, |step| format!(" in steps of {}", step.text()));
    match &range.max {
        Some(max) if max.nanos() == range.min.nanos() => format!("only {min}"),
        Some(max) => format!("{min} to {}{steps}", max.text()),
        None => format!("{min} or more{steps}"),
    }
}

fn names(holders: &[HolderId]) -> Vec<String> {
    holders.iter().map(HolderId::to_string).collect()
}
