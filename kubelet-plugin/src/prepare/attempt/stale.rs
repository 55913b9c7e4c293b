//! Step 5: claims in the way. One the kubelet will never unprepare is released; any other refuses the allocation.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_api::PciBusId;

use super::kubelet_checkpoint::is_forgotten;
use super::record::held_cards;
use super::steps::Attempt;
use crate::prepare::cards::{Holder, IfHeld, Use, Worker, all_holders};
use crate::prepare::claim::{DeviceNeed, Found, allocated_devices, api, is_leaving, is_of_allocation};
use crate::prepare::{ClaimReference, Operation, PrepareError, blocking};
use tessera_journal::ClaimRecord;

/// Why a claim keeps its devices.
#[derive(Clone, Debug)]
pub(in crate::prepare) struct Reason {
    /// Ending for the refusal's text, with a separator in front.
    pub note: Cow<'static, str>,
    /// Whether the release of the claim is under way.
    pub is_leaving: bool,
}

const fn because(note: &'static str, is_leaving: bool) -> Reason {
    Reason { note: Cow::Borrowed(note), is_leaving }
}

const BUSY: Reason = because("; that claim is being worked on", true);
const UNKNOWN: Reason =
    because("; it could not be told whether that claim is still in use, see the plugin's log", true);
const DAMAGED: Reason = because("; see the plugin's log for what to do", false);
const OTHER_DRIVER: Reason = because(
    "; another installation of Tessera on this node has prepared it. Let one installation have the node's cards: end the \
           pods that use the other's, or run them on different nodes",
    false,
);
const GIVEN_TWICE: Reason =
    because("; its allocation says so too: the device was given to two claims", false);
const ENDING: Reason = because(
    "; that claim is still allocated, but it is being deleted or no pod uses it any more: the device is free \
           when the kubelet has unprepared it",
    true,
);
const DEALLOCATED: Reason = because(
    "; that claim is deleted or deallocated, but a pod with it may still run on this node: the device is free \
           when that pod has ended",
    true,
);

/// The reason if the claim keeps its devices because of the hardware; `None` for other errors.
fn not_freed(error: &PrepareError) -> Option<Reason> {
    let is_hardware = matches!(
        error,
        PrepareError::PartitionBusy { .. }
            | PrepareError::CardBusy { .. }
            | PrepareError::Hardware { .. }
            | PrepareError::Mps { .. }
    );
    is_hardware.then(|| Reason {
        note: format!("; what that claim held is not free yet: {error}").into(),
        is_leaving: true,
    })
}

impl Attempt<'_> {
    /// Refuses an allocation of devices held by other claims, unless the other claims are stale: then they are released. Returns
    /// whether any was. `locked` are the cards with locks held.
    pub async fn refuse_conflicts(
        &self,
        needs: &[DeviceNeed],
        locked: &BTreeSet<PciBusId>,
    ) -> Result<bool, PrepareError> {
        let mut released = false;
        let uses: Vec<Use<'_>> = needs.iter().map(Use::of_need).collect();
        let holders = self.worker.disk(all_holders).await?;
        for holder in holders.iter().filter(|holder| holder.uid != self.claim.uid) {
            let Some(contested) = uses.iter().find(|mine| holder.conflicts_with(**mine)) else { continue };
            if let Some(reason) = self.worker.release_if_stale(holder, locked).await {
                return Err(PrepareError::Held {
                    device: contested.device.to_owned(),
                    holder: holder.to_string(),
                    note: reason.note,
                    leaving: reason.is_leaving.then(|| holder.uid.clone()),
                });
            }
            released = true;
        }
        Ok(released)
    }
}

impl Worker {
    /// Releases a claim the kubelet will never unprepare, or returns why the claim keeps its devices.
    ///
    /// A claim force-deleted while its pod ran is gone from the API, and the scheduler gives its cards to other claims. But the
    /// pod may still run, and then its cards are not free. So a claim is released only if both agree: the kubelet has forgotten
    /// the claim ([`is_forgotten`]: none of its pods runs, and no Unprepare will come), and the claim is gone from the API or no
    /// longer has these devices there. The caller holds the locks of the cards `locked`, and no claim's but its own.
    pub async fn release_if_stale(&self, holder: &Holder, locked: &BTreeSet<PciBusId>) -> Option<Reason> {
        let error = match self.try_release(holder, locked).await {
            Ok(reason) => return reason,
            Err(error) => error,
        };
        let reason = not_freed(&error);
        if self.unreleased.is_news(&holder.uid, &error.to_string()) {
            match &reason {
                Some(_) => {
                    tracing::warn!(holder = %holder, %error, "what a claim held that has ended is not free yet")
                }
                None => {
                    tracing::warn!(holder = %holder, %error, "could not tell whether the holder is stale");
                }
            }
        }
        Some(reason.unwrap_or(UNKNOWN))
    }

    async fn try_release(
        &self,
        holder: &Holder,
        locked: &BTreeSet<PciBusId>,
    ) -> Result<Option<Reason>, PrepareError> {
        if holder.other_driver.is_some() {
            return Ok(if self.is_forgotten(&holder.uid).await? { None } else { Some(OTHER_DRIVER) });
        }
        let Some((claim, record)) = holder.claim().zip(holder.record.as_deref()) else {
            return Ok(Some(DAMAGED));
        };
        if !self.is_prepared(record) {
            // From another boot, or left by failed work and not undone: no container uses the devices.
            return self.release(&claim, record, locked, false).await;
        }
        let keeps = match api::get(&self.client, &claim, self.options.short_patience).await? {
            Found::Gone | Found::Other(_) => None,
            Found::Claim(found) => {
                let (driver, pool) = (&self.options.driver_name, &self.options.pool_name);
                let is_allocated = allocated_devices(&found, "", driver, pool)
                    .is_ok_and(|allocated| is_of_allocation(record, &allocated));
                is_allocated.then(|| if is_leaving(&found) { ENDING } else { GIVEN_TWICE })
            }
        };
        if keeps.is_some() {
            return Ok(keeps);
        }
        if !self.is_forgotten(&claim.uid).await? {
            return Ok(Some(DEALLOCATED));
        }
        tracing::warn!(holder = %claim, "releasing a claim that is gone from the API and that the kubelet has forgotten");
        self.release(&claim, record, locked, true).await
    }

    async fn is_forgotten(&self, uid: &str) -> Result<bool, PrepareError> {
        let (file_system, kubelet) =
            (self.options.file_system.clone(), self.options.kubelet_directory.clone());
        let uid = uid.to_owned();
        blocking::run(move || is_forgotten(&*file_system, &kubelet, &uid)).await
    }

    /// Undoes a claim unless the claim or its cards are locked, or the claim changed since its record was read; returns the
    /// reason instead. Waits for no lock, because the caller may hold locks others wait for. `is_forgotten`: the claim may be
    /// undone because the kubelet has forgotten the claim.
    async fn release(
        &self,
        claim: &ClaimReference,
        record: &ClaimRecord,
        locked: &BTreeSet<PciBusId>,
        is_forgotten: bool,
    ) -> Result<Option<Reason>, PrepareError> {
        let Some(_claim_lock) = self.locks.try_claim(&claim.uid)? else { return Ok(Some(BUSY)) };
        let cards = held_cards(record).difference(locked).copied().collect();
        let Some(card_locks) = self.locks.try_cards(&cards)? else { return Ok(Some(BUSY)) };
        if self.recorded(&claim.uid).await?.as_ref() != Some(record) {
            return Ok(Some(BUSY));
        }
        // The claim may have been prepared again unchanged. The kubelet notes a claim in its checkpoint before calling Prepare.
        if is_forgotten && !self.is_forgotten(&claim.uid).await? {
            return Ok(Some(BUSY));
        }
        let recorded = Some((record, &Arc::new(card_locks)));
        self.undo(Operation::Unprepare, &claim.uid, recorded, IfHeld::Leave).await?;
        Ok(None)
    }
}
