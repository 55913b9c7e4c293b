//! `cargo xtask bench`: what is on the path of a pod's start, measured.

mod allocator;
mod mig;
mod mig_order;
mod mps;
mod prepare;
mod quantiles;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// What `cargo xtask bench` takes.
#[derive(Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The allocator against Kubernetes' own, on the same requests.
    Allocator(allocator::AllocatorArguments),
    /// The kubelet plugin alone, over its socket: making and destroying MIG partitions, all cards at once.
    Mig(mig::MigArguments),
    /// How much of what is asked for fits on MIG cards, by the order in which placements are tried.
    MigOrder(mig_order::MigOrderArguments),
    /// Shares by MPS: the kubelet plugin over its socket, and mps-host alone.
    Mps(mps::MpsArguments),
    /// The kubelet plugin alone, over its socket: preparing claims, starting, memory.
    Prepare(prepare::PrepareArguments),
}

/// Runs a benchmark.
///
/// # Errors
/// When it cannot be run; a slow result is no error.
pub async fn run(arguments: BenchArguments) -> Result<ExitCode> {
    match arguments.what {
        What::Allocator(arguments) => allocator::run(&arguments),
        What::Mig(arguments) => mig::run(&arguments).await,
        What::MigOrder(arguments) => mig_order::run(&arguments),
        What::Mps(arguments) => mps::run(&arguments).await,
        What::Prepare(arguments) => prepare::run(&arguments).await,
    }
}
