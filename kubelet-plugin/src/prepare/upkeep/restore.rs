//! Restores CDI specs of prepared claims when missing or out of date.

use std::sync::Arc;

use tessera_journal::{ClaimRecord, Journal};

use crate::cdi;
use crate::prepare::PrepareError;
use crate::prepare::attempt::{has_metadata, spec, write_metadata};
use crate::prepare::cards::Worker;

impl Worker {
    /// See [`Preparer::restore_specs`](crate::prepare::Preparer::restore_specs). Without the driver's files, specs stay unchanged: a
    /// restarted container then fails with the name of a file, instead of running without CUDA.
    pub async fn restore_specs(&self) -> Result<(), PrepareError> {
        let nvml = self.nvml()?;
        let files = self.files.of(&nvml, &self.calls, &self.options).await?;
        for entry in self.disk(|journal, _| journal.claims()).await? {
            // Skip a locked claim: the work in flight writes the spec.
            let Some(_claim_lock) = self.locks.try_claim(&entry.id)? else { continue };
            let Some(mut record) = self.recorded(&entry.id).await?.filter(|record| self.is_prepared(record))
            else {
                continue;
            };
            match self.with_present_minors(&record).await {
                Ok(numbered) => record = numbered,
                Err(error @ PrepareError::OtherCard { .. }) => {
                    tracing::error!(uid = record.uid, %error, "a prepared claim's card was replaced");
                    continue;
                }
                Err(error) => return Err(error),
            }
            let sharing = self.sharing.clone();
            let follow = move |journal: &Journal, _: &cdi::Directory| {
                if sharing.follow_static_partitions(&mut record) {
                    tracing::info!(uid = record.uid, "its static partitions have other names now");
                    journal.put_claim(&record)?;
                }
                Ok::<_, PrepareError>(record)
            };
            record = self.disk(follow).await?;
            // An error with one claim must not stop the others.
            match self.restore_spec(&record, files.clone()).await {
                Err(error @ (PrepareError::Capability { .. } | PrepareError::NoPartition { .. })) => {
                    tracing::error!(uid = record.uid, %error, "cannot tell a prepared claim's CDI spec");
                }
                restored => restored?,
            }
        }
        Ok(())
    }

    async fn restore_spec(
        &self,
        record: &ClaimRecord,
        files: Arc<cdi::DriverFiles>,
    ) -> Result<(), PrepareError> {
        let (options, claim) = (self.options.clone(), record.clone());
        let published = self.published.borrow().clone();
        let write = move |_: &Journal, cdi: &cdi::Directory| {
            if !has_metadata(cdi, &claim)? {
                write_metadata(cdi, &claim, published.as_deref())?;
            }
            let spec = spec(cdi, &options, &claim, &files)?;
            if cdi.read(&claim.uid)?.as_ref() == Some(&spec) {
                return Ok(true);
            }
            cdi.write(&claim.uid, &spec)?;
            Ok::<_, PrepareError>(false)
        };
        let is_right = self.disk(write).await?;
        if !is_right {
            tracing::info!(uid = record.uid, "wrote the CDI spec of a prepared claim again");
        }
        Ok(())
    }
}
