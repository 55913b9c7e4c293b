//! Constraints between the devices of a claim.

use hashbrown::HashMap;

use crate::claim::{Claim, Constraint, Rule};
use crate::features::UpstreamBugs;
use crate::inventory::{DeviceRef, Inventory, Value};
use crate::names::Name;

/// A constraint with the devices picked by the search under the constraint.
#[derive(Debug)]
pub(crate) struct ConstraintState {
    is_match: bool,
    /// For each request of the claim and each of its alternatives: whether the constraint applies to it.
    applies: Vec<Vec<bool>>,
    attribute: Attribute,
    count: u32,
    /// For matchAttribute: the value common to all devices, if any.
    value: u32,
    /// For distinctAttribute: the values by request.
    distinct: Vec<(u32, u32)>,
    forgets: bool,
    unknown: Option<u32>,
}

/// An attribute, located in devices by their shape.
#[derive(Debug)]
struct Attribute {
    full: Option<Name>,
    /// The name without its domain, for devices of this driver.
    bare: Option<(Name, Name)>,
    of_shape: HashMap<u32, Option<u32>>,
    /// The last shape and its answer: most consecutive devices have the same shape.
    last: Option<(u32, Option<u32>)>,
}

impl Attribute {
    fn new(inventory: &Inventory, name: &str) -> Self {
        let bare = name
            .split_once('/')
            .and_then(|(domain, id)| Some((inventory.names.find(domain)?, inventory.names.find(id)?)));
        Attribute { full: inventory.names.find(name), bare, of_shape: HashMap::new(), last: None }
    }

    /// The cell of the device's value.
    fn of(&mut self, device: DeviceRef<'_>) -> Option<u32> {
        let index = device.shape_index();
        if let Some((_, place)) = self.last.filter(|(shape, _)| *shape == index) {
            return place.map(|place| device.cell(place as usize));
        }
        let (full, bare) = (self.full, self.bare);
        let place = *self.of_shape.entry(index).or_insert_with(|| {
            let shape = device.shape();
            let find = |name: Name| shape.attributes.iter().position(|other| *other == name);
            let bare = bare.filter(|(driver, _)| *driver == shape.driver).map(|(_, id)| id);
            full.and_then(find).or_else(|| bare.and_then(find)).map(|place| place as u32)
        });
        self.last = Some((index, place));
        place.map(|place| device.cell(place as usize))
    }
}

impl ConstraintState {
    /// `None` for a constraint of an unknown kind.
    pub fn new(
        inventory: &Inventory,
        claim: &Claim,
        constraint: &Constraint,
        bugs: UpstreamBugs,
    ) -> Option<Self> {
        let (is_match, name) = match &constraint.rule {
            Rule::MatchAttribute(name) => (true, name),
            Rule::DistinctAttribute(name) => (false, name),
            Rule::Unknown => return None,
        };
        let names = &constraint.requests;
        let applies = claim
            .requests
            .iter()
            .map(|request| {
                let is_named = names.is_empty() || names.contains(&request.name);
                match &request.ask {
                    crate::claim::Ask::FirstAvailable(alternatives) => alternatives
                        .iter()
                        .map(|alternative| {
                            is_named || names.contains(&format!("{}/{}", request.name, alternative.name))
                        })
                        .collect(),
                    _ => vec![is_named],
                }
            })
            .collect();
        Some(ConstraintState {
            is_match,
            applies,
            attribute: Attribute::new(inventory, name),
            count: 0,
            value: 0,
            distinct: Vec::new(),
            forgets: bugs.distinct_attribute_forgets,
            unknown: inventory.values.attributes.find(&Value::Unknown),
        })
    }

    /// Whether the constraint applies to a request or alternative.
    pub fn is_about(&self, request: usize, alternative: usize) -> bool {
        self.applies[request][alternative]
    }

    /// The device's value of the attribute, as a number common to equal values.
    pub fn value_of(&mut self, device: DeviceRef<'_>) -> Option<u32> {
        self.attribute.of(device)
    }

    /// Whether this is a matchAttribute constraint.
    pub fn is_match(&self) -> bool {
        self.is_match
    }

    /// Whether the constraint drops values of requests with several devices.
    pub fn can_forget(&self) -> bool {
        !self.is_match && self.forgets
    }

    /// The values for comparison with further devices.
    pub fn state(&self) -> Vec<u32> {
        if self.is_match {
            return if self.count > 0 { vec![self.value] } else { Vec::new() };
        }
        let mut values: Vec<u32> = self.distinct.iter().map(|(_, value)| *value).collect();
        values.sort_unstable();
        values
    }

    /// Whether [`Self::add`] would return true.
    pub fn would_accept(&mut self, request: usize, alternative: usize, device: DeviceRef<'_>) -> bool {
        if !self.is_about(request, alternative) {
            return true;
        }
        let Some(value) = self.attribute.of(device) else { return false };
        let is_unknown = Some(value) == self.unknown;
        match (self.count, self.is_match) {
            (0, _) => true,
            (_, true) => value == self.value && !is_unknown,
            (_, false) => !self.distinct.iter().any(|(_, taken)| *taken == value || is_unknown),
        }
    }

    /// Adds a device if the constraint then still holds.
    pub fn add(&mut self, request: usize, alternative: usize, device: DeviceRef<'_>) -> bool {
        if !self.is_about(request, alternative) {
            return true;
        }
        let Some(value) = self.attribute.of(device) else { return false };
        if self.is_match {
            if self.count > 0 && (value != self.value || Some(value) == self.unknown) {
                return false;
            }
            self.value = value;
        } else {
            let is_taken = |(_, taken): &(u32, u32)| *taken == value || Some(value) == self.unknown;
            if self.count > 0 && self.distinct.iter().any(is_taken) {
                return false;
            }
            if self.forgets {
                self.distinct.retain(|(other, _)| *other != request as u32);
            }
            self.distinct.push((request as u32, value));
        }
        self.count += 1;
        true
    }

    /// Undoes the last [`Self::add`] that returned true.
    pub fn remove(&mut self, request: usize, alternative: usize) {
        if !self.is_about(request, alternative) {
            return;
        }
        self.count -= 1;
        if !self.is_match {
            if self.forgets {
                self.distinct.retain(|(other, _)| *other != request as u32);
            } else {
                self.distinct.pop();
            }
        }
    }
}
