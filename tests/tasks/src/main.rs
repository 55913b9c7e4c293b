//! The commands of `cargo xtask` on clusters, images and cards. `xtask` compiles and starts this program.
#![forbid(unsafe_code)]

mod admission;
mod cluster;
mod crds;
mod demo;
mod gpu_check;
mod image;
mod oracle;
mod strangers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// All development tasks of the Tessera repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows the main use case on a real cluster with emulated cards.
    Demo(demo::DemoArguments),
    /// Starts, shows or ends a cluster for development.
    Cluster(cluster::ClusterArguments),
    /// Writes the chart's CustomResourceDefinitions from the Rust types.
    Crds(crds::CrdsArguments),
    /// Writes the chart's expressions that check configuration, from the Rust types.
    Admission(admission::AdmissionArguments),
    /// Compares our allocator with Kubernetes' own on generated requests.
    Oracle(oracle::OracleArguments),
    /// Lets NVML clients written by others read the emulated machines; lists those that it did not find.
    Strangers(strangers::StrangersArguments),
    /// Builds the images that the chart names, without a container engine.
    Image(image::ImageArguments),
    /// Compares what Tessera reads of this machine's NVIDIA cards with nvidia-smi; read-only. With --mps, tries
    /// whether MPS enforces its clients' limits.
    GpuCheck(gpu_check::GpuCheckArguments),
    /// A CUDA program for gpu-check --mps.
    #[command(name = gpu_check::mps::client::COMMAND, hide = true)]
    MpsClient(gpu_check::mps::client::MpsClientArguments),
}

fn asynchronous(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Demo(arguments) => asynchronous(demo::run(arguments)),
        Command::Cluster(arguments) => asynchronous(cluster::run(arguments)),
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Admission(arguments) => admission::run(&arguments),
        Command::Strangers(arguments) => strangers::run(&arguments),
        Command::Oracle(arguments) => oracle::run(&arguments),
        Command::Image(arguments) => image::run(&arguments),
        Command::GpuCheck(arguments) => gpu_check::run(&arguments),
        Command::MpsClient(arguments) => gpu_check::mps::client::main(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
