//! Releases claims the kubelet will never unprepare.

use std::collections::BTreeSet;

use crate::prepare::PrepareError;
use crate::prepare::cards::holder::holders;
use crate::prepare::cards::worker::Worker;

impl Worker {
    /// See [`Preparer::sweep`](crate::prepare::Preparer::sweep).
    pub async fn sweep(&self) -> Result<(), PrepareError> {
        self.recover().await?;
        for holder in self.disk(holders).await? {
            // Otherwise work on the claim is in flight.
            if holder.record.as_ref().is_some_and(|record| self.is_prepared(record)) {
                self.release_if_stale(&holder, &BTreeSet::new()).await;
            }
        }
        Ok(())
    }
}
