//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use k8s_openapi::jiff::{self, SignedDuration};
use tessera_simulate::PolicyName;

const AFTER_HELP: &str = "\
Exit codes: 0 it fits (cel: a device matches; pools: all are ready), 1 it does not, 2 an error.";

const ALLOCATE_HELP: &str = r#"Examples:
  # Where a waiting pod would fit, and what it would get there
  kubectl gpu allocate pod/trainer -n research

  # What a claim of a file would get in the cluster, before it is applied
  kubectl gpu allocate -f claim.yaml

  # The same without a cluster: slices, classes, nodes and allocated claims from files too
  kubectl get resourceslices,deviceclasses,nodes,resourceclaims -A -o yaml > cluster.yaml
  kubectl gpu allocate -f cluster.yaml -f pod.yaml -o json

  # One JSON request a line, for other programs
  kubectl gpu allocate --lines < requests.jsonl

Of what is not devices, node selectors, node affinity, taints, cordons, and what pods leave of CPU, memory, ports and
the number of pods count; spreading and pod affinity do not.
Several pods or claims are each answered as if they came first.

Exit codes: 0 all fit on some node, 1 one does not, 2 an error."#;

const EXPLAIN_HELP: &str = r#"Examples:
  # Why a pod waits, and what would help
  kubectl gpu explain pod/trainer -n research

  # Why a claim got the devices it has
  kubectl gpu explain claim/shared-gpu

  # Every node and every device
  kubectl gpu explain pod/trainer -v

  # From files
  kubectl gpu explain pod/trainer -f cluster.yaml -f pod.yaml

Exit codes: 0 it has its devices or would fit, 1 it does not fit, 2 an error."#;

const CEL_HELP: &str = r#"Examples:
  # The cards of the cluster with at least 40000 MiB
  kubectl gpu cel 'device.attributes["gpu.tessera.dev"].memoryMiB >= 40000'

  # Why a device does not match: every part of the expression with its value
  kubectl gpu cel 'device.driver == "gpu.tessera.dev" && device.attributes["gpu.tessera.dev"].type == "mig"' \
      --device node-a/gpu-3b-00

  # Devices of files, as JSON
  kubectl gpu cel 'device.allowMultipleAllocations' -f slices.yaml -o json

  # One JSON request a line, for other programs
  kubectl gpu cel --lines < requests.jsonl

Exit codes: 0 a device matches, 1 none does, 2 the expression is wrong or fails on a device."#;

const POOLS_HELP: &str = r#"Examples:
  # All pools
  kubectl gpu pools

  # One of them: its conditions, who waits for what, and the nodes with their cards
  kubectl gpu pools inference

  # From files
  kubectl get gpupools,resourceslices -o yaml > cluster.yaml
  kubectl gpu pools -f cluster.yaml -o wide

ALLOCATED and UNALLOCATABLE are cards' worth: a partition counts by its share of the card's memory. WAITING is pods.

Exit codes: 0 all are ready, 1 one is not or nothing current is known of it, 2 an error."#;

const TOPOLOGY_HELP: &str = r#"Examples:
  # The nodes with cards
  kubectl gpu topology

  # Links between the cards of a node as `nvidia-smi topo -m` prints them, groups, and who holds what
  kubectl gpu topology node-a

  # For programs
  kubectl gpu topology node-a -o json

Exit codes: 0 there are cards, 1 there are none, 2 an error."#;

const DOCTOR_HELP: &str = r#"Examples:
  # What is wrong, and what to do about it
  kubectl gpu doctor

  # Of one node
  kubectl gpu doctor --node node-a

  # For a monitor
  kubectl gpu doctor -o json

It looks at versions, feature gates, clocks, the controller, admission policies, kubelet plugins and what they say of themselves, container
runtimes and NVIDIA's driver, slices, sick cards, cards that another driver, a device plugin or the GPU Operator's MIG manager owns as
well, DeviceClasses, GpuPools, and claims whose devices are gone, cannot be prepared or are used by nobody. What you may not read is
not looked at.

Exit codes: 0 nothing is wrong, 1 something is, 2 an error."#;

const QUEUE_HELP: &str = r#"Examples:
  # Who waits, the first first
  kubectl gpu queue

  # A team's, for a script
  kubectl gpu queue -n research -o json

A gang has one row. A higher priority goes first, then who was complete first; whether the others may pass is said by the pool
(placement.queue). The controller answers, as for `kubectl gpu top`.

Exit codes: 0 done, 2 an error."#;

const TOP_HELP: &str = r#"Examples:
  # What teams have and use, most idle first; renewed every five seconds at a terminal
  kubectl gpu top namespaces

  # Each card: allocated beside busy, memory, power
  kubectl gpu top cards --node node-a

  # Once, for a script
  kubectl gpu top pods -n research --once -o json

ALLOCATED and BUSY are cards' worth: a partition counts by its share of the card's memory, what is busy by its multiprocessors. IDLE is
allocated and not busy. `-` is what no plugin tells. The controller answers, through a forwarded port: that takes the right to create
pods/portforward in its namespace.

Exit codes: 0 there are cards, 1 there are none, 2 an error."#;

const ADVISE_HELP: &str = r#"Examples:
  # What each claim could do with less, most saved first
  kubectl gpu advise

  # One namespace's, and what to apply for it
  kubectl gpu advise -n research
  kubectl gpu advise -n research -o yaml > advised.yaml

  # Would the scheduler find what is advised?
  kubectl gpu allocate -f advised.yaml

  # Judge claims that were watched for ten minutes
  kubectl gpu advise --min-observed 10m

  # From files: a fleet.json saved from the fleet page, and the cluster's objects
  kubectl get resourceslices,deviceclasses,resourceclaims,pods -A -o yaml > cluster.yaml
  kubectl gpu advise --fleet fleet.json -f cluster.yaml

The controller remembers what each claim used at most, from the time that it began to watch. A claim is advised the smallest device that
its card's model is offered as, and that has a fifth more than both peaks: memory, and busy multiprocessors. A peak of four times
the mean is a burst: such claims are advised shares and time-slices, sized by memory and mean. Claims of one template are
judged together. -n shows one namespace, else all are shown. Nothing is changed.

Exit codes: 0 some claim could do with less, 1 none could, 2 an error."#;

const SIMULATE_HELP: &str = r#"Examples:
  # How much of Alibaba's cluster of 6,212 cards each policy would allocate
  kubectl gpu simulate --openb openb_node_list_gpu_node.csv openb_pod_list_default.csv

  # Two of them side by side, with more runs
  kubectl gpu simulate --openb nodes.csv pods.csv --policy tessera-bare,fgd --runs 50

  # For programs; the same seed gives the same numbers everywhere
  kubectl gpu simulate --openb nodes.csv pods.csv --runs 10 --seed 42 -o json

Pods arrive in random order until they would ask for 130 % of the cards; nobody leaves, and who finds no room is
gone. All policies see the same arrivals. What is in the files, and what each policy does: docs/simulate.md.

Exit codes: 0 it was simulated, 2 an error."#;

const FLEET_HELP: &str = r#"Examples:
  # Open the address that it prints in a browser; ends with Ctrl-C
  kubectl gpu fleet

  # On another port of this machine
  kubectl gpu fleet --port 9000"#;

const UNGATE_HELP: &str = r#"Examples:
  # Let one pod go
  kubectl gpu ungate trainer -n research

  # Which pods of the whole cluster the gate holds back
  kubectl gpu ungate --all -A --dry-run

  # Let all of them go, as when the controller is gone for good
  kubectl gpu ungate --all -A

kube-scheduler then chooses their node alone. Gates of others stay. New pods get the gate as long as their namespace or
they themselves have the label gpu.tessera.dev/steering=enabled.

Exit codes: 0 the gate is off all of them (with --all, also where no pod had it), 1 a named pod had none, 2 an error."#;

/// What kube-scheduler would allocate and why, which devices a CEL selector matches, and how GPUs are used.
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
    /// How much of a fleet would get allocated, by us and by others, on a trace
    Simulate(SimulateArguments),
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

/// `kubectl gpu allocate`
#[derive(Debug, Args)]
#[command(after_help = ALLOCATE_HELP)]
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
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu explain`
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_HELP)]
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
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArguments,
}

/// `kubectl gpu cel`
#[derive(Debug, Args)]
#[command(after_help = CEL_HELP)]
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
}

/// `kubectl gpu pools`
#[derive(Debug, Args)]
#[command(after_help = POOLS_HELP)]
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
#[command(after_help = TOPOLOGY_HELP)]
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
#[command(after_help = DOCTOR_HELP)]
pub struct DoctorArguments {
    /// Only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Name of the DRA driver
    #[arg(long, value_name = "NAME", default_value = tessera_api::DEFAULT_DRIVER_NAME)]
    pub driver: String,
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
#[command(after_help = TOP_HELP)]
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
#[command(after_help = ADVISE_HELP)]
pub struct AdviseArguments {
    /// Say nothing of claims that were watched for less: 30m, 1h, 48h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub min_observed: Duration,
    /// A fleet.json saved from the fleet page, in place of the controller's answer
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,
    /// Name of the DRA driver
    #[arg(long, value_name = "NAME", default_value = tessera_api::DEFAULT_DRIVER_NAME)]
    pub driver: String,
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
#[command(after_help = QUEUE_HELP)]
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
#[command(after_help = FLEET_HELP)]
pub struct FleetArguments {
    /// Port of this machine; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    pub port: u16,
    /// The cluster.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `kubectl gpu simulate`
#[derive(Debug, Args)]
#[command(after_help = SIMULATE_HELP)]
pub struct SimulateArguments {
    /// A trace in the form of openb (Alibaba's cluster-trace-gpu-v2023): its files with nodes and with pods
    #[arg(long, num_args = 2, required = true, value_names = ["NODES.csv", "PODS.csv"])]
    pub openb: Vec<PathBuf>,
    /// Runs, each with arrivals in another order
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub runs: u64,
    /// Seed of the first run; those of the others follow
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Only these, in this order: tessera, tessera-bare, fgd, fgd-best-fit, fgd-learning, best-fit, packing, clustering, dot-product,
    /// hami-binpack, kai-binpack, kube-scheduler, first-fit, random
    #[arg(long = "policy", value_name = "NAMES", value_delimiter = ',')]
    pub policies: Vec<PolicyName>,
    /// Print JSON or YAML instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// `kubectl gpu ungate`
#[derive(Debug, Args)]
#[command(after_help = UNGATE_HELP)]
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
