//! A job, by options and script: numbers for each pod.

use std::collections::BTreeMap;

use crate::array::Array;
use crate::defaults::Defaults;
use crate::error::BatchError;
use crate::gres::{Amount, Device, Gpus};
use crate::memory::Memory;
use crate::mount::Mount;
use crate::name;
use crate::options::{MOST_NODES, Options};
use crate::script::Script;

/// Image with srun, as the chart names the images of this version.
const TOOLS_IMAGE: &str = concat!("tessera/gpu-run:", env!("CARGO_PKG_VERSION"));

/// The program of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A script, once, on the first pod.
    Script {
        /// The script.
        script: Script,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// A command, in every task.
    Command(Vec<String>),
}

/// A batch job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Name of its objects: a DNS label.
    pub name: String,
    /// The namespace; `None` for the caller's.
    pub namespace: Option<String>,
    /// The name given by the user.
    pub job_name: String,
    /// Script or command.
    pub program: Program,
    /// Number of pods at once; 1 for arrays.
    pub nodes: u32,
    /// Tasks of all pods.
    pub tasks: u32,
    /// Most tasks of a pod.
    pub tasks_per_node: u32,
    /// How tasks are counted, where given: `block` or `cyclic`.
    pub distribution: Option<String>,
    /// CPUs of a task, where given.
    pub cpus_per_task: Option<u32>,
    /// CPUs of a pod, where given.
    pub cpus: Option<u32>,
    /// Memory of a pod, where given.
    pub memory: Option<Memory>,
    /// Devices of a pod.
    pub gpus: Vec<Amount>,
    /// GPUs of a task, where given.
    pub gpus_per_task: Option<u32>,
    /// Whether a pod gets all cards of its node.
    pub all_cards: bool,
    /// Alternative models of cards, each as words of the product name.
    pub models: Vec<Vec<String>>,
    /// Alternative GpuPools.
    pub pools: Vec<String>,
    /// Labels of nodes.
    pub labels: BTreeMap<String, String>,
    /// The PriorityClass.
    pub priority_class: Option<String>,
    /// Limit of a pod's time, in seconds.
    pub seconds: Option<u64>,
    /// Numbers of an array's tasks.
    pub array: Option<Array>,
    /// Whether evicted pods are made anew.
    pub requeue: bool,
    /// Environment of the user and the site.
    pub environment: Vec<(String, String)>,
    /// The image.
    pub image: String,
    /// The image with srun.
    pub tools_image: String,
    /// Name of the DRA driver.
    pub driver: String,
    /// The working directory.
    pub directory: Option<String>,
    /// Mounts of the user.
    pub mounts: Vec<Mount>,
    /// The site's defaults.
    pub defaults: Defaults,
}

impl Job {
    /// The job, and notes about options without effect.
    ///
    /// # Errors
    /// Options contradict each other, or something is missing.
    pub fn new(
        options: &Options,
        program: Option<Program>,
        defaults: &Defaults,
    ) -> Result<(Self, Vec<String>), BatchError> {
        let program = match (program, &options.wrap) {
            (Some(_), Some(_)) => return Err(conflict("--wrap is instead of a script or a command")),
            (None, Some(line)) => Program::Script { script: Script::wrap(line), arguments: Vec::new() },
            (Some(program), None) => program,
            (None, None) => return Err(BatchError::NoProgram),
        };
        let mut notes = Vec::new();
        let layout = Layout::new(options)?;
        let gpus = gpus(options, &layout)?;
        let count = sum(&gpus);
        let all_cards = options.exclusive.is_some() && gpus.is_empty();
        if options.exclusive.is_some() && !all_cards {
            notes.push(
                "--exclusive: others may use what is left of the nodes; without a number of GPUs the job gets all \
                 cards"
                    .to_owned(),
            );
        }
        if count == 0 && !all_cards {
            if !options.partition.is_empty() {
                notes.push("--partition: the job asks for no GPUs".to_owned());
            }
            if options.cpus_per_gpu.is_some() || options.mem_per_gpu.is_some() {
                return Err(conflict("--cpus-per-gpu and --mem-per-gpu need a number of GPUs"));
            }
        }
        let cpus = match (options.cpus_per_task, options.cpus_per_gpu) {
            (Some(_), Some(_)) => {
                return Err(conflict("--cpus-per-task and --cpus-per-gpu exclude each other"));
            }
            (Some(cpus), None) => Some(cpus.saturating_mul(layout.tasks_per_node)),
            (None, Some(cpus)) => Some(cpus.saturating_mul(count)),
            (None, None) => None,
        };
        let memory = match (options.mem, options.mem_per_cpu, options.mem_per_gpu) {
            (memory, None, None) => memory,
            (None, Some(memory), None) => Some(memory.times(cpus.unwrap_or(layout.tasks_per_node))),
            (None, None, Some(memory)) => Some(memory.times(count)),
            _ => return Err(conflict("--mem, --mem-per-cpu and --mem-per-gpu exclude each other")),
        };
        let array = options.array.clone();
        if array.is_some() && layout.nodes > 1 {
            return Err(conflict(
                "an array of jobs over several nodes is not possible: start a job for each number",
            ));
        }
        let image = options.image.as_deref().map(image).transpose()?;
        let constraint = options.constraint.clone().unwrap_or_default();
        let job_name = options.job_name.clone().unwrap_or_else(|| program.name());
        let mut environment = defaults.environment.clone();
        environment.extend(exported(options.export.as_deref())?);
        let job = Job {
            name: name::label(&job_name),
            namespace: options.account.clone(),
            job_name,
            program,
            nodes: layout.nodes,
            tasks: layout.tasks,
            tasks_per_node: layout.tasks_per_node,
            distribution: options.distribution.clone(),
            cpus_per_task: options.cpus_per_task,
            cpus,
            memory: memory.filter(|memory| memory.mib() > 0),
            gpus,
            gpus_per_task: options.gpus_per_task.as_ref().map(total),
            all_cards,
            models: constraint.models,
            pools: options.partition.clone(),
            labels: constraint.labels,
            priority_class: options.qos.clone(),
            seconds: options.time.and_then(crate::TimeLimit::seconds),
            array,
            requeue: !options.no_requeue,
            environment,
            image: image.or_else(|| defaults.image.clone()).ok_or(BatchError::NoImage)?,
            tools_image: options
                .tools_image
                .clone()
                .or_else(|| defaults.tools_image.clone())
                .unwrap_or_else(|| TOOLS_IMAGE.to_owned()),
            driver: options.driver.clone().unwrap_or_else(|| tessera_api::DEFAULT_DRIVER_NAME.to_owned()),
            directory: options.chdir.clone(),
            mounts: options.mount.clone(),
            defaults: defaults.clone(),
        };
        Ok((job, notes))
    }

    /// The value of `SLURM_JOB_ID`, derived from the name.
    #[must_use]
    pub fn number(&self) -> u32 {
        name::number(&self.name)
    }
}

impl Program {
    /// Name of the script without its folder and `.sh`, or of the program.
    fn name(&self) -> String {
        let file = match self {
            Program::Script { script, .. } => script.name.as_str(),
            Program::Command(words) => words.first().map_or("", String::as_str),
        };
        let file = file.rsplit('/').next().unwrap_or(file);
        [".sh", ".slurm", ".sbatch"].iter().find_map(|end| file.strip_suffix(end)).unwrap_or(file).to_owned()
    }
}

fn conflict(text: &str) -> BatchError {
    BatchError::Conflict(text.to_owned())
}

fn total(gpus: &Gpus) -> u32 {
    sum(&gpus.0)
}

fn sum(amounts: &[Amount]) -> u32 {
    amounts.iter().fold(0, |sum, amount| sum.saturating_add(amount.count))
}

/// How many nodes and tasks.
struct Layout {
    nodes: u32,
    tasks: u32,
    tasks_per_node: u32,
}

impl Layout {
    /// Missing numbers follow from the others, as in Slurm: tasks from GPUs for each task, nodes from tasks or GPUs.
    fn new(options: &Options) -> Result<Self, BatchError> {
        let gpus = options.gpus.as_ref().map(total);
        let of_gres = options.gres.as_ref().map(|gres| sum(&gres.0));
        let on_node = options.gpus_per_node.as_ref().map(total).or(of_gres);
        let of_task = options.gpus_per_task.as_ref().map(total);
        let tasks = options.ntasks.or_else(|| divided(gpus?, of_task?));
        let per_node = options.ntasks_per_node.or_else(|| divided(on_node?, of_task?));
        let nodes = options.nodes.or_else(|| Some(tasks?.div_ceil(per_node?)));
        let nodes = nodes.or_else(|| divided(gpus?, on_node?)).unwrap_or(1);
        if nodes > MOST_NODES {
            return Err(BatchError::Conflict(format!("{nodes} nodes: {MOST_NODES} are the most of a job")));
        }
        let tasks = tasks.unwrap_or_else(|| nodes.saturating_mul(per_node.unwrap_or(1)));
        let tasks_per_node = per_node.unwrap_or_else(|| tasks.div_ceil(nodes));
        if tasks > nodes.saturating_mul(tasks_per_node) {
            return Err(BatchError::Conflict(format!(
                "{tasks} tasks do not fit on {nodes} nodes with {tasks_per_node} tasks each"
            )));
        }
        Ok(Layout { nodes, tasks, tasks_per_node })
    }
}

/// `None` with a remainder, and of nothing or by nothing.
fn divided(whole: u32, part: u32) -> Option<u32> {
    (whole > 0 && part > 0 && whole.is_multiple_of(part)).then(|| whole / part)
}

/// Devices of each pod. Where several options say how many, they have to agree.
fn gpus(options: &Options, layout: &Layout) -> Result<Vec<Amount>, BatchError> {
    let scaled = |gpus: &Gpus, scale: &dyn Fn(u32) -> Option<u32>| {
        let amounts =
            gpus.0.iter().map(|amount| Some(Amount { count: scale(amount.count)?, ..amount.clone() }));
        amounts.collect::<Option<Vec<Amount>>>()
    };
    let mut found: Vec<(&str, Vec<Amount>)> = Vec::new();
    if let Some(gres) = &options.gres {
        found.push(("--gres", gres.0.clone()));
    }
    if let Some(gpus) = &options.gpus_per_node {
        found.push(("--gpus-per-node", gpus.0.clone()));
    }
    if let Some(gpus) = &options.gpus_per_task {
        let amounts = scaled(gpus, &|count| count.checked_mul(layout.tasks_per_node));
        found.push(("--gpus-per-task", amounts.ok_or_else(|| conflict("too many GPUs"))?));
    }
    if let Some(gpus) = &options.gpus {
        let nodes = layout.nodes;
        let amounts = scaled(gpus, &|count| divided(count, nodes)).ok_or_else(|| {
            BatchError::Conflict(format!("--gpus cannot be divided evenly among {nodes} nodes"))
        })?;
        found.push(("--gpus", amounts));
    }
    let Some((first, amounts)) = found.first().cloned() else { return Ok(Vec::new()) };
    if let Some((other, _)) = found.iter().find(|(_, others)| sum(others) != sum(&amounts)) {
        return Err(BatchError::Conflict(format!("{first} and {other} give different numbers of GPUs")));
    }
    if let Some(amount) = amounts.iter().find(|amount| !amount.fits_a_claim()) {
        return Err(BatchError::Conflict(format!(
            "{} GPUs of one node: 32 are the most of a claim",
            amount.count
        )));
    }
    // Only one of several options may name the model.
    let named =
        |amounts: &[Amount]| amounts.iter().any(|amount| amount.device != Device::Card { model: Vec::new() });
    Ok(found.into_iter().map(|(_, amounts)| amounts).find(|amounts| named(amounts)).unwrap_or(amounts))
}

/// `NAME=VALUE` entries of `--export`; `ALL`, the caller's environment, is not taken along.
fn exported(list: Option<&str>) -> Result<Vec<(String, String)>, BatchError> {
    let entries = list.into_iter().flat_map(|list| list.split(',')).map(str::trim);
    entries
        .filter(|entry| !["", "ALL", "NONE", "NIL"].contains(entry))
        .map(|entry| match entry.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(BatchError::Value(format!(
                "--export={entry}: nothing of your environment is taken along: give {entry}=VALUE"
            ))),
        })
        .collect()
}

/// The image of `--container-image`: enroot writes `REGISTRY#IMAGE`.
fn image(text: &str) -> Result<String, BatchError> {
    let text = text.strip_prefix("docker://").unwrap_or(text);
    if text.starts_with(['/', '.']) || text.ends_with(".sqsh") {
        return Err(BatchError::Value(format!("{text}: a file is no image here: name one of a registry")));
    }
    Ok(text.replacen('#', "/", 1))
}
