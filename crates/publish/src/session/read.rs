use std::{sync::Arc, time::Duration};

use super::Session;
use crate::{
    contents::Contents,
    failure::Failure,
    held_slice::{HeldContents, HeldSlice},
};

impl Session {
    /// Reads the slices that have changed since they were last read or written.
    pub(super) async fn read(&mut self) -> Result<(), Failure> {
        let unread = self.store.unread();
        if unread.len() > 1 {
            let listed = self.server.list(&self.identity).await?;
            for name in unread.iter().filter(|name| !listed.iter().any(|slice| slice.name() == **name)) {
                self.forget(name);
            }
            listed.into_iter().for_each(|slice| self.store.apply(slice));
            return Ok(());
        }
        for name in unread {
            match self.server.get(&name).await? {
                Some(slice) => self.store.apply(slice.into()),
                None => self.forget(&name),
            }
        }
        Ok(())
    }

    /// Reads the slices of this node's pool, before this instance writes any.
    ///
    /// # Errors
    /// The pause before the next try.
    pub async fn published_before(&mut self) -> Result<Arc<[Contents]>, Duration> {
        if let Err(failure) = self.read().await {
            return Err(self.failed(&failure));
        }
        self.backoff.reset();
        self.writing.worked();
        let of_pool = |slice: &&HeldSlice| slice.pool_name() == Some(&self.identity.pool_name);
        let specs = self.store.iter().filter(of_pool).filter_map(|slice| slice.spec.as_ref());
        let contents = specs.filter_map(|spec| match &spec.contents {
            HeldContents::Same(contents) => Some(contents.clone()),
            HeldContents::Other(_) => spec.other().as_ref().map(Contents::of),
        });
        Ok(contents.collect())
    }

    fn forget(&mut self, name: &str) {
        if let Some(metadata) = self.store.get(name).map(|slice| slice.metadata.clone()) {
            self.store.remove(&metadata);
        }
    }
}
