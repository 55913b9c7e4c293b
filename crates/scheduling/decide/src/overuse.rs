//! Claims that hold more memory than their part, while a neighbour could not get its own.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use tessera_api::device_status::{ENDANGERS, MEMORY_OVERUSE};
use tessera_cluster::{ClaimExt, Key};
use tessera_placement::Time;

/// Pause between two looks at the pods.
const PAUSE: Time = Time::from_secs(30);

/// The claims that endanger others.
#[derive(Debug, Default)]
pub(crate) struct Overuse {
    claims: BTreeSet<Key>,
    /// When to look at their pods next.
    due: Option<Time>,
}

/// The devices of which the claim endangers others, each with the words of its node's plugin.
pub(crate) fn endangering<'c>(claim: &'c ResourceClaim, driver: &str) -> Vec<(&'c str, &'c str)> {
    let told = claim.status.as_ref().and_then(|status| status.devices.as_deref()).unwrap_or_default();
    let words = |result: &'c DeviceRequestAllocationResult| {
        let entry = told.iter().find(|entry| {
            (&entry.driver, &entry.pool, &entry.device, &entry.share_id)
                == (&result.driver, &result.pool, &result.device, &result.share_id)
        })?;
        let mut conditions = entry.conditions.iter().flatten();
        let condition = conditions.find(|condition| {
            (&*condition.type_, &*condition.status, &*condition.reason) == (MEMORY_OVERUSE, "True", ENDANGERS)
        })?;
        Some((&*result.device, &*condition.message))
    };
    claim.results().iter().filter(|result| result.driver == driver).filter_map(words).collect()
}

impl Overuse {
    /// Records whether a claim endangers others.
    pub fn set(&mut self, claim: &Key, endangers: bool, now: Time) {
        let is_changed = match endangers {
            true => self.claims.insert(claim.clone()),
            false => self.claims.remove(claim),
        };
        if is_changed {
            self.due = Some(now);
        }
    }

    /// The claims, if it is time to look at their pods.
    pub fn take_due(&mut self, now: Time) -> BTreeSet<Key> {
        if self.due.is_none_or(|due| due > now) {
            return BTreeSet::new();
        }
        self.due = (!self.claims.is_empty()).then_some(now + PAUSE);
        self.claims.clone()
    }

    /// When to look at the pods next.
    pub fn next_due(&self) -> Option<Time> {
        self.due
    }
}
