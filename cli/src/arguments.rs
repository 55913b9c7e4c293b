//! The command line.

mod get;
mod help;
mod migrate;
mod simulate;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use k8s_openapi::jiff::{self, SignedDuration};
use tessera_api::kubernetes::KubernetesVersion;

pub use get::{GetArguments, Listed};
pub use migrate::{MigrateArguments, Origin, PlanFormat};
pub use simulate::SimulateArguments;

/// What kube-scheduler would allocate and why, which devices a CEL selector matches, and how GPUs are used.
#[derive(Debug, Parser)]
#[command(name = "kubectl gpu", bin_name = "kubectl gpu", version, after_help = help::AFTER_HELP)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// What kube-scheduler would allocate to a pod or claim on each node, as a dry run
    Allocate(AllocateArguments),
    /// Why a pod or claim waits, and what would help; or why it got its devices
    Explain(ExplainArguments),
    /// Which devices match a CEL selector, with the value of each part of it for one device
    Cel(CelArguments),
    /// The GpuPools: how many cards each has, what is allocated, who waits, and what is wrong
    Pools(PoolsArguments),
    /// How the cards of a node are connected, which groups they form, and who holds what
    Topology(TopologyArguments),
    /// What nodes, cards, pods or namespaces have of the cards, and what they use
    Top(TopArguments),
    /// From what claims used, the smallest device that would have held each, and what that saves
    Advise(AdviseArguments),
    /// Who waits for cards, in which order, and for what
    Queue(QueueArguments),
    /// The fleet page, on a port of this machine
    Fleet(FleetArguments),
    /// What is wrong with the driver in the cluster, and what to do
    Doctor(DoctorArguments),
    /// What a fleet would make of a workload, with us and with others, before it is bought
    Simulate(Box<SimulateArguments>),
    /// Devices and claims: who holds what
    Get(GetArguments),
    /// From NVIDIA's drivers to this one: our values, GpuPools and DeviceClasses, and the steps node by node
    Migrate(MigrateArguments),
    /// Lets pods go that wait for a controller that is not there: removes its scheduling gate
    Ungate(UngateArguments),
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// The output format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// The table with more columns
    Wide,
}

/// Where the objects come from.
#[derive(Debug, Args)]
pub struct SourceArguments {
    /// File or folder with Kubernetes objects in YAML or JSON (several documents per file), or - for standard input;
    /// may be repeated. Without it, the objects are read from the cluster
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Also read subfolders of the folders given by -f
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Namespace of the named pod or claim, and of objects in files that name none
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// The cluster, as kubectl's arguments name it.
#[derive(Debug, Args)]
pub struct ConnectionArguments {
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
    /// Timeout for the API server's answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = "Cluster")]
    pub request_timeout: u64,
}

/// The Kubernetes whose answers are told.
#[derive(Debug, Args)]
pub struct ReleaseArguments {
    /// Answer as this release of Kubernetes: 1.37, 1.36.3. Without it as the API server's, and where the objects are from
    /// files as the newest that is known
    #[arg(long, value_name = "VERSION")]
    pub kubernetes: Option<KubernetesVersion>,
}

/// `kubectl gpu allocate`
#[derive(Debug, Args)]
#[command(after_help = help::ALLOCATE_HELP)]
pub struct AllocateArguments {
    /// pod/NAME or claim/NAME. Without it, all waiting pods (if there are no pods at all, all waiting claims)
    #[arg(value_name = "pod/NAME|claim/NAME")]
    pub subject: Option<String>,
    /// Show all nodes
    #[arg(short, long)]
    pub verbose: bool,
    /// Answer JSON requests on standard input, one per line (docs/allocate-protocol.md)
    #[arg(long, conflicts_with_all = ["subject", "files", "output", "verbose"])]
    pub lines: bool,
    /// Print JSON or YAML instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// As which release.
    #[command(flatten)]
    pub release: ReleaseArguments,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu explain`
#[derive(Debug, Args)]
#[command(after_help = help::EXPLAIN_HELP)]
pub struct ExplainArguments {
    /// pod/NAME or claim/NAME
    #[arg(value_name = "pod/NAME|claim/NAME")]
    pub subject: String,
    /// Show up to 50 entries of each list instead of 4, and the reason for each device
    #[arg(short, long)]
    pub verbose: bool,
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

/// `kubectl gpu cel`
#[derive(Debug, Args)]
#[command(after_help = help::CEL_HELP)]
pub struct CelArguments {
    /// The selector, as in a DeviceClass or ResourceClaim
    #[arg(required_unless_present = "lines")]
    pub expression: Option<String>,
    /// Show the value of every part of the expression for this device: DEVICE, NODE/DEVICE, POOL/DEVICE or
    /// DRIVER/POOL/DEVICE
    #[arg(long, value_name = "NAME", conflicts_with = "lines")]
    pub device: Option<String>,
    /// Also list devices that do not match
    #[arg(short, long)]
    pub verbose: bool,
    /// Answer JSON requests on standard input, one per line (docs/allocate-protocol.md)
    #[arg(long, conflicts_with_all = ["expression", "files", "output", "verbose"])]
    pub lines: bool,
    /// Print JSON or YAML instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Where the devices come from.
    #[command(flatten)]
    pub source: SourceArguments,
    /// As which release.
    #[command(flatten)]
    pub release: ReleaseArguments,
}

/// `kubectl gpu pools`
#[derive(Debug, Args)]
#[command(after_help = help::POOLS_HELP)]
pub struct PoolsArguments {
    /// The pool to describe. Without it, all are listed
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON, YAML or a wider table
    #[arg(short, long, value_enum)]
    pub output: Option<ListFormat>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu topology`
#[derive(Debug, Args)]
#[command(after_help = help::TOPOLOGY_HELP)]
pub struct TopologyArguments {
    /// The node. Without it, nodes with cards are listed
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    /// Print JSON or YAML instead of text
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu doctor`
#[derive(Debug, Args)]
#[command(after_help = help::DOCTOR_HELP)]
pub struct DoctorArguments {
    /// Only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Name of the DRA driver, where several of Tessera's are installed. Without it, that which publishes devices
    #[arg(long, value_name = "NAME")]
    pub driver: Option<String>,
    /// Print JSON or YAML instead of text
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// What rows are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// Nodes
    Nodes,
    /// Cards
    Cards,
    /// Pods
    Pods,
    /// Namespaces
    Namespaces,
}

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// The name
    Name,
    /// What is allocated, most first
    Allocated,
    /// What is busy, most first
    Busy,
    /// What is allocated and idle, most first
    Idle,
    /// Memory in use, most first
    Memory,
}

/// `kubectl gpu top`
#[derive(Debug, Args)]
#[command(after_help = help::TOP_HELP)]
pub struct TopArguments {
    /// What to show
    #[arg(value_enum, default_value = "nodes")]
    pub rows: Rows,
    /// Only this node's
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Only this namespace's: of pods and namespaces
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// What to sort by. Nodes and cards by name, pods and namespaces by idle unless told
    #[arg(long, value_enum, value_name = "COLUMN")]
    pub sort_by: Option<SortBy>,
    /// Show it once, and not again every five seconds
    #[arg(long)]
    pub once: bool,
    /// Print JSON or YAML instead of a table, once
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// A fleet.json saved from the fleet page, in place of a cluster
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `kubectl gpu advise`
#[derive(Debug, Args)]
#[command(after_help = help::ADVISE_HELP)]
pub struct AdviseArguments {
    /// Say nothing of claims that were watched for less: 30m, 1h, 48h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub min_observed: Duration,
    /// A fleet.json saved from the fleet page, in place of the controller's answer
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,
    /// Name of the DRA driver, where several of Tessera's are installed. Without it, that which publishes devices
    #[arg(long, value_name = "NAME")]
    pub driver: Option<String>,
    /// Print JSON, or the manifests to apply as YAML, instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// A time as `30m` or `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(duration).map_err(|_| "a time is not negative".to_owned())
}

/// `kubectl gpu queue`
#[derive(Debug, Args)]
#[command(after_help = help::QUEUE_HELP)]
pub struct QueueArguments {
    /// Only this namespace's
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Print JSON or YAML instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    /// A fleet.json saved from the fleet page, in place of a cluster
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `kubectl gpu fleet`
#[derive(Debug, Args)]
#[command(after_help = help::FLEET_HELP)]
pub struct FleetArguments {
    /// Port of this machine; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    pub port: u16,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `kubectl gpu ungate`
#[derive(Debug, Args)]
#[command(after_help = help::UNGATE_HELP)]
pub struct UngateArguments {
    /// The pods, as NAME or pod/NAME
    #[arg(value_name = "POD", required_unless_present = "all", conflicts_with = "all")]
    pub pods: Vec<String>,
    /// All pods of the namespace that have the gate
    #[arg(long)]
    pub all: bool,
    /// With --all: of all namespaces
    #[arg(short = 'A', long, requires = "all", conflicts_with_all = ["namespace", "pods"])]
    pub all_namespaces: bool,
    /// The pods' namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Ask the API server whether it would do it, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
