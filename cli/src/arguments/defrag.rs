//! Arguments of `kubectl gpu defrag`.

use clap::{ArgGroup, Args};

use super::{Format, ReleaseArguments, SourceArguments, help};

/// `kubectl gpu defrag`
#[derive(Debug, Args)]
#[command(after_help = help::DEFRAG_HELP, group = ArgGroup::new("wanted"))]
pub struct DefragArguments {
    /// Room for this waiting pod. Default: for each waiting pod
    #[arg(long = "for", value_name = "pod/NAME", group = "wanted")]
    pub pod: Option<String>,
    /// Room for this many whole cards on one node
    #[arg(long, value_name = "N", group = "wanted", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub cards: Option<u8>,
    /// Room for a MIG partition of this profile, for example 3g.40gb
    #[arg(long, value_name = "PROFILE", group = "wanted")]
    pub profile: Option<String>,
    /// A node on which no GPU is in use
    #[arg(long, group = "wanted")]
    pub empty_node: bool,
    /// Name of the DRA driver, if several of Tessera's are installed. Default: found in the cluster or the files
    #[arg(long, value_name = "NAME")]
    pub driver: Option<String>,
    /// Print JSON or YAML instead of text
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// As which release.
    #[command(flatten)]
    pub release: ReleaseArguments,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}
