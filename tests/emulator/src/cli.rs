//! The command line of `gpu-emulator`.

mod conf_compute;
mod create;
mod happen;
mod health;
mod hotplug;
mod list;
mod node;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};

use crate::machine::Machine;
use crate::state::{CardState, State, Store, StoreError};

/// Makes machines with emulated NVIDIA cards, and lets things happen to them while they run.
///
/// A machine is a directory. Any NVML program started with LD_LIBRARY_PATH=DIR/lib sees its cards; DIR/bin, DIR/dev,
/// DIR/proc and DIR/sys hold what the driver has there. All its processes share one state, which lasts until the directory
/// is removed.
#[derive(Parser)]
#[command(name = "gpu-emulator", version, after_long_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gpu-emulator hardware
      Lists the machines there are.
  gpu-emulator create /tmp/node --hardware hgx-h100-80gb
      Makes a machine with eight H100 cards.
  LD_LIBRARY_PATH=/tmp/node/lib /tmp/node/bin/nvidia-smi -L
      Lists its cards.
  gpu-emulator fault /tmp/node --call nvmlDeviceGetUUID --card 3 --error GPU_IS_LOST --times 2
      Lets the next two calls of that function on card 3 fail.
  gpu-emulator fault /tmp/node --delay-ms 100 --card 0
      Lets every call on card 0 take 100 ms.
  gpu-emulator fault /tmp/node --call nvmlDeviceCreateGpuInstanceWithPlacement --error UNKNOWN --after --times 1
      Lets the next creation of a partition answer with an error although the partition was made.
  gpu-emulator partition-time /tmp/node --create-ms 1000 --destroy-ms 1000
      Lets every creation and destruction of a partition take a second.
  gpu-emulator xid /tmp/node --card 2 79
      Sends XID 79 of card 2 to every process that waits for it.
  gpu-emulator health /tmp/node --card 2 --row-remap-pending true --recovery-action 1
      Lets the driver say that rows of card 2's memory wait to be remapped, and recommend a reset.
  gpu-emulator restore /tmp/node
      Takes all faults away and brings lost cards back.

Exit status: 0 when done, 1 when that was not possible (standard error says why), 2 for arguments that make no sense.";

#[derive(Subcommand)]
enum Command {
    /// Makes a machine in a directory.
    Create(create::Arguments),
    /// Makes a Kubernetes node into a machine, as the chart does with emulated.hardware: like create, and nothing if it is
    /// done already. Refused where the node has real cards.
    Node(node::Node),
    /// Lists the machines there are.
    Hardware(list::Arguments),
    /// Shows a machine and its state.
    Show(show::Arguments),
    /// Lets calls fail or take their time.
    Fault(happen::Fault),
    /// Sets how long it takes to make and to destroy partitions. Two cards do so at once, one card one after the other.
    PartitionTime(happen::PartitionTime),
    /// Sends an XID event of a card to every process that waits for it.
    Xid(happen::Xid),
    /// Sets what a card's driver says is wrong with it: memory errors, clocks, the NVLink fabric.
    Health(health::Health),
    /// Puts all cards into confidential computing mode, or takes them out of it.
    ConfCompute(conf_compute::ConfCompute),
    /// Lets a card fall off the bus: XID 79, and every call on it says that it is lost.
    Lose(happen::Lose),
    /// Takes a card out of its slot. Processes that have opened the driver see it as lost, others not at all.
    Unplug(hotplug::Unplug),
    /// Puts a card into an empty slot: the one that was there, or another one of its kind. Only processes that open the driver
    /// anew see it.
    Plug(hotplug::Plug),
    /// Installs another driver version and loads its module: for processes that have opened the old one every call fails.
    Driver(hotplug::DriverVersion),
    /// Takes faults and delays away, brings lost cards back and NVLinks up. Cards that were lost, ill or sent an XID count
    /// anew, as after a reset; their partitions and programs stay.
    Restore(happen::Restore),
    /// Takes an NVLink of a card down or up.
    Link(happen::Link),
    /// Adds and removes processes on a card.
    #[command(subcommand)]
    Process(happen::ProcessCommand),
    /// Sets how busy, warm and hungry a card is.
    Utilization(happen::Utilization),
    /// Resets a card: its partitions are gone, and a pending MIG mode is the mode.
    Reset(happen::Reset),
    /// Restarts the machine: a new boot id; what a driver forgets is forgotten.
    Reboot(happen::Reboot),
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Lets the process end quietly when its output is no longer read (`| head`); by default, Rust programs panic.
pub(crate) fn end_with_the_pipe() {
    // SAFETY: the default action needs no handler; nothing else runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Runs the command.
pub fn main() -> ExitCode {
    end_with_the_pipe();
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu-emulator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create(arguments) => create::run(arguments),
        Command::Node(arguments) => node::run(arguments),
        Command::Hardware(arguments) => list::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Fault(arguments) => happen::fault(arguments),
        Command::PartitionTime(arguments) => happen::partition_time(&arguments),
        Command::Xid(arguments) => happen::xid(&arguments),
        Command::Health(arguments) => health::health(&arguments),
        Command::ConfCompute(arguments) => conf_compute::conf_compute(&arguments),
        Command::Lose(arguments) => happen::lose(&arguments),
        Command::Unplug(arguments) => hotplug::unplug(&arguments),
        Command::Plug(arguments) => hotplug::plug(&arguments),
        Command::Driver(arguments) => hotplug::driver(&arguments),
        Command::Restore(arguments) => happen::restore(&arguments),
        Command::Link(arguments) => happen::link(&arguments),
        Command::Process(command) => happen::process(&command),
        Command::Utilization(arguments) => happen::utilization(&arguments),
        Command::Reset(arguments) => happen::reset(&arguments),
        Command::Reboot(arguments) => happen::reboot(&arguments),
    }
}

/// An existing machine.
struct Target {
    store: Store,
    machine: Machine,
}

impl Target {
    fn open(directory: &Path) -> Result<Self, StoreError> {
        let store = Store::new(directory);
        Ok(Target { machine: store.machine()?, store })
    }

    /// Checks that the card exists.
    fn card(&self, index: u32) -> anyhow::Result<u32> {
        let cards = self.machine.cards.len();
        if (index as usize) < cards {
            return Ok(index);
        }
        anyhow::bail!(
            "there is no card {index}: the machine has {cards}, numbered from 0 (gpu-emulator show lists them)"
        )
    }

    fn update(&self, change: impl FnOnce(&mut State) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.store.update(change)
    }

    fn update_card(&self, index: u32, change: impl FnOnce(&mut CardState)) -> anyhow::Result<()> {
        let index = self.card(index)? as usize;
        self.update(|state| {
            change(state.cards.get_mut(index).context("the state lacks a card; create the machine anew")?);
            Ok(())
        })
    }
}

/// A machine's directory, as every command but one takes it.
#[derive(clap::Args)]
struct Directory {
    /// Directory of the machine.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}
