//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

const AFTER_HELP: &str = "\
Exit codes: 0 it fits (cel: a device matches), 1 it does not, 2 an error.";

const CEL_HELP: &str = r#"Examples:
  # The cards of the cluster with at least 40000 MiB
  kubectl gpu cel 'device.attributes["gpu.tessera.dev"].memoryMiB >= 40000'

  # Why a device does not match: every part of the expression with its value
  kubectl gpu cel 'device.driver == "gpu.tessera.dev" && device.attributes["gpu.tessera.dev"].type == "mig"' \
      --device gpu-3b-00

  # Devices of files, as JSON
  kubectl gpu cel 'device.allowMultipleAllocations' -f slices.yaml -o json

  # One JSON request a line, for other programs
  kubectl gpu cel --lines < requests.jsonl

Exit codes: 0 a device matches, 1 none does, 2 the expression is wrong or fails on a device."#;

/// What kube-scheduler would allocate and why, and which devices a CEL selector matches.
#[derive(Debug, Parser)]
#[command(name = "kubectl gpu", bin_name = "kubectl gpu", version, after_help = AFTER_HELP)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Which devices match a CEL selector, with the value of each of its parts for one device
    Cel(CelArguments),
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Where the objects come from.
#[derive(Debug, Args)]
pub struct SourceArguments {
    /// File or folder with Kubernetes objects in YAML or JSON (several documents a file), or - for standard input;
    /// may be repeated. Without it, the objects are those of the cluster
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Read the folders below the folders of -f too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Namespace of what is named, and of objects in files that name none
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The kubeconfig file of the cluster
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context to use
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,
    /// The kubeconfig's cluster to use
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub cluster: Option<String>,
    /// The kubeconfig's user to use
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub user: Option<String>,
    /// How long to wait for the API server's answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = "Cluster")]
    pub request_timeout: u64,
}

/// `kubectl gpu cel`
#[derive(Debug, Args)]
#[command(after_help = CEL_HELP)]
pub struct CelArguments {
    /// The selector, as in a DeviceClass or ResourceClaim
    #[arg(required_unless_present = "lines")]
    pub expression: Option<String>,
    /// Show the value of every part of the expression for this device: DEVICE, POOL/DEVICE or DRIVER/POOL/DEVICE
    #[arg(long, value_name = "NAME", conflicts_with = "lines")]
    pub device: Option<String>,
    /// List the devices that do not match too
    #[arg(short, long)]
    pub verbose: bool,
    /// Answer JSON requests on standard input, one a line (docs/allocate-protocol.md)
    #[arg(long, conflicts_with_all = ["expression", "files", "output", "verbose"])]
    pub lines: bool,
    /// Print JSON or YAML instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Where the devices come from.
    #[command(flatten)]
    pub source: SourceArguments,
}
