//! What can be published of the hardware: what is desired, less what the API server does not keep or accept.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::resource::v1::{ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::response::StatusCause;
use tessera_inventory::Pool;

use super::{
    compare::{self, Difference},
    desired::{Contents, DesiredSlice, PoolIdentity},
    features::{self, Feature},
    names,
};

/// What shall be published, and what was learned about publishing it.
#[derive(Debug)]
pub struct Target {
    identity: PoolIdentity,
    /// All that the hardware offers.
    full: Vec<DesiredSlice>,
    /// What remains of it.
    slices: Vec<DesiredSlice>,
    missing: BTreeSet<Feature>,
    rejected: Rejected,
    altered: BTreeMap<String, Altered>,
}

/// What the server found invalid. Sending it again is no use until the hardware changes.
#[derive(Debug, Default)]
struct Rejected {
    /// Devices by the name of their slice.
    devices: BTreeMap<String, BTreeSet<String>>,
    /// Whole slices of devices.
    slices: BTreeSet<String>,
    /// A slice of counter sets: then none are published, nor what depends on them.
    counters: bool,
    /// What the server said.
    messages: Vec<String>,
}

/// A slice that the server stores otherwise than it was sent, for a reason unknown to us. Sending it again would not
/// help.
#[derive(Debug)]
struct Altered {
    sent: Contents,
    held: ResourceSliceSpec,
    message: String,
}

impl Target {
    /// Nothing is desired yet.
    #[must_use]
    pub fn new(identity: PoolIdentity) -> Self {
        Self {
            identity,
            full: Vec::new(),
            slices: Vec::new(),
            missing: BTreeSet::new(),
            rejected: Rejected::default(),
            altered: BTreeMap::new(),
        }
    }

    /// Desires `pool`. Answers whether that is something new.
    pub fn set(&mut self, pool: &Pool) -> bool {
        let full = self.identity.slices(pool);
        if full == self.full {
            return false;
        }
        self.full = full;
        self.rejected = Rejected::default();
        self.altered.clear();
        self.refresh();
        true
    }

    /// The slices to publish.
    #[must_use]
    pub fn slices(&self) -> &[DesiredSlice] {
        &self.slices
    }

    /// Devices in [`Self::slices`].
    #[must_use]
    pub fn devices(&self) -> usize {
        let devices = |slice: &DesiredSlice| match &slice.contents {
            Contents::Devices(devices) => devices.len(),
            Contents::SharedCounters(_) => 0,
        };
        self.slices.iter().map(devices).sum()
    }

    /// Features that the server does not keep.
    #[must_use]
    pub fn missing(&self) -> &BTreeSet<Feature> {
        &self.missing
    }

    /// What is left out or altered, and why.
    #[must_use]
    pub fn shortcomings(&self) -> Vec<String> {
        let gates = self.missing.iter().map(|feature| gate_message(*feature));
        let altered = self.altered.values().map(|altered| altered.message.clone());
        self.rejected.messages.iter().cloned().chain(gates).chain(altered).collect()
    }

    /// Learns from the answer to a write: `held` is what the server keeps of `sent`. Answers what is new and bad.
    pub fn learn(&mut self, sent: &ResourceSlice, held: &ResourceSlice) -> Vec<String> {
        let differences = compare::differences(&sent.spec, &held.spec);
        let mut messages = Vec::new();
        let mut unexplained = Vec::new();
        for difference in &differences {
            let feature = match difference {
                Difference::Missing(path) => Feature::of_path(path),
                Difference::Changed(_) | Difference::Added(_) => None,
            };
            match feature {
                Some(feature) if self.missing.contains(&feature) => {}
                Some(feature) => {
                    self.missing.insert(feature);
                    messages.push(format!(
                        "the API server did not keep {}: {}",
                        difference.path(),
                        gate_message(feature)
                    ));
                }
                None => unexplained.push(difference.path()),
            }
        }
        let name = sent.metadata.name.clone().unwrap_or_default();
        if !unexplained.is_empty()
            && let Some(slice) = self.slices.iter().find(|slice| slice.name == name)
        {
            let message = format!(
                "the API server keeps another {} of ResourceSlice {name} than was sent: it is older than that field, has its feature \
                 gate switched off, or an admission policy changes it; left as it is",
                unexplained.join(", ")
            );
            messages.push(message.clone());
            self.altered
                .insert(name, Altered { sent: slice.contents.clone(), held: held.spec.clone(), message });
        }
        self.refresh();
        messages
    }

    /// The server refuses `sent` as invalid, for these reasons. Leaves out the devices at fault, or the slice where that
    /// cannot be told.
    pub fn reject(&mut self, sent: &ResourceSlice, causes: &[StatusCause], message: String) {
        let name = sent.metadata.name.clone().unwrap_or_default();
        let devices: Option<BTreeSet<String>> =
            causes.iter().map(|cause| device_at_fault(sent, &cause.field)).collect();
        match devices {
            Some(devices) if !devices.is_empty() => {
                self.rejected.devices.entry(name).or_default().extend(devices)
            }
            _ if sent.spec.shared_counters.is_some() => self.rejected.counters = true,
            _ => {
                self.rejected.slices.insert(name);
            }
        }
        self.rejected.messages.push(message);
        self.refresh();
    }

    /// `current` as far as it matters: what the server is known to store otherwise counts as what was sent.
    #[must_use]
    pub fn forgive(&self, mut current: Vec<ResourceSlice>) -> Vec<ResourceSlice> {
        for slice in &mut current {
            let Some(altered) = self.altered.get(slice.metadata.name.as_deref().unwrap_or_default()) else {
                continue;
            };
            if !compare::same_contents(&altered.held, &slice.spec) {
                continue;
            }
            let pool = slice.spec.pool.clone();
            slice.spec = self.identity.spec(&altered.sent, pool.generation, pool.resource_slice_count);
            slice.spec.pool = pool;
        }
        current
    }

    /// Slices to try on the server without storing them, to learn what it keeps of all that the hardware offers.
    #[must_use]
    pub fn probes(&self) -> Vec<ResourceSlice> {
        let all = Feature::ALL.into_iter().collect();
        let plain = features::without(&all, &self.full);
        let uses_features = |slice: &&DesiredSlice| !plain.contains(slice);
        let probe = |slice: &DesiredSlice| ResourceSlice {
            metadata: ObjectMeta {
                name: Some(names::slice_name(&self.identity.node_name, &self.identity.driver_name, "probe")),
                ..ObjectMeta::default()
            },
            spec: self.identity.spec(&slice.contents, 1, 1),
        };
        self.full.iter().filter(uses_features).map(probe).collect()
    }

    /// Learns from what the server would keep of the [`Self::probes`]. Answers what is new and bad.
    pub fn learn_from_probes(&mut self, answers: &[(&ResourceSlice, ResourceSlice)]) -> Vec<String> {
        let dropped = |(sent, held): &(&ResourceSlice, ResourceSlice)| {
            let differences = compare::differences(&sent.spec, &held.spec);
            differences
                .iter()
                .filter_map(|difference| Feature::of_path(difference.path()))
                .collect::<Vec<_>>()
        };
        let missing: BTreeSet<Feature> = answers.iter().flat_map(dropped).collect();
        let new = missing.difference(&self.missing).map(|feature| gate_message(*feature)).collect();
        self.missing = missing;
        self.refresh();
        new
    }

    fn refresh(&mut self) {
        let mut missing = self.missing.clone();
        if self.rejected.counters {
            missing.insert(Feature::PartitionableDevices);
        }
        let mut slices = features::without(&missing, &self.full);
        slices.retain(|slice| !self.rejected.slices.contains(&slice.name));
        for slice in &mut slices {
            if let (Some(rejected), Contents::Devices(devices)) =
                (self.rejected.devices.get(&slice.name), &mut slice.contents)
            {
                devices.retain(|device| !rejected.contains(&device.name));
            }
        }
        slices.retain(|slice| !matches!(&slice.contents, Contents::Devices(devices) if devices.is_empty()));
        self.slices = slices;
        let slices = &self.slices;
        self.altered.retain(|name, altered| {
            slices.iter().any(|slice| slice.name == *name && slice.contents == altered.sent)
        });
    }
}

fn gate_message(feature: Feature) -> String {
    format!("feature gate {} is off in kube-apiserver: {}", feature.gate(), feature.consequence())
}

/// The device of `slice` that the field `spec.devices[3].…` belongs to.
fn device_at_fault(slice: &ResourceSlice, field: &str) -> Option<String> {
    let (index, _) = field.strip_prefix("spec.devices[")?.split_once(']')?;
    let device = slice.spec.devices.as_ref()?.get(index.parse::<usize>().ok()?)?;
    Some(device.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tessera_inventory::pool::Slice;

    use super::*;

    fn pool() -> Pool {
        let counters = json!([{"name": "c", "counters": {"m": {"value": "1"}}}]);
        let consumes = json!([{"counterSet": "c", "counters": {"m": {"value": "1"}}}]);
        let devices = json!([
            {"name": "card", "attributes": {"type": {"string": "gpu"}}, "consumesCounters": consumes},
            {"name": "partition", "attributes": {"type": {"string": "mig"}}, "consumesCounters": consumes}]);
        let slice = |suffix: &str, contents| Slice { name_suffix: suffix.to_owned(), contents };
        Pool {
            slices: vec![
                slice("0", Contents::SharedCounters(serde_json::from_value(counters).unwrap())),
                slice("2", Contents::Devices(serde_json::from_value(devices).unwrap())),
            ],
            warnings: Vec::new(),
        }
    }

    fn target() -> Target {
        let mut target = Target::new(PoolIdentity::new("d", "n"));
        assert!(target.set(&pool()));
        target
    }

    /// The slice with this name suffix as it would be sent.
    fn sent(target: &Target, suffix: &str) -> ResourceSlice {
        let name = format!("n-d-{suffix}");
        let slice = target.slices().iter().find(|slice| slice.name == name).unwrap();
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        ResourceSlice { metadata, spec: target.identity.spec(&slice.contents, 1, 2) }
    }

    fn cause(field: &str) -> StatusCause {
        StatusCause { field: field.to_owned(), message: "wrong".to_owned(), reason: String::new() }
    }

    fn left(target: &Target) -> (usize, usize) {
        (target.slices().len(), target.devices())
    }

    #[test]
    fn an_invalid_device_is_left_out_until_the_hardware_changes() {
        let mut target = target();
        let slice = sent(&target, "2");
        target.reject(&slice, &[cause("spec.devices[1].attributes[type]")], "m".to_owned());
        assert_eq!(left(&target), (2, 1));
        assert_eq!(target.shortcomings(), ["m"]);
        assert!(!target.set(&pool()), "the same again is no new chance");
        assert_eq!(left(&target), (2, 1));
        assert!(target.set(&Pool::default()) && target.set(&pool()));
        assert_eq!(left(&target), (2, 2));
    }

    #[test]
    fn where_the_device_at_fault_is_not_told_the_slice_is_left_out() {
        for field in ["spec.pool.name", "spec.devices[9].name", "spec.devices", ""] {
            let mut target = target();
            let slice = sent(&target, "2");
            target.reject(&slice, &[cause("spec.devices[0].name"), cause(field)], "m".to_owned());
            assert_eq!(left(&target), (1, 0), "{field}");
        }
    }

    #[test]
    fn invalid_counters_take_with_them_what_cannot_be_without() {
        let mut target = target();
        let slice = sent(&target, "0");
        target.reject(&slice, &[cause("spec.sharedCounters[0].name")], "m".to_owned());
        assert_eq!(left(&target), (1, 1));
        assert!(target.missing().is_empty(), "no feature gate is to blame");
    }

    #[test]
    fn what_is_stored_otherwise_counts_as_sent_until_it_changes_again() {
        let mut target = target();
        let sent = sent(&target, "2");
        let mut held = sent.clone();
        held.spec.devices.as_mut().unwrap().pop();
        assert_eq!(target.learn(&sent, &held).len(), 1);
        assert_eq!(target.forgive(vec![held.clone()]), std::slice::from_ref(&sent));
        held.spec.devices.as_mut().unwrap().pop();
        assert_eq!(target.forgive(vec![held.clone()]), std::slice::from_ref(&held));
        assert_eq!(target.learn(&sent, &sent), [""; 0]);
    }

    #[test]
    fn dropped_counters_are_a_missing_feature_said_once() {
        let mut target = target();
        let sent = sent(&target, "0");
        let mut held = sent.clone();
        held.spec.shared_counters = None;
        let messages = target.learn(&sent, &held);
        assert!(
            messages[0].contains("spec.sharedCounters") && messages[0].contains("DRAPartitionableDevices")
        );
        assert_eq!((messages.len(), left(&target)), (1, (1, 1)));
        assert_eq!(target.learn(&sent, &held), [""; 0]);
        let probes = target.probes();
        assert_eq!(probes.len(), 2);
        let kept: Vec<_> = probes.iter().map(|probe| (probe, probe.clone())).collect();
        assert_eq!(target.learn_from_probes(&kept), [""; 0]);
        assert_eq!(left(&target), (2, 2));
    }
}
