//! The publishable part of the desired slices, without parts dropped or refused by the API server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::resource::v1::ResourceSliceSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::response::StatusCause;
use tessera_slices::Contents;

use crate::{
    compare::{self, Difference},
    desired::{Desired, DesiredSlice, PoolIdentity},
    draft::Draft,
    features::{self, Feature},
    held_slice::{HeldContents, HeldSlice, same},
    names,
};

/// The desired slices, and the API server's known answers to them.
#[derive(Debug)]
pub struct Target {
    identity: PoolIdentity,
    /// Everything offered by the hardware.
    full: Vec<DesiredSlice>,
    /// Annotations of the first publishable slice.
    annotations: BTreeMap<String, String>,
    /// The publishable part.
    slices: Vec<DesiredSlice>,
    missing: BTreeSet<Feature>,
    rejected: Rejected,
    altered: BTreeMap<String, Altered>,
}

/// Parts found invalid by the server. They are not sent again before the hardware changes.
#[derive(Debug, Default)]
struct Rejected {
    /// Devices by the name of their slice.
    devices: BTreeMap<String, BTreeSet<String>>,
    /// Whole slices of devices.
    slices: BTreeSet<String>,
    /// A slice of counter sets: then no counter sets and no devices in need of them are published.
    counters: bool,
    /// The server's message.
    messages: Vec<String>,
}

/// A slice stored differently than sent, for an unknown reason. Sending the slice again would not help.
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
            annotations: BTreeMap::new(),
            slices: Vec::new(),
            missing: BTreeSet::new(),
            rejected: Rejected::default(),
            altered: BTreeMap::new(),
        }
    }

    /// Sets what is desired. Returns whether it is new.
    pub fn set(&mut self, desired: &Desired) -> bool {
        let full = self.identity.named(&desired.slices);
        if full == self.full && desired.annotations == self.annotations {
            return false;
        }
        self.full = full;
        self.annotations.clone_from(&desired.annotations);
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

    /// Number of devices in [`Self::slices`].
    #[must_use]
    pub fn devices(&self) -> usize {
        self.slices.iter().map(|slice| slice.contents.device_names().len()).sum()
    }

    /// Features whose fields the server drops.
    #[must_use]
    pub fn missing(&self) -> &BTreeSet<Feature> {
        &self.missing
    }

    /// Describes all parts left out or changed, with reasons.
    #[must_use]
    pub fn shortcomings(&self) -> Vec<String> {
        let gates = self.missing.iter().map(|feature| gate_message(*feature));
        let altered = self.altered.values().map(|altered| altered.message.clone());
        self.rejected.messages.iter().cloned().chain(gates).chain(altered).collect()
    }

    /// Evaluates the answer to a write of the slice called `name`: `held` is the stored form of `sent`. Returns a newly
    /// found problem.
    pub fn learn(&mut self, name: &str, sent: &ResourceSliceSpec, held: &ResourceSliceSpec) -> Vec<String> {
        let differences = compare::differences(sent, held);
        let known = self.missing.len();
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
        if !unexplained.is_empty()
            && let Some(slice) = self.slices.iter().find(|slice| slice.name == name)
        {
            let message = format!(
                "the API server keeps another {} of ResourceSlice {name} than was sent: it is older than that field, has its feature \
                 gate switched off, or an admission policy changes it; left as it is",
                unexplained.join(", ")
            );
            messages.push(message.clone());
            let altered = Altered { sent: slice.contents.clone(), held: held.clone(), message };
            self.altered.insert(name.to_owned(), altered);
        }
        if self.missing.len() > known {
            self.refresh();
        }
        messages
    }

    /// Notes the refusal of `sent` as invalid, for these reasons. Leaves out the invalid devices, or the whole slice if
    /// they are not known.
    pub fn reject(&mut self, sent: &Draft, causes: &[StatusCause], message: String) {
        let name = sent.name().to_owned();
        let devices: Option<BTreeSet<String>> =
            causes.iter().map(|cause| device_at_fault(sent, &cause.field)).collect();
        match devices {
            Some(devices) if !devices.is_empty() => {
                self.rejected.devices.entry(name).or_default().extend(devices)
            }
            _ if matches!(sent.contents, Contents::SharedCounters { .. }) => self.rejected.counters = true,
            _ => {
                self.rejected.slices.insert(name);
            }
        }
        self.rejected.messages.push(message);
        self.refresh();
    }

    /// Compares the server's slices with the desired ones. A slice known to be stored differently counts as equal.
    pub fn recognise(&self, current: &mut HeldSlice) {
        let Some(desired) = self.slices.iter().find(|slice| slice.name == current.name()) else { return };
        let Some(held) = &mut current.spec else { return };
        held.recognise(self.identity.spec(0, 0), &desired.contents);
        if let Some(altered) = self.altered.get(&desired.name)
            && held.other().is_some_and(|spec| same(altered.held.clone(), &spec))
        {
            held.contents = HeldContents::Same(altered.sent.clone());
        }
    }

    /// Whether the scheduler's allocator is to be kept away from a device.
    #[must_use]
    pub fn keeps_away(&self) -> bool {
        self.full.iter().any(|slice| slice.contents.devices().iter().any(features::is_kept_away))
    }

    /// A slice for a dry run to probe the server's features: for each feature, the first device with a use of it.
    /// `None` if the hardware uses no feature.
    #[must_use]
    pub fn probe(&self) -> Option<Draft> {
        let mut features: Vec<Feature> = Feature::ALL.into();
        let mut devices = Vec::new();
        for slice in &self.full {
            for device in slice.contents.devices() {
                let before = features.len();
                features.retain(|feature| !features::is_used_by(*feature, &device));
                if features.len() < before {
                    devices.push(device);
                }
            }
            if features.is_empty() {
                break;
            }
        }
        let name = names::slice_name(&self.identity.node_name, &self.identity.driver_name, "probe");
        (!devices.is_empty()).then(|| Draft {
            metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
            spec: self.identity.spec(1, 1),
            contents: Contents::of_devices(&devices),
            taint_times: Vec::new(),
        })
    }

    /// Notes that the server drops the fields of these features of the [`Self::probe`] and keeps all others. Returns a
    /// newly found problem.
    pub fn learn_from_probe(&mut self, missing: BTreeSet<Feature>) -> Vec<String> {
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
        let rejected = &self.rejected;
        let kept = |slice: &DesiredSlice| {
            if rejected.slices.contains(&slice.name) {
                return None;
            }
            let rejected = rejected.devices.get(&slice.name);
            if missing.is_empty() && rejected.is_none() {
                return Some(slice.clone()).filter(holds_something);
            }
            let mut contents = features::without(&missing, &slice.contents)?;
            if let Some(rejected) = rejected {
                let mut devices = contents.devices();
                devices.retain(|device| !rejected.contains(&device.name));
                contents = Contents::of_devices(&devices);
            }
            Some(DesiredSlice { contents, ..slice.clone() }).filter(holds_something)
        };
        let mut slices: Vec<DesiredSlice> = self.full.iter().filter_map(kept).collect();
        if let Some(first) = slices.first_mut() {
            first.annotations.clone_from(&self.annotations);
        }
        self.altered.retain(|name, altered| {
            slices.iter().any(|slice| slice.name == *name && slice.contents == altered.sent)
        });
        self.slices = slices;
    }
}

/// The features whose fields the server does not store as `sent`.
#[must_use]
pub fn dropped_features(sent: &ResourceSliceSpec, held: &ResourceSliceSpec) -> BTreeSet<Feature> {
    let differences = compare::differences(sent, held);
    differences.iter().filter_map(|difference| Feature::of_path(difference.path())).collect()
}

fn holds_something(slice: &DesiredSlice) -> bool {
    matches!(slice.contents, Contents::SharedCounters { .. }) || !slice.contents.device_names().is_empty()
}

fn gate_message(feature: Feature) -> String {
    format!("feature gate {} is off in kube-apiserver: {}", feature.gate(), feature.consequence())
}

/// The device of `draft` with the field `spec.devices[3].…`.
fn device_at_fault(draft: &Draft, field: &str) -> Option<String> {
    let (index, _) = field.strip_prefix("spec.devices[")?.split_once(']')?;
    let index = index.parse::<usize>().ok()?;
    draft.contents.devices().into_iter().nth(index).map(|device| device.name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSlice};
    use serde_json::json;

    use tessera_slices::Slice;

    use super::*;

    fn desired() -> Desired {
        let counters = json!([{"name": "c", "counters": {"m": {"value": "1"}}}]);
        let consumes = json!([{"counterSet": "c", "counters": {"m": {"value": "1"}}}]);
        let devices = json!([
            {"name": "card", "attributes": {"type": {"string": "gpu"}}, "consumesCounters": consumes},
            {"name": "partition", "attributes": {"type": {"string": "mig"}}, "consumesCounters": consumes}]);
        let slice = |suffix: &str, contents| Slice { name_suffix: suffix.to_owned(), contents };
        let counters: Vec<CounterSet> = serde_json::from_value(counters).unwrap();
        let devices: Vec<Device> = serde_json::from_value(devices).unwrap();
        Desired {
            slices: vec![
                slice("0", Contents::of_shared_counters(&counters)),
                slice("2", Contents::of_devices(&devices)),
            ],
            annotations: [("example.com/of".to_owned(), "n".to_owned())].into(),
        }
    }

    fn target() -> Target {
        let mut target = Target::new(PoolIdentity::new("d", "n"));
        assert!(target.set(&desired()));
        target
    }

    /// The slice with this name suffix, in the form to be sent.
    fn sent(target: &Target, suffix: &str) -> Draft {
        let name = format!("n-d-{suffix}");
        let slice = target.slices().iter().find(|slice| slice.name == name).unwrap();
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        let contents = slice.contents.clone();
        Draft { metadata, spec: target.identity.spec(1, 2), contents, taint_times: Vec::new() }
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
        assert!(!target.set(&desired()), "the same again is no new chance");
        assert_eq!(left(&target), (2, 1));
        assert!(target.set(&Desired::default()) && target.set(&desired()));
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
        let is_as_sent = |target: &Target, held: &ResourceSlice| {
            let mut held = HeldSlice::from(held.clone());
            target.recognise(&mut held);
            held.spec.unwrap().contents == HeldContents::Same(sent.contents.clone())
        };
        let mut held = sent.slice();
        held.spec.devices.as_mut().unwrap().pop();
        assert_eq!(target.learn(sent.name(), &sent.slice().spec, &held.spec).len(), 1);
        assert!(is_as_sent(&target, &held));
        assert_eq!(target.shortcomings().len(), 1);
        held.spec.devices.as_mut().unwrap().pop();
        assert!(!is_as_sent(&target, &held));
        assert_eq!(target.learn(sent.name(), &sent.slice().spec, &sent.slice().spec), [""; 0]);
    }

    #[test]
    fn what_a_slice_that_is_left_out_was_to_say_another_says() {
        let mut target = target();
        let annotations = |target: &Target| {
            target.slices().iter().map(|slice| slice.annotations.clone()).collect::<Vec<_>>()
        };
        assert_eq!(annotations(&target), [desired().annotations, BTreeMap::new()]);
        let slice = sent(&target, "0");
        target.reject(&slice, &[cause("spec.sharedCounters[0].name")], "m".to_owned());
        assert_eq!(annotations(&target), [desired().annotations]);
    }

    #[test]
    fn dropped_counters_are_a_missing_feature_said_once() {
        let mut target = target();
        let sent = sent(&target, "0");
        let mut held = sent.slice().spec;
        held.shared_counters = None;
        let messages = target.learn(sent.name(), &sent.slice().spec, &held);
        assert!(
            messages[0].contains("spec.sharedCounters") && messages[0].contains("DRAPartitionableDevices")
        );
        assert_eq!((messages.len(), left(&target)), (1, (1, 1)));
        assert_eq!(target.learn(sent.name(), &sent.slice().spec, &held), [""; 0]);
        assert_eq!(
            target.probe().unwrap().contents.device_names().len(),
            1,
            "one device that draws on counters"
        );
        let dropped = dropped_features(&sent.slice().spec, &held);
        assert_eq!(dropped, BTreeSet::from([Feature::PartitionableDevices]));
        assert_eq!(target.learn_from_probe(dropped), [""; 0]);
        assert_eq!(target.learn_from_probe(BTreeSet::new()), [""; 0]);
        assert_eq!(left(&target), (2, 2));
        let contents =
            |slices: &[DesiredSlice]| slices.iter().map(|slice| slice.contents.clone()).collect::<Vec<_>>();
        assert_eq!(contents(target.slices()), contents(&target.full));
    }
}
