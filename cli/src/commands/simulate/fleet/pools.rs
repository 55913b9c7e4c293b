//! GpuPools of a file, and what they make of a fleet.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::json;
use tessera_simulate::fleet::{Fleet, Pools};

use super::wrong;
use crate::files::{self, Besides};
use crate::output::{self, CommandError, printable, warn};

/// The pools of a file or folder.
pub struct PoolFile {
    /// The path as given.
    pub name: String,
    /// What is in it.
    pub pools: Pools,
}

/// What the pools of a file make of a fleet.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolsOfFleet {
    /// By name.
    pools: BTreeMap<String, PoolOfFleet>,
    /// Cards that none of them selects.
    cards_without_pool: usize,
}

/// What a pool makes of a fleet: what its status would say.
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
/// The file cannot be read, has none, or one that cannot be.
pub fn read(file: &Path) -> Result<PoolFile, CommandError> {
    let texts = files::read(&[file.to_owned()], false)?;
    let loaded = files::parse(&texts, "default", Besides::Nothing)?;
    warn(&loaded.warnings);
    let mut pools = Pools::default();
    for ((_, name), pool) in loaded.pools {
        let inserted = pools.insert(&name, pool.metadata.creation_timestamp, &json!(pool.spec));
        inserted.map_err(|error| wrong(file, &format!("GpuPool {name}: {error}")))?;
    }
    if pools.names().next().is_none() {
        return Err(wrong(file, &"has no GpuPool in it"));
    }
    Ok(PoolFile { name: file.display().to_string(), pools })
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
            1 => text += "1 card belongs to no pool, and is offered whole and in MIG partitions\n",
            cards => {
                text += &format!(
                    "{cards} cards belong to no pool, and are offered whole and in MIG partitions\n"
                );
            }
        }
        text
    }
}
