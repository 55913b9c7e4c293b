//! Claims that their pods do not use, and announced evictions of these pods.

pub(crate) mod groups;
pub(crate) mod successors;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tessera_api::device_status::{BELOW, IDLE};
use tessera_cluster::{ClaimExt, Key};
use tessera_placement::Time;

use crate::group::GroupId;

/// Pause between two looks at the groups with idle claims.
const PAUSE: Time = Time::from_secs(30);

/// Idle claims.
#[derive(Debug, Default)]
pub(crate) struct IdleClaims {
    claims: BTreeSet<Key>,
    /// Groups whose eviction was announced, each with the group that waits for its devices, if any.
    announced: BTreeMap<(GroupId, Option<GroupId>), Time>,
    /// When to look at the groups next.
    due: Option<Time>,
}

/// The condition by which the claim is idle. `None` unless its node's plugin says so of all of its devices.
pub(crate) fn condition<'c>(claim: &'c ResourceClaim, driver: &str) -> Option<&'c Condition> {
    let told = claim.status.as_ref()?.devices.as_deref()?;
    let mut found = None;
    for result in claim.results().iter().filter(|result| result.driver == driver) {
        let entry = told.iter().find(|entry| {
            (&entry.driver, &entry.pool, &entry.device, &entry.share_id)
                == (&result.driver, &result.pool, &result.device, &result.share_id)
        })?;
        let mut conditions = entry.conditions.iter().flatten();
        found = Some(conditions.find(|condition| condition.type_ == IDLE && condition.status == "True")?);
    }
    found
}

/// Why the claim is idle, in the plugin's words. `None` also for pods that have not started: they hold their devices for another
/// reason.
pub(crate) fn why_idle<'c>(claim: &'c ResourceClaim, driver: &str) -> Option<&'c str> {
    let condition = condition(claim, driver).filter(|condition| condition.reason == BELOW)?;
    Some(&condition.message)
}

impl IdleClaims {
    /// Records whether a claim is idle. Returns whether that is new.
    pub fn set(&mut self, claim: &Key, is_idle: bool, now: Time) -> bool {
        let is_changed = match is_idle {
            true => self.claims.insert(claim.clone()),
            false => self.claims.remove(claim),
        };
        if is_changed {
            self.due = Some(now);
        }
        is_changed
    }

    /// Whether it is time to look at the groups.
    pub fn take_due(&mut self, now: Time) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.due = (!self.claims.is_empty()).then_some(now + PAUSE);
        }
        is_due
    }

    /// All idle claims.
    pub fn claims(&self) -> &BTreeSet<Key> {
        &self.claims
    }

    /// When to look at the groups next.
    pub fn next_due(&self) -> Option<Time> {
        self.due
    }

    /// Looks at the groups at `then` at the latest.
    pub fn look_at(&mut self, then: Time) {
        self.due = Some(self.due.map_or(then, |due| due.min(then)));
    }

    /// When the eviction of the group, for another that waits if `wanted_by` says so, was announced; `None` if this look is the first to find
    /// the group idle.
    pub fn announce(&mut self, group: &GroupId, wanted_by: Option<&GroupId>, now: Time) -> Option<Time> {
        let announcement = (group.clone(), wanted_by.cloned());
        if let Some(announced) = self.announced.get(&announcement) {
            return Some(*announced);
        }
        self.announced.insert(announcement, now);
        None
    }

    /// Forgets the announcements that are not to be kept, to a group for a group that waits.
    pub fn keep_announced(&mut self, mut is_kept: impl FnMut(&GroupId, Option<&GroupId>) -> bool) {
        self.announced.retain(|(group, wanted_by), _| is_kept(group, wanted_by.as_ref()));
    }
}
