//! Claims whose devices cannot be prepared, and how often pods were evicted for it.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_api::{DeviceName, PciBusId, device_status};
use tessera_cluster::Key;
use tessera_placement::Time;

use crate::ledger::OwnerCount;

/// How long a card is left alone after it was last seen to fail.
pub(crate) const AVOIDED: Time = Time::from_secs(3600);

/// Evictions of pods of one owner.
pub(crate) const MOST_EVICTIONS: u32 = 3;

/// How long evictions are remembered after the last of an owner's pods.
const REMEMBERED: Time = Time::from_secs(24 * 3600);

/// Pause between two looks at a claim that still fails.
const PAUSE: Time = Time::from_secs(30);

/// What is known of failures.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    /// Claims that cannot be prepared.
    failing: BTreeMap<Key, Failing>,
    /// Evictions by owner, with when the last one was. Those before this process stand on the owner's pods.
    evictions: BTreeMap<String, (u32, Time)>,
}

/// A claim that cannot be prepared.
#[derive(Debug)]
struct Failing {
    /// When this process saw it first.
    since: Time,
    /// When to look at it.
    due: Time,
}

/// What a claim says of devices that cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unready {
    /// The first failure, by the node's clock, which may be minutes off.
    pub since: Time,
    /// The cards of the devices with which something is wrong.
    pub cards: Vec<PciBusId>,
    /// A device and why it cannot be prepared.
    pub why: String,
}

/// Which devices of the driver the claim says cannot be prepared.
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

impl Healing {
    /// The claim cannot be prepared, as seen `now`: it is looked at when it is `due`.
    pub fn add_failing(&mut self, claim: &Key, now: Time, due: Time) {
        self.failing.entry(claim.clone()).or_insert(Failing { since: now, due });
    }

    /// The claim can be prepared, or is gone.
    pub fn remove_failing(&mut self, claim: &Key) {
        self.failing.remove(claim);
    }

    /// Claims to look at now, each with when this process saw it fail first; those that still fail are looked at again after a pause.
    pub fn take_due(&mut self, now: Time) -> Vec<(Key, Time)> {
        let due = self.failing.iter_mut().filter(|(_, failing)| failing.due <= now);
        due.map(|(claim, failing)| {
            failing.due = now + PAUSE;
            (claim.clone(), failing.since)
        })
        .collect()
    }

    /// When the next claim is to be looked at.
    pub fn next_due(&self) -> Option<Time> {
        self.failing.values().map(|failing| failing.due).min()
    }

    /// How often this process evicted pods of the owner.
    pub fn evictions(&self, owner: &str) -> u32 {
        self.evictions.get(owner).map_or(0, |(count, _)| *count)
    }

    /// Counts an eviction that was done.
    pub fn count(&mut self, done: OwnerCount, now: Time) {
        self.evictions.retain(|_, (_, last)| *last + REMEMBERED > now);
        let known = self.evictions.entry(done.owner).or_insert((0, now));
        *known = (known.0.max(done.evictions), now);
    }
}
