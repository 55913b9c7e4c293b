//! The command line of `kubectl gpu kueue`.

use clap::Args;

use super::{SourceArguments, help};

/// `kubectl gpu kueue`
#[derive(Debug, Args)]
#[command(after_help = help::KUEUE_HELP)]
pub struct KueueArguments {
    /// Print the fields of Kueue's Configuration instead of objects to apply
    #[arg(long)]
    pub configuration: bool,
    /// Add the AdmissionCheck by which the controller plans a job's pods before Kueue admits it, and name it in the ClusterQueues
    #[arg(long, conflicts_with = "configuration")]
    pub admission_check: bool,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}
