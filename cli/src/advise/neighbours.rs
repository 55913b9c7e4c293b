//! Cards that their claims divide badly: a claim at its ceiling beside idle neighbours, and more time-slices than a card has time or
//! memory for.

use serde::Serialize;
use tessera_api::DeviceName;
use tessera_api::capacity;
use tessera_api::fleet_view::{CardView, FleetView, Holder};
use tessera_cluster::{Key, Objects};

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

/// What is found on each card.
pub fn neighbours(view: &FleetView, objects: &Objects, asked: Asked<'_>) -> Vec<Neighbours> {
    let mut found = Vec::new();
    for node in &view.nodes {
        for card in node.cards.values() {
            let is_seen = |holder: &&Holder| holder.observed_seconds.unwrap_or_default() >= asked.min_seconds;
            let holders: Vec<&Holder> = card.holders.iter().filter(is_seen).collect();
            let is_asked = |holder: &&&Holder| asked.namespace.is_none_or(|only| only == holder.namespace);
            for holder in holders.iter().filter(is_asked) {
                found.extend(at_ceiling(&node.name, holder, &holders, objects, asked.driver));
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

/// A holder's multiprocessors, as a share of the card's: of a share by MPS what the claim consumes, of others what they are worth.
fn part(holder: &Holder, objects: &Objects, driver: &str) -> f64 {
    let of_share = || {
        let Ok(DeviceName::Mps(_)) = holder.device.parse::<DeviceName>() else { return None };
        let claim = objects.claims.get(&Key::new(&holder.namespace, &holder.claim))?;
        let consumed = result_of(claim, driver, &holder.device)?.consumed_capacity.as_ref()?;
        consumed.get(capacity::COMPUTE)?.0.parse::<f64>().ok()
    };
    of_share().map_or(f64::from(holder.allocated) / 1000.0, |percent| percent / 100.0)
}

fn at_ceiling(
    node: &str,
    holder: &Holder,
    all: &[&Holder],
    objects: &Objects,
    driver: &str,
) -> Option<Neighbours> {
    let has = part(holder, objects, driver);
    let uses = holder.sm_mean?;
    // A time-slice may take what others leave.
    if has >= 1.0 || is_time_slice(holder) || uses < has * CEILING {
        return None;
    }
    let is_idle = |other: &&&Holder| {
        let is_unused = other.sm_mean.is_some_and(|mean| mean < part(other, objects, driver) * IDLE);
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
