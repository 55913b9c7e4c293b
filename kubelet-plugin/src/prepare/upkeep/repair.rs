//! Looks for prepared claims that have lost devices.

use std::time::Instant;

use tokio::time::Instant as Deadline;

use crate::prepare::attempt::{Attempt, Call, Ending};
use crate::prepare::cards::{IfHeld, Worker};
use crate::prepare::claim::{recorded_devices, reference};
use crate::prepare::tell::claim_events;
use crate::prepare::{Operation, PrepareError};

impl Worker {
    /// Recreates devices lost by prepared claims within this boot: somebody destroyed partitions, or the driver was reloaded. A
    /// container restarting later gets the devices existing then.
    pub async fn repair(&self) -> Result<(), PrepareError> {
        for entry in self.disk(|journal, _| journal.shared_claims()).await? {
            let Ok(record) = entry.record else { continue };
            if !self.is_prepared(&record) || record.devices.iter().all(|device| device.hardware.is_empty()) {
                continue;
            }
            // Skip a locked claim: the work in flight repairs the claim too.
            let Some(_claim_lock) = self.locks.try_claim(&entry.id)? else { continue };
            let Some(record) = self.recorded(&entry.id).await?.filter(|record| self.is_prepared(record))
            else {
                continue;
            };
            // A device of several claims is recreated by the next Prepare of each claim.
            if record.devices.iter().any(|device| device.share_id.is_some()) {
                continue;
            }
            let missing = self.missing(&record).await?;
            if missing.is_empty() {
                continue;
            }
            let claim = reference::of_record(&record);
            let call = Call::new(Deadline::now() + self.options.answer_within, Ending::default());
            let (operation, if_held) = (Operation::Prepare, IfHeld::Wait);
            let attempt = Attempt { worker: self, operation, claim: &claim, call: &call, if_held };
            let since = Instant::now();
            let made = match recorded_devices(&record) {
                Ok(devices) => attempt.make_again(Some(&record), &devices, &missing).await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = made {
                tracing::error!(uid = record.uid, %error, elapsed = ?since.elapsed(),
                    "what the claim has lost can't be made again; it keeps the rest");
                claim_events::failed(&self.events, Operation::Prepare, &claim, &error);
            }
        }
        Ok(())
    }
}
