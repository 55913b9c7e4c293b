//! `gpu-emulator create`.

use anyhow::Context;

use super::Directory;
use crate::directory::{self, Nodes};
use crate::machine::{Options, build};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) directory: Directory,
    /// Name of the machine (gpu-emulator hardware lists them).
    #[arg(long, value_name = "NAME")]
    pub(super) hardware: String,
    /// Another board than the machine's own (gpu-emulator hardware --all lists them).
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Another topology than the machine's own (gpu-emulator hardware --all lists them).
    #[arg(long, value_name = "NAME")]
    topology: Option<String>,
    /// Another number of cards, 1 to 64: the first ones; or, where there are more, the pattern again in the next PCI domain.
    #[arg(long, value_name = "N")]
    cards: Option<usize>,
    /// Makes UUIDs and serial numbers differ from those of a machine with another seed.
    #[arg(long, default_value = "", value_name = "TEXT")]
    seed: String,
    /// Another driver version, such as 535.183.06; functions that came later are missing from the library.
    #[arg(long, value_name = "VERSION")]
    driver_version: Option<String>,
    /// Another CUDA version than the driver's own, such as 12.2.
    #[arg(long, value_name = "VERSION")]
    cuda_version: Option<String>,
    /// UUID of the NVLink fabric's cluster, where the cards are in one.
    #[arg(long, value_name = "UUID")]
    cluster_uuid: Option<String>,
    /// Clique in that cluster.
    #[arg(long, value_name = "N")]
    clique: Option<u32>,
    /// Leaves a function out of the library, as if the driver lacked it; may be given several times.
    #[arg(long, value_name = "FUNCTION")]
    without_function: Vec<String>,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let machine = build::build(&Options {
        hardware: arguments.hardware,
        board: arguments.board,
        topology: arguments.topology,
        cards: arguments.cards,
        seed: arguments.seed,
        driver_version: arguments.driver_version,
        cuda_version: arguments.cuda_version,
        cluster_uuid: arguments.cluster_uuid,
        clique: arguments.clique,
    })?;
    let executable = std::env::current_exe().context("where this program lies cannot be found out")?;
    let programs = executable.parent().context("this program lies in no directory")?;
    let root = &arguments.directory.directory;
    let nodes = directory::create(root, &machine, programs, &arguments.without_function)?;
    println!("{}: {} ({} cards)", root.display(), machine.product, machine.cards.len());
    if nodes == Nodes::PlainFiles {
        eprintln!(
            "gpu-emulator: making device nodes is not permitted here: the files in {} are plain files. Run as root for nodes \
             that containers can be given.",
            root.join("dev").display()
        );
    }
    Ok(())
}
