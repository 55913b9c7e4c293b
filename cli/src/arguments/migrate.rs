//! The command line of `kubectl gpu migrate`.

use clap::{Args, ValueEnum};

use super::{SourceArguments, help};

/// What a migration is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Origin {
    /// NVIDIA's DRA driver (dra-driver-nvidia-gpu)
    NvidiaDra,
    /// NVIDIA's device plugin, without the GPU Operator
    DevicePlugin,
    /// The GPU Operator's device plugin and MIG manager
    GpuOperator,
}

/// The output format of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// Everything
    Json,
    /// The GpuPools and DeviceClasses, to apply
    Yaml,
    /// The values.yaml, for helm
    Values,
}

/// `kubectl gpu migrate`
#[derive(Debug, Args)]
#[command(after_help = help::MIGRATE_HELP)]
pub struct MigrateArguments {
    /// The current driver of the cards
    #[arg(long, value_enum, value_name = "DRIVER")]
    pub from: Origin,
    /// Print JSON, the manifests as YAML, or the values for helm
    #[arg(short, long, value_enum)]
    pub output: Option<PlanFormat>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}
