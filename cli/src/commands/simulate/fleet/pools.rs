//! GpuPools of a file, and their effect on a fleet.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use tessera_cluster::Key;
use tessera_simulate::fleet::{Fleet, LayoutFile, Pools};

use super::wrong;
use crate::files::{self, Besides};
use crate::output::{self, CommandError, printable, warn};

/// Most bytes of a file of MIG layouts, as for the plugin.
const LARGEST_LAYOUTS: u64 = 1 << 20;

/// The pools of a file or folder.
pub struct PoolFile {
    /// The path as given.
    pub name: String,
    /// The pools in the file.
    pub pools: Pools,
}

/// Effect of a file's pools on a fleet.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolsOfFleet {
    /// By name.
    pools: BTreeMap<String, PoolOfFleet>,
    /// Cards selected by none of the pools.
    cards_without_pool: usize,
}

/// Effect of a pool on a fleet: the contents of its status.
#[derive(Serialize)]
struct PoolOfFleet {
    nodes: u32,
    cards: u32,
    devices: u32,
    state: &'static str,
    message: String,
}

/// Reads the pools.
///
/// # Errors
/// The file is unreadable, has no pools, or an invalid one.
pub fn read(file: &Path, layouts: Option<&Arc<LayoutFile>>) -> Result<PoolFile, CommandError> {
    let texts = files::read(&[file.to_owned()], false)?;
    let loaded = files::parse(&texts, "default", Besides::Nothing)?;
    warn(&loaded.warnings);
    let mut pools = Pools::default().with_layouts(layouts.cloned());
    for (Key { name, .. }, pool) in loaded.pools {
        let inserted = pools.insert(&name, pool.metadata.creation_timestamp, &json!(pool.spec));
        inserted.map_err(|error| wrong(file, &format!("GpuPool {name}: {error}")))?;
    }
    if pools.names().next().is_none() {
        return Err(wrong(file, &"contains no GpuPool"));
    }
    Ok(PoolFile { name: file.display().to_string(), pools })
}

/// Reads MIG layouts.
///
/// # Errors
/// The file cannot be read, or has none.
pub fn layouts(file: &Path) -> Result<Arc<LayoutFile>, CommandError> {
    let opened = File::open(file).map_err(|error| wrong(file, &error))?;
    let mut text = String::new();
    opened.take(LARGEST_LAYOUTS + 1).read_to_string(&mut text).map_err(|error| wrong(file, &error))?;
    if text.len() as u64 > LARGEST_LAYOUTS {
        return Err(wrong(file, &format!("is larger than {LARGEST_LAYOUTS} bytes")));
    }
    LayoutFile::parse(&text).map(Arc::new).map_err(|error| wrong(file, &error))
}

impl PoolsOfFleet {
    /// Of this fleet, whose cards these pools decide on.
    pub fn of(fleet: &Fleet, file: &PoolFile) -> Self {
        let mut found = fleet.pools();
        let pool = |name: &str| {
            let summary = found.remove(name).unwrap_or_default();
            let verdict = summary.verdict();
            let (nodes, cards, devices) = (summary.nodes, summary.cards, summary.offered);
            let pool = PoolOfFleet { nodes, cards, devices, state: verdict.reason, message: verdict.message };
            (name.to_owned(), pool)
        };
        let pools: BTreeMap<String, PoolOfFleet> = file.pools.names().map(pool).collect();
        let of_pools: usize = pools.values().map(|pool| pool.cards as usize).sum();
        Self { pools, cards_without_pool: fleet.cards() - of_pools.min(fleet.cards()) }
    }

    /// As a table.
    pub fn text(&self) -> String {
        let rows = self.pools.iter().map(|(name, pool)| {
            let PoolOfFleet { nodes, cards, devices, state, message } = pool;
            let counts = [nodes, cards, devices].map(u32::to_string);
            let mut row = vec![name.clone()];
            row.extend(counts);
            row.extend([(*state).to_owned(), printable(message)]);
            row
        });
        let mut text = output::table(&["POOL", "NODES", "CARDS", "DEVICES", "STATE", "MESSAGE"], rows);
        match self.cards_without_pool {
            0 => {}
            1 => text += "1 card belongs to no pool and is offered whole and in MIG partitions\n",
            cards => {
                text +=
                    &format!("{cards} cards belong to no pool and are offered whole and in MIG partitions\n");
            }
        }
        text
    }
}
