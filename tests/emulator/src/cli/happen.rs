//! Commands that let something happen to a running machine.

use clap::{Args, Subcommand, ValueEnum};

use super::{Directory, Target};
use crate::directory::{capabilities, functions, proc, reset};
use crate::failure::Failure;
use crate::mig::mode;
use crate::state::fault::PARTS;
use crate::state::{
    self, CardHealth, CardState, EVENT_XID_CRITICAL_ERROR, FaultEffect, Meter, Moment, Process, ProcessKind,
    meter,
};

/// XID of a card that fell off the bus.
const XID_OFF_THE_BUS: u64 = 79;

/// XIDs for which the driver recommends a card reset: column "Xid 154 linkage" of NVIDIA's catalog.
const XIDS_OF_RESET: [u64; 13] = [48, 62, 64, 74, 95, 109, 110, 120, 136, 143, 155, 156, 158];

/// `NVML_GPU_RECOVERY_ACTION_GPU_RESET` and `NVML_GPU_RECOVERY_ACTION_NODE_REBOOT`.
const RECOVERY_RESET: u32 = 1;
const RECOVERY_REBOOT: u32 = 2;

#[derive(Args)]
pub(super) struct Fault {
    #[command(flatten)]
    directory: Directory,
    /// Function of NVML; without a version at its end it means all versions. Or a single figure that a function tells among
    /// others, such as NVML_CLOCK_SM, NVML_FI_DEV_MEMORY_TEMP, NVML_GPM_METRIC_SM_UTIL. Every function where it is not given.
    #[arg(long, value_name = "FUNCTION")]
    call: Option<String>,
    /// Index of a card. Every card, and calls that concern none, where it is not given.
    #[arg(long, value_name = "N")]
    card: Option<u32>,
    /// The calls fail with this error, such as GPU_IS_LOST, or its number.
    #[arg(long, value_name = "ERROR", value_parser = parse_error, required_unless_present = "delay_ms")]
    error: Option<Failure>,
    /// The calls take this much longer.
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    delay_ms: Option<u64>,
    /// After the calls did what they do, not before: their callers do not hear that it was done.
    #[arg(long)]
    after: bool,
    /// So many calls; all until restore where it is not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    times: Option<u32>,
}

fn parse_error(text: &str) -> Result<Failure, String> {
    let number = text.parse().ok().map(Failure).filter(|failure| failure.name().is_some());
    number
        .or_else(|| Failure::from_name(&text.to_ascii_uppercase()))
        .ok_or_else(|| format!("no error of NVML; there are: {}", Failure::NAMES.join(", ")))
}

pub(super) fn fault(arguments: Fault) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    if let Some(card) = arguments.card {
        target.card(card)?;
    }
    if let Some(call) = &arguments.call {
        let probe = state::Fault {
            number: 0,
            call: Some(call.clone()),
            card: None,
            effect: FaultEffect::Delay(0),
            moment: Moment::Before,
            remaining: None,
        };
        let names = functions::all().map(|(name, _)| name).chain(PARTS);
        if !names.into_iter().any(|name| probe.meets(name, None)) {
            anyhow::bail!(
                "NVML has no function {call}; names are as in nvml.h, such as nvmlDeviceGetUUID, or one of {}",
                PARTS.join(", ")
            );
        }
    }
    let effects = [
        arguments.delay_ms.map(FaultEffect::Delay),
        arguments.error.map(|Failure(code)| FaultEffect::Error(code)),
    ];
    target.update(|state| {
        for effect in effects.into_iter().flatten() {
            let number = state.next_fault;
            state.next_fault += 1;
            state.faults.push(state::Fault {
                number,
                call: arguments.call.clone(),
                card: arguments.card,
                effect,
                moment: if arguments.after { Moment::After } else { Moment::Before },
                remaining: arguments.times,
            });
        }
        Ok(())
    })
}

#[derive(Args)]
pub(super) struct Xid {
    #[command(flatten)]
    directory: Directory,
    /// Index of the card.
    #[arg(long, value_name = "N")]
    card: u32,
    /// Id of the GPU instance that it happens in.
    #[arg(long, value_name = "ID")]
    gpu_instance: Option<u32>,
    /// Number of the XID, such as 79.
    xid: u64,
}

pub(super) fn xid(arguments: &Xid) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    let card = target.card(arguments.card)?;
    target.update(|state| {
        // Set before the event is sent, because a receiver may read the recovery action at once.
        let recovery = &mut state.cards[card as usize].health.recovery_action;
        if arguments.xid == XID_OFF_THE_BUS {
            *recovery = RECOVERY_REBOOT;
        } else if XIDS_OF_RESET.contains(&arguments.xid) && *recovery == 0 {
            *recovery = RECOVERY_RESET;
        }
        state.push_event(card, EVENT_XID_CRITICAL_ERROR, arguments.xid, arguments.gpu_instance);
        Ok(())
    })
}

#[derive(Args)]
pub(super) struct Lose {
    #[command(flatten)]
    directory: Directory,
    /// Index of the card.
    #[arg(long, value_name = "N")]
    card: u32,
}

pub(super) fn lose(arguments: &Lose) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    let card = target.card(arguments.card)?;
    target.update(|state| {
        state.push_event(card, EVENT_XID_CRITICAL_ERROR, XID_OFF_THE_BUS, None);
        state.cards[card as usize].lost = true;
        Ok(())
    })
}

#[derive(Args)]
pub(super) struct Restore {
    #[command(flatten)]
    directory: Directory,
    /// Only this card, and only faults that name it.
    #[arg(long, value_name = "N")]
    card: Option<u32>,
}

pub(super) fn restore(arguments: &Restore) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    let only = arguments.card.map(|card| target.card(card)).transpose()?;
    target.update(|state| {
        state.faults.retain(|fault| only.is_some() && fault.card != only);
        let sent_xid = |index| {
            let xids = state.events.iter().filter(|event| event.event_type == EVENT_XID_CRITICAL_ERROR);
            xids.map(|event| event.card as usize).any(|card| card == index)
        };
        let faulty: Vec<bool> = (state.cards.iter().enumerate())
            .map(|(index, card)| card.lost || !card.health.is_healthy() || sent_xid(index))
            .collect();
        for ((index, card), faulty) in state.cards.iter_mut().enumerate().zip(faulty) {
            if only.is_none_or(|only| only as usize == index) {
                card.lost = false;
                card.links_down.clear();
                card.health = CardHealth::default();
                if faulty {
                    // Such a fault ends by a reset, after which the card's counters start anew.
                    card.meter = Meter::starting(meter::now());
                }
            }
        }
        Ok(())
    })
}

#[derive(Args)]
pub(super) struct Link {
    #[command(flatten)]
    directory: Directory,
    /// Index of the card.
    #[arg(long, value_name = "N")]
    card: u32,
    /// Number of the link.
    #[arg(long, value_name = "N")]
    link: u32,
    /// Which way.
    #[arg(value_enum)]
    direction: Direction,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Direction {
    /// The link carries nothing; its other end is down too.
    Down,
    /// The link works again.
    Up,
}

pub(super) fn link(arguments: &Link) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    let links = target.machine.cards[target.card(arguments.card)? as usize].links.len();
    if arguments.link as usize >= links {
        anyhow::bail!("card {} has no NVLink {}: it has {links}", arguments.card, arguments.link);
    }
    target.update_card(arguments.card, |card| {
        card.links_down.retain(|link| *link != arguments.link);
        if arguments.direction == Direction::Down {
            card.links_down.push(arguments.link);
        }
    })
}

#[derive(Subcommand)]
pub(super) enum ProcessCommand {
    /// Puts a process on a card. It need not exist.
    Add(AddProcess),
    /// Takes a process off a card.
    Remove(RemoveProcess),
}

#[derive(Args)]
pub(super) struct AddProcess {
    #[command(flatten)]
    directory: Directory,
    /// Index of the card.
    #[arg(long, value_name = "N")]
    card: u32,
    /// Process id.
    #[arg(long, value_name = "PID")]
    pid: u32,
    /// Memory of the card that it holds.
    #[arg(long, value_name = "MIB", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 30))]
    memory_mib: u64,
    /// Id of the GPU instance that it runs on.
    #[arg(long, value_name = "ID", requires = "compute_instance")]
    gpu_instance: Option<u32>,
    /// Id of the compute instance in that.
    #[arg(long, value_name = "ID", requires = "gpu_instance")]
    compute_instance: Option<u32>,
    /// In which of NVML's lists it is.
    #[arg(long, value_enum, default_value = "compute")]
    kind: ProcessKind,
    /// Percent of time in which its kernels run.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
    busy: u32,
}

#[derive(Args)]
pub(super) struct RemoveProcess {
    #[command(flatten)]
    directory: Directory,
    /// Index of the card.
    #[arg(long, value_name = "N")]
    card: u32,
    /// Process id.
    #[arg(long, value_name = "PID")]
    pid: u32,
}

pub(super) fn process(command: &ProcessCommand) -> anyhow::Result<()> {
    match command {
        ProcessCommand::Add(arguments) => {
            let target = Target::open(&arguments.directory.directory)?;
            target.update_card(arguments.card, |card| {
                card.processes
                    .retain(|process| process.pid != arguments.pid || process.kind != arguments.kind);
                card.processes.push(Process {
                    pid: arguments.pid,
                    used_memory_bytes: arguments.memory_mib << 20,
                    kind: arguments.kind,
                    gpu_instance: arguments.gpu_instance,
                    compute_instance: arguments.compute_instance,
                    busy_percent: arguments.busy,
                    owner: 0,
                });
            })
        }
        ProcessCommand::Remove(arguments) => {
            let target = Target::open(&arguments.directory.directory)?;
            let index = target.card(arguments.card)? as usize;
            target.update(|state| {
                let processes = &mut state.cards[index].processes;
                if !processes.iter().any(|process| process.pid == arguments.pid) {
                    anyhow::bail!("no process {} is on card {index}", arguments.pid);
                }
                processes.retain(|process| process.pid != arguments.pid);
                Ok(())
            })
        }
    }
}

#[derive(Args)]
pub(super) struct Utilization {
    #[command(flatten)]
    directory: Directory,
    /// Index of the card.
    #[arg(long, value_name = "N")]
    card: u32,
    /// Percent of time in which kernels run.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    gpu: Option<u32>,
    /// Percent of time in which memory is read or written.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    memory: Option<u32>,
    /// Power draw.
    #[arg(long, value_name = "MILLIWATTS")]
    power_milliwatts: Option<u32>,
    /// Temperature.
    #[arg(long, value_name = "CELSIUS", value_parser = clap::value_parser!(u32).range(..=200))]
    temperature: Option<u32>,
}

pub(super) fn utilization(arguments: &Utilization) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    target.update_card(arguments.card, |card| {
        card.utilization_gpu = arguments.gpu.unwrap_or(card.utilization_gpu);
        card.utilization_memory = arguments.memory.unwrap_or(card.utilization_memory);
        card.power_usage_milliwatts = arguments.power_milliwatts.or(card.power_usage_milliwatts);
        card.temperature_celsius = arguments.temperature.or(card.temperature_celsius);
    })
}

#[derive(Args)]
pub(super) struct Reboot {
    #[command(flatten)]
    directory: Directory,
}

/// A reboot keeps MIG mode on cards with persistent mode, and everything injected by a tester (faults, lost cards,
/// links down).
pub(super) fn reboot(arguments: &Reboot) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    target.update(|state| {
        for (of_machine, card) in target.machine.cards.iter().zip(&mut state.cards) {
            if let Some(model) = &of_machine.mig {
                mode::reboot(model, &mut card.mig);
                capabilities::show(target.store.root(), of_machine, &card.mig)?;
            }
            *card = CardState {
                lost: card.lost,
                unplugged: card.unplugged,
                insertions: card.insertions,
                links_down: std::mem::take(&mut card.links_down),
                health: card.health.after_reset(),
                mig: std::mem::take(&mut card.mig),
                meter: Meter::starting(meter::now()),
                ..CardState::default()
            };
        }
        Ok(())
    })?;
    Ok(proc::new_boot(&arguments.directory.directory)?)
}

#[derive(Args)]
pub(super) struct Reset {
    #[command(flatten)]
    directory: Directory,
    /// Index of the card.
    #[arg(long, value_name = "N")]
    card: u32,
}

/// Refused while processes are on the card, as by the driver.
pub(super) fn reset(arguments: &Reset) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    let index = target.card(arguments.card)? as usize;
    Ok(reset::card(&target.store, index)?)
}

/// Calls creating partitions, and below calls destroying them, as far as they are slow on hardware.
const CREATION: [&str; 2] = ["nvmlDeviceCreateGpuInstance", "nvmlDeviceCreateGpuInstanceWithPlacement"];
const DESTRUCTION: [&str; 1] = ["nvmlGpuInstanceDestroy"];

#[derive(Args)]
pub(super) struct PartitionTime {
    #[command(flatten)]
    directory: Directory,
    /// How long it takes to make a GPU instance.
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    create_ms: u64,
    /// How long it takes to destroy one.
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    destroy_ms: u64,
    /// Index of a card; every card where it is not given.
    #[arg(long, value_name = "N")]
    card: Option<u32>,
}

/// Delays of these calls replace each other: the last order counts.
pub(super) fn partition_time(arguments: &PartitionTime) -> anyhow::Result<()> {
    let target = Target::open(&arguments.directory.directory)?;
    let card = arguments.card.map(|card| target.card(card)).transpose()?;
    let calls = CREATION.map(|call| (call, arguments.create_ms)).into_iter();
    let calls: Vec<(&str, u64)> = calls.chain(DESTRUCTION.map(|call| (call, arguments.destroy_ms))).collect();
    target.update(|state| {
        state.faults.retain(|fault| {
            let of_these = calls.iter().any(|(call, _)| fault.call.as_deref() == Some(call));
            !(of_these && fault.card == card && matches!(fault.effect, FaultEffect::Delay(_)))
        });
        for (call, milliseconds) in calls.iter().filter(|(_, milliseconds)| *milliseconds > 0) {
            state.faults.push(state::Fault {
                number: state.next_fault,
                call: Some((*call).to_owned()),
                card,
                effect: FaultEffect::Delay(*milliseconds),
                moment: Moment::Before,
                remaining: None,
            });
            state.next_fault += 1;
        }
        Ok(())
    })
}
