//! The command line of `kubectl gpu get`.

use clap::{Args, ValueEnum};

use super::{ListFormat, SourceArguments, help};

/// What `kubectl gpu get` lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    /// Devices, with holders
    Devices,
    /// Claims, with their devices
    Claims,
}

/// `kubectl gpu get`
#[derive(Debug, Args)]
#[command(after_help = help::GET_HELP)]
pub struct GetArguments {
    /// Devices or claims
    #[arg(value_enum, default_value = "devices")]
    pub listed: Listed,
    /// Only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Also free partitions of cards offered whole or as shares
    #[arg(short, long)]
    pub all: bool,
    /// All namespaces, as without -n
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Keep running, and print changes
    #[arg(short, long, conflicts_with = "files")]
    pub watch: bool,
    /// Print JSON, YAML or a wider table
    #[arg(short, long, value_enum)]
    pub output: Option<ListFormat>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

impl GetArguments {
    /// The only namespace; `None`: all. As with kubectl, -A wins.
    pub fn only_namespace(&self) -> Option<&str> {
        self.source.namespace.as_deref().filter(|_| !self.all_namespaces)
    }
}
