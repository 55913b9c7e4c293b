use clap::value_parser;

use crate::array::Array;
use crate::constraint::Constraint;
use crate::gres::{Gpus, Gres};
use crate::memory::Memory;
use crate::mount::Mount;
use crate::time_limit::{TimeLimit, whole};

/// Options of a batch job, on the command line or in `#SBATCH` lines: sbatch's, pyxis' and a few of our own.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// GPUs of each node: gpu:8, gpu:h100:8 (a model), gpu:1g.10gb:2 (MIG partitions), shard:1 (a share by MPS)
    #[arg(long, value_name = "LIST", help_heading = "GPUs")]
    pub gres: Option<Gres>,
    /// GPUs of the whole job: 16 or h100:16
    #[arg(short = 'G', long, value_name = "[TYPE:]N", help_heading = "GPUs")]
    pub gpus: Option<Gpus>,
    /// GPUs of each node
    #[arg(long, value_name = "[TYPE:]N", help_heading = "GPUs")]
    pub gpus_per_node: Option<Gpus>,
    /// GPUs of each task
    #[arg(long, value_name = "[TYPE:]N", help_heading = "GPUs")]
    pub gpus_per_task: Option<Gpus>,
    /// Take all cards of the nodes
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "", help_heading = "GPUs")]
    pub exclusive: Option<String>,
    /// A model of card (h100, or a100|h100), or a label of the node (KEY=VALUE); several joined by &
    #[arg(short = 'C', long, value_name = "WHAT", help_heading = "GPUs")]
    pub constraint: Option<Constraint>,
    /// Only cards of this GpuPool; several joined by commas
    #[arg(short, long, value_name = "GPUPOOL", value_delimiter = ',', help_heading = "GPUs")]
    pub partition: Vec<String>,
    /// Name of the DRA driver: the chart's driverName
    #[arg(long, value_name = "NAME", help_heading = "GPUs")]
    pub driver: Option<String>,

    /// Number of nodes: a pod on each, which start together or not at all
    #[arg(short = 'N', long, value_name = "N", value_parser = nodes, help_heading = "Nodes and tasks")]
    pub nodes: Option<u32>,
    /// Number of tasks of the whole job
    #[arg(short = 'n', long, value_name = "N", value_parser = tasks, help_heading = "Nodes and tasks")]
    pub ntasks: Option<u32>,
    /// Tasks of each node
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MOST_ON_NODE.into()), help_heading = "Nodes and tasks")]
    pub ntasks_per_node: Option<u32>,
    /// How tasks are counted: block, node by node, or cyclic, a task of each node and then the next
    #[arg(short = 'm', long, value_name = "HOW", value_parser = distribution, help_heading = "Nodes and tasks")]
    pub distribution: Option<String>,
    /// CPUs of each task
    #[arg(short = 'c', long, value_name = "N", value_parser = value_parser!(u32).range(1..=MOST_ON_NODE.into()), help_heading = "Nodes and tasks")]
    pub cpus_per_task: Option<u32>,
    /// CPUs for each GPU
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MOST_ON_NODE.into()), help_heading = "Nodes and tasks")]
    pub cpus_per_gpu: Option<u32>,
    /// Memory of each node, as in 64G
    #[arg(long, value_name = "SIZE", help_heading = "Nodes and tasks")]
    pub mem: Option<Memory>,
    /// Memory for each CPU
    #[arg(long, value_name = "SIZE", help_heading = "Nodes and tasks")]
    pub mem_per_cpu: Option<Memory>,
    /// Memory of the node for each GPU
    #[arg(long, value_name = "SIZE", help_heading = "Nodes and tasks")]
    pub mem_per_gpu: Option<Memory>,

    /// The job's name. Default: that of the script or the program
    #[arg(short = 'J', long, value_name = "NAME", help_heading = "Job")]
    pub job_name: Option<String>,
    /// The namespace, or a GpuQuota with only one for you
    #[arg(short = 'A', long, visible_alias = "namespace", value_name = "NAMESPACE", help_heading = "Job")]
    pub account: Option<String>,
    /// The PriorityClass
    #[arg(short, long, value_name = "CLASS", help_heading = "Job")]
    pub qos: Option<String>,
    /// Limit of the time a pod runs, as in 90, 4:00:00 or 2-12; there is no other try after it
    #[arg(short, long, value_name = "TIME", help_heading = "Job")]
    pub time: Option<TimeLimit>,
    /// Run once for each of these numbers, as in 0-15, 1,3,5-7 or 0-99%8 (8 at once)
    #[arg(short, long, value_name = "LIST", help_heading = "Job")]
    pub array: Option<Array>,
    /// Whether to end after an eviction or the loss of a node: `--no-requeue`, and the opposite `--requeue`.
    #[arg(skip)]
    pub no_requeue: bool,
    /// Environment, as in NAME=VALUE,NAME=VALUE; nothing of yours is taken along
    #[arg(long, value_name = "LIST", help_heading = "Job")]
    pub export: Option<String>,
    /// Run this line with /bin/sh instead of a script
    #[arg(long, value_name = "LINE", help_heading = "Job")]
    pub wrap: Option<String>,

    /// The container image
    #[arg(long, visible_alias = "container-image", value_name = "IMAGE", help_heading = "Container")]
    pub image: Option<String>,
    /// A PersistentVolumeClaim, or a path of the site's volumes or the node, in the container: CLAIM:/PATH or CLAIM:/PATH:ro
    #[arg(
        long,
        visible_alias = "container-mounts",
        value_name = "MOUNT",
        value_delimiter = ',',
        help_heading = "Container"
    )]
    pub mount: Vec<Mount>,
    /// The working directory
    #[arg(
        short = 'D',
        long,
        visible_alias = "container-workdir",
        value_name = "PATH",
        help_heading = "Container"
    )]
    pub chdir: Option<String>,
    /// Image with srun. Default: Tessera's, of this version
    #[arg(long, value_name = "IMAGE", help_heading = "Container")]
    pub tools_image: Option<String>,
}

/// Most pods of a gang.
pub(crate) const MOST_NODES: u32 = tessera_api::gang::MAX_SIZE;

/// Most tasks of a node, or CPUs of a task.
const MOST_ON_NODE: u32 = 1_024;

/// Most tasks of a job.
const MOST_TASKS: u32 = MOST_NODES * MOST_ON_NODE;

fn nodes(text: &str) -> Result<u32, String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    if least != most {
        return Err("a range is not possible: give one number".to_owned());
    }
    let number = whole(least).and_then(|number| u32::try_from(number).ok());
    number
        .filter(|number| (1..=MOST_NODES).contains(number))
        .ok_or_else(|| format!("expected a number from 1 to {MOST_NODES}"))
}

/// Whoever types kubectl's `-n` by habit reads the way on.
fn tasks(text: &str) -> Result<u32, String> {
    let number = whole(text).and_then(|number| u32::try_from(number).ok());
    number.filter(|number| (1..=MOST_TASKS).contains(number)).ok_or_else(|| {
        format!(
            "expected a number from 1 to {MOST_TASKS}; -n is --ntasks, as with sbatch, and -A the namespace"
        )
    })
}

/// The first of Slurm's levels, nodes: sockets and cores are the kernel's.
fn distribution(text: &str) -> Result<String, String> {
    let nodes = text.split([':', ',']).next().unwrap_or(text);
    match nodes {
        "block" | "cyclic" => Ok(nodes.to_owned()),
        "" | "*" => Ok("block".to_owned()),
        _ => Err("block and cyclic are possible".to_owned()),
    }
}
