//! `cargo xtask bench`: measures the steps of a pod's start.
#![forbid(unsafe_code)]

mod allocator;
mod controller;
mod doctor;
mod gangs;
mod http;
mod mig;
mod mig_order;
mod month;
mod mps;
mod native;
mod output;
mod packing;
mod prepare;
mod quantiles;
mod sets;
mod teams;
mod usage;
mod used;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measures the steps of a pod's start.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", max_term_width = 120)]
struct BenchArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Our allocator and Kubernetes' own, on the same requests.
    Allocator(allocator::AllocatorArguments),
    /// Steering beside kube-scheduler alone, and decisions on a large fleet.
    Controller(controller::ControllerArguments),
    /// `kubectl gpu doctor` on a large cluster.
    Doctor(doctor::DoctorArguments),
    /// Planning a gang on a large fleet, beside as many pods that are no gang.
    Gangs(gangs::GangsArguments),
    /// The kubelet plugin alone, over its socket: making and destroying MIG partitions, all cards at once.
    Mig(mig::MigArguments),
    /// How much of the requested compute fits on MIG cards, by the order in which placements are tried.
    MigOrder(mig_order::MigOrderArguments),
    /// Waiting, and cards in use, in a month, with idle devices given to those who wait, with pods that move for them, and without.
    Month(month::MonthArguments),
    /// MPS shares: the kubelet plugin over its socket, and mps-host alone.
    Mps(mps::MpsArguments),
    /// kube-scheduler alone on a fleet, by what nodes publish, beside a driver that publishes whole cards alone.
    Native(native::NativeArguments),
    /// How much of a fleet each policy allocates on openb's traces, and how long a choice takes.
    Packing(packing::PackingArguments),
    /// The kubelet plugin alone, over its socket: preparing claims, starting, memory.
    Prepare(prepare::PrepareArguments),
    /// Which whole cards claims get while others come and go: ring bandwidth and waiting time beside go-gpuallocator's.
    Sets(sets::SetsArguments),
    /// Ten teams in a month, with quotas and without; and the cost of quotas in a round.
    Teams(teams::TeamsArguments),
    /// What the kubelet plugin takes at rest and while claims come and go, and what it answers to scrapes.
    Usage(usage::UsageArguments),
    /// How much of the cards that are on is used, when the same pods ask for whole cards, partitions or shares, and idle or movable ones
    /// make room.
    Used(used::UsedArguments),
}

/// Runs a benchmark. A slow result is no error.
async fn run(arguments: BenchArguments) -> Result<ExitCode> {
    match arguments.what {
        What::Allocator(arguments) => allocator::run(&arguments),
        What::Controller(arguments) => controller::run(&arguments).await,
        What::Doctor(arguments) => doctor::run(&arguments).await,
        What::Gangs(arguments) => gangs::run(&arguments),
        What::Mig(arguments) => mig::run(&arguments).await,
        What::MigOrder(arguments) => mig_order::run(&arguments),
        What::Month(arguments) => month::run(&arguments),
        What::Mps(arguments) => mps::run(&arguments).await,
        What::Native(arguments) => native::run(&arguments).await,
        What::Packing(arguments) => packing::run(&arguments),
        What::Prepare(arguments) => prepare::run(&arguments).await,
        What::Sets(arguments) => sets::run(&arguments),
        What::Teams(arguments) => teams::run(&arguments),
        What::Usage(arguments) => usage::run(&arguments).await,
        What::Used(arguments) => used::run(&arguments),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    run(BenchArguments::parse()).await.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
