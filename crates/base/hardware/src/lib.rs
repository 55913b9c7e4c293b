//! Boards and machines, from this crate's data files, with the source of each fact: the basis of the simulator's fleets
//! and of the emulator.
//!
//! Nothing is guessed: facts without a public source are absent, and NVML then answers `NOT_SUPPORTED`, as the real
//! library does for missing facts.
//!
//! In: the name of a board or machine. Out: its facts. Pure: the data is compiled in; no I/O, no clock, no threads.
//! Wing `base`: may use neither `node` nor `scheduling`.

#![forbid(unsafe_code)]

pub mod board;
pub mod facts;
pub mod mig;
pub mod topology;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use self::board::Board;
pub use self::facts::{FactsError, Sources};
pub use self::mig::MigModel;
pub use self::topology::Topology;

/// A machine by name: its boards, topology and driver.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hardware {
    /// The machine's usual name.
    pub product: String,
    /// Other names of machines with these boards in this topology.
    #[serde(default)]
    pub also_called: Vec<String>,
    /// Name of a data file in `data/boards`.
    pub board: String,
    /// Name of a data file in `data/topologies`.
    pub topology: String,
    /// Version of the driver at the start, as printed by `nvidia-smi`.
    pub driver_version: String,
    /// CUDA version of the driver, `major.minor`.
    pub cuda_version: String,
    /// Fabric of the machine, where its cards are registered with one.
    pub fabric: Option<FabricFacts>,
}

/// How the cards of a machine take part in an NVLink fabric (`nvmlGpuFabricInfo`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FabricFacts {
    /// Whether the machine is one of several of a rack: then with a cluster UUID, else with one of zeros.
    pub multi_node: bool,
    /// Clique of the cards.
    pub clique: u32,
    /// `nvmlGpuFabricInfo_v2_t.healthMask`, where the driver reports one.
    pub health_mask: Option<u32>,
    /// `nvmlGpuFabricInfo_v3_t.healthSummary` (`NVML_GPU_FABRIC_HEALTH_SUMMARY_*`).
    pub health_summary: Option<u8>,
}

macro_rules! data_files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../data/", $folder, "/", $name, ".json")))),+]
    };
}

const BOARDS: &[(&str, &str)] = data_files!("boards":
    "a100-sxm4-40gb", "a100-sxm4-80gb", "a30", "b200", "gb200", "gh200-96gb", "h100-nvl", "h100-sxm5-80gb", "h200", "l40s",
    "p4", "rtx-pro-6000", "t4", "v100-sxm2-16gb", "v100-sxm3-32gb",
);

const MIG_MODELS: &[(&str, &str)] = data_files!("mig":
    "a100-40gb", "a100-80gb", "a30-24gb", "b200-180gb", "gb200-186gb", "gh200-96gb", "h100-80gb", "h100-nvl-94gb",
    "h200-141gb", "rtx-pro-6000-96gb",
);

const TOPOLOGIES: &[(&str, &str)] = data_files!("topologies":
    "4x-rtx8000-bridges", "aws-p4d-a100", "aws-p5-h100", "aws-p6-b200", "azure-ndv2-v100", "azure-ndv4-a100",
    "azure-ndv5-h100", "dgx-1-p100", "dgx-1-v100-hybrid-cube-mesh", "dgx-2-v100", "dgx-a100",
    "gb200-nvl72-compute-tray", "hgx-a100-2numa", "hgx-h100", "pcie-1gpu", "pcie-2gpu", "pcie-4gpu-nvlink-bridges",
    "pcie-8gpu-2numa-direct", "pcie-8gpu-2numa-switch", "pcie-8gpu-l40s-mock-order", "pcie-8gpu-nvlink-bridges",
    "pcie-8gpu-vm-flat",
);

const MACHINES: &[(&str, &str)] = data_files!("machines":
    "a30-x2", "dgx-1v",
    "dgx-2", "gb200-tray", "gh200", "h100-nvl-x8", "hgx-a100-40gb", "hgx-a100-80gb", "hgx-b200", "hgx-h100-80gb",
    "hgx-h200", "l40s-x8", "p4",
    "rtx-pro-6000", "t4",
);

/// The named machines, sorted by name.
pub fn machine_names() -> Vec<&'static str> {
    MACHINES.iter().map(|(name, _)| *name).collect()
}

/// The machine of this name or alias.
///
/// # Errors
/// [`FactsError::Unknown`] when there is no such machine; the error names all.
pub fn machine_called(name: &str) -> Result<Hardware, FactsError> {
    hardware(machine_name(name)?).map(|(machine, _)| machine)
}

/// The machine's own name, given `name` as its name or alias.
///
/// # Errors
/// As [`machine_called`].
pub fn machine_name(name: &str) -> Result<&'static str, FactsError> {
    let mut known = Vec::new();
    for file in machine_names() {
        let (machine, _) = hardware(file)?;
        if file == name || machine.also_called.iter().any(|other| other == name) {
            return Ok(file);
        }
        known.extend(std::iter::once(file.to_owned()).chain(machine.also_called));
    }
    known.sort_unstable();
    Err(FactsError::Unknown { kind: "machine", name: name.to_owned(), known: known.join(", ") })
}

/// The known boards, sorted by name.
pub fn board_names() -> Vec<&'static str> {
    BOARDS.iter().map(|(name, _)| *name).collect()
}

/// The known topologies, sorted by name.
pub fn topology_names() -> Vec<&'static str> {
    TOPOLOGIES.iter().map(|(name, _)| *name).collect()
}

/// The machine called `name`.
///
/// # Errors
/// [`FactsError::Unknown`] when there is no such machine.
pub fn hardware(name: &str) -> Result<(Hardware, Sources), FactsError> {
    load("machine", MACHINES, name)
}

/// The board called `name`.
///
/// # Errors
/// [`FactsError::Unknown`] when there is no such board.
pub fn board(name: &str) -> Result<(Board, Sources), FactsError> {
    load("board", BOARDS, name)
}

/// The models of cards with support for partitions, sorted by name.
pub fn mig_model_names() -> Vec<&'static str> {
    MIG_MODELS.iter().map(|(name, _)| *name).collect()
}

/// How the model called `name` can be partitioned.
///
/// # Errors
/// [`FactsError::Unknown`] when there is no such model.
pub fn mig_model(name: &str) -> Result<(MigModel, Sources), FactsError> {
    load("MIG model", MIG_MODELS, name)
}

/// The topology called `name`.
///
/// # Errors
/// [`FactsError::Unknown`] when there is no such topology.
pub fn topology(name: &str) -> Result<(Topology, Sources), FactsError> {
    let (topology, sources): (Topology, Sources) = load("topology", TOPOLOGIES, name)?;
    topology
        .check()
        .map_err(|problem| FactsError::Inconsistent { file: format!("topologies/{name}.json"), problem })?;
    Ok((topology, sources))
}

fn load<T: serde::de::DeserializeOwned>(
    kind: &'static str,
    files: &[(&str, &str)],
    name: &str,
) -> Result<(T, Sources), FactsError> {
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    let text = files.get(name).ok_or_else(|| FactsError::Unknown {
        kind,
        name: name.to_owned(),
        known: files.keys().copied().collect::<Vec<_>>().join(", "),
    })?;
    facts::merge(&format!("{kind} {name}"), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_data_file_is_complete_and_sourced() {
        for name in board_names() {
            let (_, sources) = board(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(sources.values().all(|source| source.len() > 10), "{name}: a source that says nothing");
            let (board, _) = board(name).expect("read a moment ago");
            assert_eq!(board.mig_capable, board.mig_model.is_some(), "{name}");
            board.mig_model.map(|model| mig_model(&model).expect("its MIG model"));
        }
        for name in topology_names() {
            topology(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for name in machine_names() {
            let (machine, _) = hardware(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            board(&machine.board).expect("its board");
            topology(&machine.topology).expect("its topology");
        }
    }

    #[test]
    fn an_unknown_machine_is_refused_with_the_known_names() {
        let error = hardware("hgx-h100").expect_err("no such machine");
        assert!(error.to_string().contains("hgx-h100-80gb"), "{error}");
    }
}
