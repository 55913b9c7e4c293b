//! Reads the wanted layouts from the file, by the names in pools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tessera_api::PciBusId;
use tessera_inventory::layout::{LayoutConfig, LayoutFile};

use crate::gpu_pools::Resolution;

/// Size limit of a layout file, in bytes. NVIDIA's own file for all its boards has 20 KB.
const LARGEST_FILE: u64 = 1 << 20;

/// A configuration and its name.
pub(super) type Named = (String, Arc<LayoutConfig>);

/// Why a wanted layout is unknown. Until known again, the last one applies.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The file can't be read.
    #[error("cannot read the layout file {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    /// The file exceeds the size limit.
    #[error("the layout file {path} is larger than {LARGEST_FILE} bytes")]
    TooLarge { path: PathBuf },
    /// Its content is wrong.
    #[error("the layout file {path}: {reason}")]
    Content { path: PathBuf, reason: String },
}

/// The layouts assigned to cards.
#[derive(Debug, Default)]
pub(super) struct Wanted(BTreeMap<PciBusId, Option<Named>>);

impl Wanted {
    /// Updates the layouts for the names in `resolution`.
    ///
    /// # Errors
    /// The first error; cards whose layout is not found keep the last one.
    pub(super) fn read(&mut self, path: &Path, resolution: &Resolution) -> Result<(), SourceError> {
        self.0.retain(|card, _| resolution.cards.contains_key(card));
        for card in resolution.cards.keys().filter(|card| !resolution.layouts.contains_key(card)) {
            self.0.insert(*card, None);
        }
        if resolution.layouts.is_empty() {
            return Ok(());
        }
        // Blocking is fine: a small file, rarely read.
        let file = read(path)?;
        let configs: BTreeMap<&str, Result<Arc<LayoutConfig>, String>> = resolution
            .layouts
            .values()
            .map(|name| {
                let config = file.config(name).map_err(|error| error.to_string());
                (name.as_str(), config.map(|config| Arc::new(config.clone())))
            })
            .collect();
        let mut result = Ok(());
        for (card, name) in &resolution.layouts {
            match configs.get(name.as_str()) {
                Some(Ok(config)) => {
                    self.0.insert(*card, Some((name.clone(), Arc::clone(config))));
                }
                Some(Err(reason)) if result.is_ok() => {
                    result = Err(SourceError::Content { path: path.to_owned(), reason: reason.clone() });
                }
                _ => {}
            }
        }
        result
    }

    /// The layout assigned to a card, or none; `None` while unknown.
    pub(super) fn of(&self, card: PciBusId) -> Option<Option<&Named>> {
        self.0.get(&card).map(Option::as_ref)
    }
}

fn read(path: &Path) -> Result<LayoutFile, SourceError> {
    let failed = |source| SourceError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > LARGEST_FILE {
        return Err(SourceError::TooLarge { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    LayoutFile::parse(&text)
        .map_err(|error| SourceError::Content { path: path.to_owned(), reason: error.to_string() })
}
