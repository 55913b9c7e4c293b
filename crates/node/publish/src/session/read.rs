use std::{sync::Arc, time::Duration};

use tessera_slices::{Contents, Slice};

use super::Session;
use crate::{
    failure::Failure,
    held_slice::{HeldContents, HeldSlice},
    names,
};

impl Session {
    /// Reads the slices changed since their last read or write.
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

    /// Reads the slices of this node's pool, before this instance's first write.
    ///
    /// # Errors
    /// The pause before the next try.
    pub async fn published_before(&mut self) -> Result<Arc<[Slice]>, Duration> {
        if let Err(failure) = self.read().await {
            return Err(self.failed(&failure));
        }
        self.backoff.reset();
        self.writing.worked();
        let of_pool = |slice: &&HeldSlice| slice.pool_name() == Some(&self.identity.pool_name);
        let slice = |slice: &HeldSlice| {
            let spec = slice.spec.as_ref()?;
            let contents = match &spec.contents {
                HeldContents::Same(contents) => contents.clone(),
                HeldContents::Other(_) => Contents::of(&spec.other()?),
            };
            let (node, driver) = (&self.identity.node_name, &self.identity.driver_name);
            let name_suffix =
                names::name_suffix(node, driver, slice.name()).unwrap_or(slice.name()).to_owned();
            Some(Slice { name_suffix, contents })
        };
        let mut slices: Vec<Slice> = self.store.iter().filter(of_pool).filter_map(slice).collect();
        slices.sort_by(|one, other| one.name_suffix.cmp(&other.name_suffix));
        Ok(slices.into())
    }

    fn forget(&mut self, name: &str) {
        if let Some(metadata) = self.store.get(name).map(|slice| slice.metadata.clone()) {
            self.store.remove(&metadata);
        }
    }
}
