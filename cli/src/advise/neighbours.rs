//! Cards that their claims divide badly: a claim at its ceiling beside idle neighbours, and more time-slices than a card has time or
//! memory for.

use serde::Serialize;
use tessera_api::capacity;
use tessera_api::fleet_view::{CardView, FleetView, Holder};
use tessera_api::{DeviceName, ProfileSpelling};
use tessera_cluster::{Key, Objects};

use super::offers::{Kind, Offer, Offers};
use super::{Asked, result_of};
use crate::output;

/// Mean use above this part of what a claim has is its ceiling: it never takes all.
const CEILING: f64 = 0.9;

/// Mean use below this part of what a claim has is none.
const IDLE: f64 = 0.05;

/// A card that its claims divide badly.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "finding")]
pub enum Neighbours {
    /// A claim uses all of its part, and others of the card nothing.
    #[serde(rename_all = "camelCase")]
    AtCeiling {
        /// The node.
        node: String,
        /// The claim's device.
        device: String,
        /// The claim, `namespace/name`.
        claim: String,
        /// Its multiprocessors, as a share of the card's, 0 to 1.
        #[serde(serialize_with = "output::rounded")]
        has: f64,
        /// Mean share kept busy.
        #[serde(serialize_with = "output::rounded")]
        uses: f64,
        /// The others, `namespace/name`.
        idle: Vec<String>,
    },
    /// The claims of time-slices leave none of the card's time, or hold more memory at their peaks than it has.
    #[serde(rename_all = "camelCase")]
    TooManySlices {
        /// The node.
        node: String,
        /// The device.
        device: String,
        /// How many claims take turns.
        claims: usize,
        /// Mean share of the card's multiprocessors kept busy by all of them.
        #[serde(serialize_with = "output::rounded")]
        busy: f64,
        /// Sum of their peaks, MiB.
        memory_peak_mib: u64,
        /// Memory of the card, MiB.
        memory_mib: u64,
    },
}

/// What claims have of the multiprocessors of a card.
#[derive(Clone, Copy)]
struct Parts<'a> {
    objects: &'a Objects,
    /// Those of the card's model.
    offers: &'a [Offer],
    driver: &'a str,
}

impl Parts<'_> {
    /// A holder's multiprocessors, as a share of the card's: of a partition what its profile has, of a share by MPS what the claim
    /// consumes, or, where the claim is not known, what it is worth. `None` where nothing limits them, or the limit is not known.
    fn of(&self, holder: &Holder) -> Option<f64> {
        let device: DeviceName = holder.device.parse().ok()?;
        let of_device = device.partition().map_or(Some(1.0), |partition| self.of_profile(&partition.profile));
        match device {
            DeviceName::Partition(_) => of_device,
            DeviceName::Mps(_) | DeviceName::PartitionMps(_) => {
                let Some(claim) = self.objects.claims.get(&Key::new(&holder.namespace, &holder.claim)) else {
                    return Some(f64::from(holder.allocated) / 1000.0);
                };
                let consumed = result_of(claim, self.driver, &holder.device)?.consumed_capacity.as_ref()?;
                let percent = consumed.get(capacity::COMPUTE)?.0.parse::<f64>().ok()?;
                Some(of_device? * percent / 100.0)
            }
            // A time-slice may take what others leave, and so may one of several claims of a card.
            _ => None,
        }
    }

    fn of_profile(&self, wanted: &ProfileSpelling) -> Option<f64> {
        let is_wanted = |offer: &&Offer| match &offer.kind {
            Kind::Partition { profile } | Kind::MpsShare { profile: Some(profile) } => {
                ProfileSpelling::of_profile(profile).is_ok_and(|profile| profile == *wanted)
            }
            _ => false,
        };
        self.offers.iter().filter(is_wanted).find_map(|offer| offer.multiprocessors)
    }
}

/// What is found on each card.
pub fn neighbours(view: &FleetView, objects: &Objects, offers: &Offers, asked: Asked<'_>) -> Vec<Neighbours> {
    let mut found = Vec::new();
    for node in &view.nodes {
        for card in node.cards.values() {
            let offers = offers.get(&card.product_name).map(Vec::as_slice).unwrap_or_default();
            let parts = Parts { objects, offers, driver: asked.driver };
            let is_seen = |holder: &&Holder| holder.observed_seconds.unwrap_or_default() >= asked.min_seconds;
            let holders: Vec<&Holder> = card.holders.iter().filter(is_seen).collect();
            let is_asked = |holder: &&&Holder| asked.namespace.is_none_or(|only| only == holder.namespace);
            for holder in holders.iter().filter(is_asked) {
                found.extend(at_ceiling(&node.name, holder, &holders, parts));
            }
            if holders.iter().any(|holder| is_asked(&holder)) {
                found.extend(too_many(&node.name, card, &holders));
            }
        }
    }
    found
}

fn name(holder: &Holder) -> String {
    format!("{}/{}", holder.namespace, holder.claim)
}

/// Whether the holder has a time-slice.
pub fn is_time_slice(holder: &Holder) -> bool {
    matches!(holder.device.parse::<DeviceName>(), Ok(DeviceName::TimeSlice(_)))
}

fn at_ceiling(node: &str, holder: &Holder, all: &[&Holder], parts: Parts<'_>) -> Option<Neighbours> {
    let has = parts.of(holder)?;
    let uses = holder.sm_mean?;
    if has >= 1.0 || uses < has * CEILING {
        return None;
    }
    let is_idle = |other: &&&Holder| {
        let is_unused = other.sm_mean.zip(parts.of(other)).is_some_and(|(mean, part)| mean < part * IDLE);
        name(other) != name(holder) && (other.idle_since.is_some() || is_unused)
    };
    let idle: Vec<String> = all.iter().filter(is_idle).map(|other| name(other)).collect();
    (!idle.is_empty()).then(|| Neighbours::AtCeiling {
        node: node.to_owned(),
        device: holder.device.clone(),
        claim: name(holder),
        has,
        uses,
        idle,
    })
}

fn too_many(node: &str, card: &CardView, holders: &[&Holder]) -> Option<Neighbours> {
    let slices: Vec<&&Holder> = holders.iter().filter(|holder| is_time_slice(holder)).collect();
    let busy: f64 = slices.iter().filter_map(|holder| holder.sm_mean).sum();
    let memory_peak_mib: u64 = slices.iter().filter_map(|holder| holder.memory_peak_mib).sum();
    let is_full = busy >= CEILING || (card.memory_mib > 0 && memory_peak_mib > card.memory_mib);
    (slices.len() > 1 && is_full).then(|| Neighbours::TooManySlices {
        node: node.to_owned(),
        device: slices[0].device.clone(),
        claims: slices.len(),
        busy,
        memory_peak_mib,
        memory_mib: card.memory_mib,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_of_a_partition_is_by_its_multiprocessors() {
        // An A100 of 80 GB: half of the memory, and 42 of the 98 multiprocessors that its partitions can have.
        let of_98 = |kind, count: u32| Offer {
            kind,
            memory_mib: 40_192,
            multiprocessors: Some(f64::from(count) / 98.0),
            worth: 0.5,
            least_memory_mib: 1,
            least_compute: 1,
            clients: 1,
            class: None,
        };
        let partition = |profile: &str, count| of_98(Kind::Partition { profile: profile.to_owned() }, count);
        let offers = [partition("4g.40gb", 56), partition("3g.40gb", 42)];
        let holder = |device: &str, sm_mean| Holder {
            device: device.to_owned(),
            namespace: "team".to_owned(),
            claim: device.to_owned(),
            allocated: 500,
            sm_mean: Some(sm_mean),
            ..Holder::default()
        };
        let objects = Objects::default();
        let ceiling = |device: &str, uses, offers: &[Offer]| {
            let (busy, idle) = (holder(device, uses), holder("gpu-18-00-mig-3g40gb-4", 0.01));
            let parts = Parts { objects: &objects, offers, driver: "gpu.tessera.dev" };
            at_ceiling("node-a", &busy, &[&busy, &idle], parts).is_some()
        };
        assert!(ceiling("gpu-18-00-mig-3g40gb-0", 0.42, &offers));
        assert!(!ceiling("gpu-18-00-mig-3g40gb-0", 0.38, &offers));
        assert!(!ceiling("gpu-18-00-mig-3g40gb-0", 0.42, &[]), "unknown");
        // Of a claim that is not known the worth counts.
        assert!(!ceiling("gpu-18-00-mig-3g40gb-0-mps", 0.42, &offers));
        for device in ["gpu-18-00", "gpu-18-00-ts"] {
            assert!(!ceiling(device, 0.95, &offers), "{device}: no limit");
        }
    }
}
