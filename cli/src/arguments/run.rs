//! The command lines of `kubectl gpu run` and `cancel`.

use std::path::PathBuf;

use clap::Args;
use tessera_batch::CommandLine;

use super::{ConnectionArguments, help};

/// `kubectl gpu run`
#[derive(Debug, Args)]
#[command(after_help = help::RUN_HELP)]
pub struct RunArguments {
    /// A script and its arguments (- for standard input), run once; or, after --, a command, run in each task
    #[arg(value_name = "SCRIPT|-- COMMAND", trailing_var_arg = true)]
    pub words: Vec<String>,
    /// Start the job, and do not follow it
    #[arg(long, conflicts_with = "follow")]
    pub detach: bool,
    /// Follow the job, print its output, and end with its exit code: the default at a terminal
    #[arg(short = 'W', long, visible_alias = "wait")]
    pub follow: bool,
    /// File with the ConfigMap gpu-run, instead of the namespace's
    #[arg(long, value_name = "FILE")]
    pub defaults: Option<PathBuf>,
    /// The job.
    #[command(flatten)]
    pub options: CommandLine,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `kubectl gpu cancel`
#[derive(Debug, Args)]
#[command(after_help = help::CANCEL_HELP)]
pub struct CancelArguments {
    /// The jobs
    #[arg(value_name = "NAME", required = true)]
    pub jobs: Vec<String>,
    /// The jobs' namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
