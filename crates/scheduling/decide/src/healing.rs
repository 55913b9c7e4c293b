//! Claims whose devices cannot be prepared, and counts of the pods evicted because of them.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::{DeviceName, PciBusId, device_status};
use tessera_cluster::Key;
use tessera_placement::Time;

use crate::ledger::OwnerCount;

/// How long a card is avoided after its last observed failure.
pub(crate) const AVOIDED: Time = Time::from_secs(3600);

/// Maximum number of evictions of pods of one owner.
pub(crate) const MOST_EVICTIONS: u32 = 3;

/// How long eviction counts are kept after the last eviction of an owner's pod.
const REMEMBERED: Time = Time::from_secs(24 * 3600);

/// Devices must have failed for so long, unless told.
const HEAL_AFTER: Time = Time::from_secs(300);

/// Pause between two checks of a failing claim.
const PAUSE: Time = Time::from_secs(30);

/// Known failures.
#[derive(Debug)]
pub(crate) struct Healing {
    /// See [`crate::Decider::with_heal_after`].
    pub after: Time,
    /// Claims whose devices cannot be prepared.
    failing: BTreeMap<Key, Failing>,
    /// Evictions by owner, with the time of the last one. Counts from before this process are annotated on the owner's pods.
    evictions: BTreeMap<String, (u32, Time)>,
}

/// A claim whose devices cannot be prepared.
#[derive(Debug)]
struct Failing {
    /// When this process first observed the failure.
    since: Time,
    /// When to check the claim next.
    due: Time,
}

/// Preparation failures from a claim's device status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unready {
    /// Time of the first failure by the node's clock, possibly minutes off.
    pub since: Time,
    /// Cards of the faulty devices.
    pub cards: Vec<PciBusId>,
    /// One device with its error.
    pub why: String,
}

/// Devices of the driver failing preparation by the claim's status, except for invalid configurations.
pub(crate) fn unready(claim: &ResourceClaim, driver: &str) -> Option<Unready> {
    let devices = claim.status.iter().flat_map(|status| status.devices.iter().flatten());
    let mut found: Option<Unready> = None;
    for device in devices.filter(|device| device.driver == driver) {
        let failed = device.conditions.iter().flatten().find(|condition| {
            condition.type_ == device_status::READY
                && condition.status == "False"
                && condition.reason != device_status::INVALID_CONFIG
        });
        let Some(failed) = failed else { continue };
        let since = u64::try_from(failed.last_transition_time.0.as_second()).unwrap_or_default();
        let unready = found.get_or_insert_with(|| Unready {
            since: Time::from_secs(since),
            cards: Vec::new(),
            why: format!("{}: {}", device.device, failed.message),
        });
        unready.since = unready.since.min(Time::from_secs(since));
        if failed.reason != device_status::HELD {
            unready.cards.extend(device.device.parse().ok().map(|name: DeviceName| name.card()));
        }
    }
    found
}

impl Default for Healing {
    fn default() -> Self {
        Healing { after: HEAL_AFTER, failing: BTreeMap::new(), evictions: BTreeMap::new() }
    }
}

impl Healing {
    /// Records a claim failing since `now`, to be checked when `due`.
    pub fn add_failing(&mut self, claim: &Key, now: Time, due: Time) {
        self.failing.entry(claim.clone()).or_insert(Failing { since: now, due });
    }

    /// Removes a claim after recovery or deletion.
    pub fn remove_failing(&mut self, claim: &Key) {
        self.failing.remove(claim);
    }

    /// Claims to check now, each with the time its failure was first observed. Each is due again after a pause.
    pub fn take_due(&mut self, now: Time) -> Vec<(Key, Time)> {
        let due = self.failing.iter_mut().filter(|(_, failing)| failing.due <= now);
        due.map(|(claim, failing)| {
            failing.due = now + PAUSE;
            (claim.clone(), failing.since)
        })
        .collect()
    }

    /// When the next claim is due.
    pub fn next_due(&self) -> Option<Time> {
        self.failing.values().map(|failing| failing.due).min()
    }

    /// Number of the owner's pods evicted by this process.
    pub fn evictions(&self, owner: &str) -> u32 {
        self.evictions.get(owner).map_or(0, |(count, _)| *count)
    }

    /// Counts an accepted eviction.
    pub fn count(&mut self, done: OwnerCount, now: Time) {
        self.evictions.retain(|_, (_, last)| *last + REMEMBERED > now);
        let known = self.evictions.entry(done.owner).or_insert((0, now));
        *known = (known.0.max(done.evictions), now);
    }
}
