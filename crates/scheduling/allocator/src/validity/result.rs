//! The allocation results of an assignment.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::assignment::{Assignment, Picked};
use super::capacity;
use crate::claim::Claim;
use crate::error::AllocateError;
use crate::node::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

impl Assignment<'_, '_> {
    /// One result for each claim.
    pub(crate) fn allocation_results(
        &self,
        share_id: &mut dyn FnMut() -> String,
    ) -> Result<Vec<AllocationResult>, AllocateError> {
        (0..self.claims.len()).map(|claim| self.allocation_result(claim, share_id)).collect()
    }

    fn allocation_result(
        &self,
        claim: usize,
        share_id: &mut dyn FnMut() -> String,
    ) -> Result<AllocationResult, AllocateError> {
        let picked = self.picked_for(claim);
        let mut results = Vec::with_capacity(picked.len());
        for picked in picked {
            results.push(self.device_result(*picked, share_id)?);
        }
        let config = self.configuration(claim);
        Ok(AllocationResult {
            allocation_timestamp: None,
            devices: Some(DeviceAllocationResult {
                config: (!config.is_empty()).then_some(config),
                results: (!results.is_empty()).then_some(results),
            }),
            node_selector: self.node_selector(claim)?,
        })
    }

    fn device_result(
        &self,
        picked: Picked,
        share_id: &mut dyn FnMut() -> String,
    ) -> Result<DeviceRequestAllocationResult, AllocateError> {
        let slot = &self.slots[picked.slot as usize];
        let device = self.device(picked.candidate);
        let features = self.basis.features;
        let is_share = features.consumable_capacity && device.shape().allow_multiple_allocations;
        let mut consumed = BTreeMap::new();
        if is_share {
            for capacity in device.capacities() {
                let requested = slot.capacity.iter().find(|(name, _)| *name == Some(capacity.name));
                let requested = requested.map(|(_, amount)| *amount);
                // Taking the device already proved the amount computable.
                if let Ok(Some(amount)) = capacity::consumed(requested, capacity, self.basis.arithmetic()) {
                    let name = self.basis.inventory.text(capacity.name).to_owned();
                    consumed.insert(name, Quantity(amount.text().to_owned()));
                }
            }
        }
        let extra = device.extra().filter(|_| features.device_binding_and_status);
        let conditions = |all: Option<&Vec<String>>| all.filter(|all| !all.is_empty()).cloned();
        Ok(DeviceRequestAllocationResult {
            admin_access: slot.admin_access.then_some(true),
            binding_conditions: conditions(extra.and_then(|extra| extra.binding_conditions.as_ref())),
            binding_failure_conditions: conditions(
                extra.and_then(|extra| extra.binding_failure_conditions.as_ref()),
            ),
            consumed_capacity: (!consumed.is_empty()).then_some(consumed),
            device: device.name().to_owned(),
            driver: device.driver_name().to_owned(),
            pool: device.pool().to_owned(),
            request: self.slot_name(slot),
            share_id: is_share.then(share_id),
            skip_node_operations: None,
            tolerations: (!slot.ask.tolerations.is_empty()).then(|| slot.ask.tolerations.clone()),
        })
    }

    fn configuration(&self, claim_index: usize) -> Vec<DeviceAllocationConfiguration> {
        let claim: &Claim = &self.claims[claim_index];
        let mut all: Vec<DeviceAllocationConfiguration> = Vec::new();
        // Name of the class, and the range of its entries.
        let mut classes: Vec<(&str, std::ops::Range<usize>)> = Vec::new();
        for request in 0..claim.requests.len() {
            let slot = self.chosen_slot(claim_index, request);
            if slot.class.config.is_empty() {
                continue;
            }
            let name = self.slot_name(slot);
            if let Some((_, entries)) = classes.iter().find(|(class, _)| *class == slot.class.name) {
                for entry in &mut all[entries.clone()] {
                    entry.requests.get_or_insert_default().push(name.clone());
                }
                continue;
            }
            let start = all.len();
            all.extend(slot.class.config.iter().map(|opaque| DeviceAllocationConfiguration {
                opaque: opaque.clone(),
                requests: Some(vec![name.clone()]),
                source: "FromClass".to_owned(),
            }));
            classes.push((&slot.class.name, start..all.len()));
        }
        for config in &claim.config {
            let times = if config.requests.is_empty() {
                1
            } else {
                let named = (0..claim.requests.len()).filter(|request| {
                    let name = &claim.requests[*request].name;
                    let slot = self.chosen_slot(claim_index, *request);
                    config.requests.contains(name)
                        || (slot.is_alternative && config.requests.contains(&self.slot_name(slot)))
                });
                let count = named.count();
                if self.basis.bugs.claim_configuration_repeats { count } else { count.min(1) }
            };
            all.extend((0..times).map(|_| DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: (!config.requests.is_empty()).then(|| config.requests.clone()),
                source: "FromClaim".to_owned(),
            }));
        }
        if !self.basis.rules.configuration_names_all_requests {
            for entry in &mut all {
                let requests = entry.requests.as_deref().unwrap_or_default();
                let is_for_all = (0..claim.requests.len()).all(|request| {
                    requests.contains(&claim.requests[request].name)
                        || requests.contains(&self.slot_name(self.chosen_slot(claim_index, request)))
                });
                if is_for_all {
                    entry.requests = None;
                }
            }
        }
        all
    }

    fn node_selector(&self, claim: usize) -> Result<Option<core::NodeSelector>, AllocateError> {
        let inventory = self.basis.inventory;
        let mut term = NodeSelectorTerm::default();
        for picked in self.picked_for(claim) {
            let device = self.device(picked.candidate);
            let slice = &inventory.slices[self.candidates[picked.candidate as usize].slice as usize];
            let extra = device.extra();
            let (has_node_name, selector) = if slice.per_device == Some(true) {
                (
                    extra.is_some_and(|extra| extra.node_name.is_some()),
                    extra.and_then(|extra| extra.node_selector.as_ref()),
                )
            } else {
                (slice.node_name.is_some(), slice.node_selector.as_deref())
            };
            if has_node_name || extra.is_some_and(|extra| extra.binds_to_node) {
                let requirement = core::NodeSelectorRequirement {
                    key: "metadata.name".to_owned(),
                    operator: "In".to_owned(),
                    values: Some(vec![self.node.name.clone()]),
                };
                return Ok(Some(core::NodeSelector {
                    node_selector_terms: vec![core::NodeSelectorTerm {
                        match_expressions: None,
                        match_fields: Some(vec![requirement]),
                    }],
                }));
            }
            match selector.map_or(&[][..], |selector| &selector.terms) {
                [] => {}
                [only] => {
                    merge(&only.fields, &mut term.fields);
                    merge(&only.expressions, &mut term.expressions);
                }
                many => {
                    return Err(AllocateError::Fatal(format!(
                        "create NodeSelector for claim {}: unsupported ResourceSlice.NodeSelector with {} terms",
                        self.claims[claim].name,
                        many.len()
                    )));
                }
            }
        }
        let is_empty = term.fields.is_empty() && term.expressions.is_empty();
        Ok((!is_empty).then(|| core::NodeSelector::from(&NodeSelector { terms: vec![term] })))
    }
}

fn merge(from: &[NodeSelectorRequirement], to: &mut Vec<NodeSelectorRequirement>) {
    fn set(values: &[String]) -> BTreeSet<&String> {
        values.iter().collect()
    }
    for requirement in from {
        let is_known = to.iter().any(|known| {
            known.key == requirement.key
                && known.operator == requirement.operator
                && set(&known.values) == set(&requirement.values)
        });
        if !is_known {
            to.push(requirement.clone());
        }
    }
}
