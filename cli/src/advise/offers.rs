//! Offers of the fleet for each card model, from ResourceSlices: cards, partitions, shares, time-slices.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::resource::v1::{Counter, Device};
use serde::Serialize;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::{DeviceType, Quantity, attribute, capacity, counter, managed};
use tessera_cel::Selector;
use tessera_cluster::{Key, Objects};

use crate::devices::{self, Place};

/// Billionths in a MiB.
const MIB: i128 = (1 << 20) * 1_000_000_000;

/// A kind of device of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Kind {
    /// A MIG partition.
    Partition {
        /// `1g.10gb`
        profile: String,
    },
    /// A share by MPS.
    MpsShare {
        /// Profile of the shared partition; absent for a share of a card.
        #[serde(skip_serializing_if = "Option::is_none")]
        profile: Option<String>,
    },
    /// A time-slice of a card.
    TimeSlice {
        /// How many a card has.
        slots: u32,
    },
    /// A whole card.
    Card,
}

/// A device on offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Kind of the device.
    pub kind: Kind,
    /// Memory of the card or partition, in MiB: of a share, all shareable memory.
    pub memory_mib: u64,
    /// Its multiprocessors as a share of the card's, 0 to 1; `None` where they are not published.
    pub multiprocessors: Option<f64>,
    /// Worth in cards, by memory slices, 0 to 1.
    pub worth: f64,
    /// Of shares by MPS: the smallest amount of memory, in MiB; others are multiples of this amount.
    pub least_memory_mib: u64,
    /// Of shares by MPS: the least percentage of the multiprocessors.
    pub least_compute: u32,
    /// Of shares by MPS: processes of all shares together.
    pub clients: u32,
    /// A DeviceClass whose devices are all of this kind of device; `None` where there is none.
    pub class: Option<String>,
}

/// By product name.
pub type Offers = BTreeMap<String, Vec<Offer>>;

/// Devices offered without a taint; the taint of managed cards excludes no pod served by the controller.
pub fn offers(objects: &Objects, driver: &str, kubernetes: KubernetesVersion) -> Offers {
    let slices = objects.slices.values().filter(|slice| slice.spec.driver == driver);
    let mut memory_slices: HashMap<(&str, &str), i128> = HashMap::new();
    for slice in slices.clone() {
        for set in slice.spec.shared_counters.iter().flatten() {
            memory_slices.insert((&slice.spec.pool.name, &set.name), slices_of(&set.counters));
        }
    }
    let worth = |place: &Place<'_>| {
        let mut consumed = place.device.consumes_counters.iter().flatten();
        let of_card = |set: &str| memory_slices.get(&(place.slice.spec.pool.name.as_str(), set)).copied();
        let of_device = consumed.find_map(|consumed| {
            let all = of_card(&consumed.counter_set).filter(|all| *all > 0)?;
            Some(slices_of(&consumed.counters) as f64 / all as f64)
        });
        of_device.unwrap_or(1.0).min(1.0)
    };
    let places = devices::devices(slices.clone());
    let mut kinds: BTreeMap<(&str, Kind), (Offer, &Place<'_>)> = BTreeMap::new();
    let mut most: BTreeMap<&str, u64> = BTreeMap::new();
    for place in places.iter().filter(|place| is_free_of_taints(place.device)) {
        let Some(kind) = kind_of(place.device) else { continue };
        let product = text(place.device, attribute::PRODUCT_NAME).unwrap_or_default();
        let memory = text_or_int(place.device, attribute::MEMORY_MIB)
            .or_else(|| amount(place.device, capacity::MEMORY).map(|nanos| (nanos / MIB) as u64));
        let memory = if matches!(kind, Kind::MpsShare { .. }) {
            amount(place.device, capacity::MEMORY).map(|nanos| (nanos / MIB) as u64)
        } else {
            memory
        };
        let Some(memory_mib) = memory else { continue };
        let worth = worth(place);
        let multiprocessors = amount(place.device, capacity::MULTIPROCESSORS).map(whole);
        // A card publishes the most any of its partitions can have, meaning all of them.
        if worth >= 1.0 {
            let known = most.entry(product).or_default();
            *known = (*known).max(multiprocessors.unwrap_or_default());
        }
        let (offer, _) = kinds.entry((product, kind.clone())).or_insert_with(|| {
            let offer = Offer {
                memory_mib,
                multiprocessors: multiprocessors.map(|count| count as f64),
                worth,
                least_memory_mib: least(place.device, capacity::MEMORY)
                    .map_or(1, |nanos| (nanos / MIB) as u64)
                    .max(1),
                least_compute: least(place.device, capacity::COMPUTE)
                    .map_or(1, |nanos| whole(nanos) as u32)
                    .clamp(1, 100),
                clients: amount(place.device, capacity::CLIENTS).map_or(1, |nanos| whole(nanos) as u32),
                class: None,
                kind,
            };
            (offer, place)
        });
        // Of cards with the same name the one with the least memory counts: a claim may get any.
        offer.memory_mib = offer.memory_mib.min(memory_mib);
    }
    // By product and profile: shares of partitions publish percentages only.
    let of_profiles: BTreeMap<(&str, String), f64> = kinds
        .iter()
        .filter_map(|((product, kind), (offer, _))| match kind {
            Kind::Partition { profile } => Some(((*product, profile.clone()), offer.multiprocessors?)),
            _ => None,
        })
        .collect();
    let samples: Vec<&Place<'_>> = kinds.values().map(|(_, place)| *place).collect();
    let classes = classes(objects, &samples, kubernetes);
    let mut found = Offers::new();
    for ((product, _), (mut offer, place)) in kinds {
        let all = most.get(product).copied().filter(|most| *most > 0).map(|most| most as f64);
        offer.multiprocessors = match &offer.kind {
            Kind::Card | Kind::TimeSlice { .. } | Kind::MpsShare { profile: None } => Some(1.0),
            Kind::Partition { .. } => share(offer.multiprocessors, all),
            Kind::MpsShare { profile: Some(profile) } => {
                share(of_profiles.get(&(product, profile.clone())).copied(), all)
            }
        };
        offer.class = class_of(&classes, place, driver);
        found.entry(product.to_owned()).or_default().push(offer);
    }
    found
}

fn share(count: Option<f64>, all: Option<f64>) -> Option<f64> {
    Some((count? / all?).min(1.0))
}

fn slices_of(counters: &BTreeMap<String, Counter>) -> i128 {
    let of_memory = counters.iter().filter(|(name, _)| counter::memory_slice_number(name).is_some());
    of_memory.filter_map(|(_, counter)| Some(Quantity::parse(&counter.value.0).ok()?.nanos())).sum()
}

fn is_free_of_taints(device: &Device) -> bool {
    device.taints.iter().flatten().all(|taint| taint.key == managed::TAINT_KEY)
}

/// Kind of a device; `None` for kinds unknown to this version.
pub fn kind_of(device: &Device) -> Option<Kind> {
    let profile = text(device, attribute::PROFILE).map(str::to_owned);
    let of_type = text(device, attribute::TYPE)?;
    let is = |wanted: DeviceType| of_type == wanted.as_str();
    if is(DeviceType::Gpu) {
        Some(Kind::Card)
    } else if is(DeviceType::Mig) {
        Some(Kind::Partition { profile: profile? })
    } else if is(DeviceType::Mps) {
        Some(Kind::MpsShare { profile })
    } else if is(DeviceType::TimeSlice) {
        let slots = whole(amount(device, capacity::SLOTS)?);
        Some(Kind::TimeSlice { slots: u32::try_from(slots).ok().filter(|slots| *slots > 0)? })
    } else {
        None
    }
}

/// A text attribute of the driver.
pub fn text<'d>(device: &'d Device, name: &str) -> Option<&'d str> {
    device.attributes.as_ref()?.get(name)?.string.as_deref()
}

fn text_or_int(device: &Device, name: &str) -> Option<u64> {
    u64::try_from(device.attributes.as_ref()?.get(name)?.int?).ok()
}

/// A capacity, in billionths.
fn amount(device: &Device, name: &str) -> Option<i128> {
    let value = &device.capacity.as_ref()?.get(name)?.value;
    Some(Quantity::parse(&value.0).ok()?.nanos().max(0))
}

fn least(device: &Device, name: &str) -> Option<i128> {
    let policy = device.capacity.as_ref()?.get(name)?.request_policy.as_ref()?;
    let least = &policy.valid_range.as_ref()?.min.0;
    Some(Quantity::parse(least).ok()?.nanos().max(0))
}

fn whole(nanos: i128) -> u64 {
    u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Classes whose devices, of these, are all of one type, with their selectors.
fn classes<'o>(
    objects: &'o Objects,
    samples: &[&Place<'_>],
    kubernetes: KubernetesVersion,
) -> Vec<(&'o str, Vec<Selector>)> {
    let compiled = objects.classes.iter().filter_map(|(Key { name, .. }, class)| {
        let expressions = class.spec.as_ref()?.selectors.iter().flatten();
        let expressions = expressions.filter_map(|selector| Some(&selector.cel.as_ref()?.expression));
        let compile = |expression: &String| Selector::compile_with(expression, kubernetes.into());
        let selectors = expressions.map(compile).collect::<Result<_, _>>();
        Some((name.as_str(), selectors.ok()?))
    });
    let is_of_one_type = |selectors: &[Selector]| {
        let matching = samples.iter().filter(|place| devices::matches(selectors, place));
        let mut types: Vec<_> = matching.map(|place| text(place.device, attribute::TYPE)).collect();
        types.dedup();
        types.sort();
        types.dedup();
        types.len() == 1
    };
    compiled.filter(|(_, selectors): &(_, Vec<Selector>)| is_of_one_type(selectors)).collect()
}

/// A class selecting the device: the chart's class if it matches.
fn class_of(classes: &[(&str, Vec<Selector>)], place: &Place<'_>, driver: &str) -> Option<String> {
    let matching = classes.iter().filter(|(_, selectors)| devices::matches(selectors, place));
    let names: Vec<&str> = matching.map(|(name, _)| *name).collect();
    let of_type = text(place.device, attribute::TYPE).unwrap_or_default();
    let of_chart = match of_type {
        "gpu" => driver.to_owned(),
        _ => format!("{of_type}.{driver}"),
    };
    names.iter().find(|name| **name == of_chart).or(names.first()).map(|name| (*name).to_owned())
}
