//! The environment of a step's tasks.

use std::{collections::BTreeMap, ffi::OsString, fs, os::unix::ffi::OsStrExt as _};

use crate::{
    job::Job,
    layout::{Layout, compact},
    message::Text,
};

/// Where a job's command finds the number of its pod's main process.
pub const HOST_PROCESS: &str = "GPU_RUN_HOST_PROCESS";

/// The port of torch.distributed's own examples.
const MASTER_PORT: &str = "29500";

type Variables = Vec<(String, String)>;

/// The caller's variables for tasks: srun's `--export`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Export {
    /// All, and these besides.
    All(Vec<(String, Option<String>)>),
    /// These alone; without a value, the caller's.
    Only(Vec<(String, Option<String>)>),
}

impl Export {
    /// `ALL`, `NONE`, `NIL`, or a list of `NAME` and `NAME=value`, with or without `ALL`.
    pub fn parse(text: &str) -> Self {
        let mut all = false;
        let mut named = Vec::new();
        for item in text.split(',').filter(|item| !matches!(*item, "NONE" | "NIL" | "")) {
            match item.split_once('=') {
                None if item == "ALL" => all = true,
                None => named.push((item.to_owned(), None)),
                Some((name, value)) => named.push((name.to_owned(), Some(value.to_owned()))),
            }
        }
        if all { Self::All(named) } else { Self::Only(named) }
    }
}

/// Changes from another pod's environment to the caller's.
///
/// `given` is the environment of the caller's pod from its start, and stays behind: hostname, index and addresses are no other
/// pod's. Whatever the job's script set, changed or removed since then travels.
pub fn changes(
    export: &Export,
    caller: &BTreeMap<OsString, OsString>,
    given: &BTreeMap<OsString, OsString>,
) -> Vec<(Text, Option<Text>)> {
    let text = |text: &OsString| Text::from(text.as_os_str());
    let (mut changes, named) = match export {
        Export::All(named) => {
            let set = caller.iter().filter(|(name, value)| given.get(*name) != Some(*value));
            let set = set.map(|(name, value)| (text(name), Some(text(value))));
            let removed = given.keys().filter(|name| !caller.contains_key(*name));
            (set.chain(removed.map(|name| (text(name), None))).collect::<Vec<_>>(), named)
        }
        // Slurm's own travel in any case.
        Export::Only(named) => {
            let own = caller.iter().filter(|(name, _)| name.as_bytes().starts_with(b"SLURM_"));
            (own.map(|(name, value)| (text(name), Some(text(value)))).collect(), named)
        }
    };
    for (name, value) in named {
        let value = value.clone().map(OsString::from).or_else(|| caller.get(&OsString::from(name)).cloned());
        changes.extend(value.map(|value| (Text(name.clone().into_bytes()), Some(text(&value)))));
    }
    changes.retain(|(name, _)| name.0 != HOST_PROCESS.as_bytes());
    changes
}

/// The environment with which this pod's main process was started. Empty where there is none, as outside of jobs.
pub fn given() -> BTreeMap<OsString, OsString> {
    let process = std::env::var(HOST_PROCESS).ok().and_then(|process| process.parse::<u32>().ok());
    let Some(bytes) = process.and_then(|process| fs::read(format!("/proc/{process}/environ")).ok()) else {
        return BTreeMap::new();
    };
    let pairs = bytes.split(|byte| *byte == 0).filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        Some((Text(pair[..at].to_vec()).into(), Text(pair[at + 1..].to_vec()).into()))
    });
    pairs.collect()
}

/// For the job's command on the first host, before any step: sbatch(1), "OUTPUT ENVIRONMENT VARIABLES".
pub fn of_command(job: &Job, layout: &Layout) -> Variables {
    let mut variables = of_job(job);
    let tasks: u32 = layout.tasks.iter().sum();
    variables.extend(pairs([
        ("SLURM_NTASKS", tasks.to_string()),
        ("SLURM_NPROCS", tasks.to_string()),
        ("SLURM_NODEID", "0".into()),
        ("SLURM_PROCID", "0".into()),
        ("SLURM_LOCALID", "0".into()),
        ("SLURM_TASKS_PER_NODE", compact(&layout.tasks)),
        ("MASTER_ADDR", job.first().address.clone()),
        ("MASTER_PORT", MASTER_PORT.into()),
    ]));
    variables.extend(job.array_task.clone().map(|task| ("SLURM_ARRAY_TASK_ID".to_owned(), task)));
    variables
}

/// The variables of all tasks of a job.
fn of_job(job: &Job) -> Variables {
    let list = job.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(",");
    let nodes = job.hosts.len().to_string();
    let id = std::env::var("SLURM_JOB_ID").unwrap_or_else(|_| "1".into());
    let name = std::env::var("SLURM_JOB_NAME").unwrap_or_else(|_| "job".into());
    let mut variables = pairs([
        ("SLURM_JOB_ID", id.clone()),
        ("SLURM_JOBID", id),
        ("SLURM_JOB_NAME", name),
        ("SLURM_JOB_NODELIST", list.clone()),
        ("SLURM_NODELIST", list),
        ("SLURM_JOB_NUM_NODES", nodes.clone()),
        ("SLURM_NNODES", nodes),
    ]);
    let optional = [
        ("SLURM_GPUS_ON_NODE", job.gpus_on_node),
        ("SLURM_CPUS_PER_TASK", job.cpus_per_task),
        ("SLURM_NTASKS_PER_NODE", job.tasks_per_node),
        ("SLURM_GPUS_PER_TASK", job.gpus_per_task),
    ];
    let given = optional.into_iter().filter_map(|(name, value)| Some((name, value?.to_string())));
    variables.extend(given.map(|(name, value)| (name.to_owned(), value)));
    variables
}

/// For one task of a step: srun(1), "OUTPUT ENVIRONMENT VARIABLES", and what torch.distributed and torchrun read.
///
/// `host` is a place in `layout`, `local` the task's number on that host. The caller's MASTER_ADDR and MASTER_PORT are kept
/// if a script chose them.
pub fn of_task(
    job: &Job,
    layout: &Layout,
    host: usize,
    local: u32,
    caller: &BTreeMap<OsString, OsString>,
) -> Variables {
    let number = layout.number(host, local);
    let all: u32 = layout.tasks.iter().sum();
    let (here, nodes) = (layout.tasks[host], layout.hosts.len().to_string());
    let list = layout.hosts.iter().map(|place| job.hosts[*place].name.as_str()).collect::<Vec<_>>().join(",");
    let name = &job.hosts[layout.hosts[host]].name;
    let chosen = |name: &str| {
        let value = caller.get(&OsString::from(name))?.to_str()?;
        Some(value.to_owned()).filter(|value| !value.is_empty() && *value != job.first().address)
    };
    let address = chosen("MASTER_ADDR").unwrap_or_else(|| job.hosts[layout.hosts[0]].address.clone());
    let port = chosen("MASTER_PORT").unwrap_or_else(|| MASTER_PORT.to_owned());
    // One task on a node is most often torchrun, with a process of its own for each GPU.
    let processes = if here == 1 { job.gpus_on_node.unwrap_or(1).max(1) } else { here };
    let mut variables = of_job(job);
    variables.extend(pairs([
        ("SLURM_STEP_NODELIST", list),
        ("SLURM_STEP_NUM_NODES", nodes.clone()),
        ("SLURM_STEP_NUM_TASKS", all.to_string()),
        ("SLURM_STEP_TASKS_PER_NODE", compact(&layout.tasks)),
        ("SLURM_TASKS_PER_NODE", compact(&layout.tasks)),
        ("SLURM_NNODES", nodes.clone()),
        ("SLURM_NTASKS", all.to_string()),
        ("SLURM_NPROCS", all.to_string()),
        ("SLURM_NODEID", host.to_string()),
        ("SLURM_PROCID", number.to_string()),
        ("SLURM_LOCALID", local.to_string()),
        ("SLURMD_NODENAME", name.clone()),
        ("RANK", number.to_string()),
        ("WORLD_SIZE", all.to_string()),
        ("LOCAL_RANK", local.to_string()),
        ("LOCAL_WORLD_SIZE", here.to_string()),
        ("MASTER_ADDR", address.clone()),
        ("MASTER_PORT", port.clone()),
        ("PET_NNODES", nodes),
        ("PET_NODE_RANK", host.to_string()),
        ("PET_NPROC_PER_NODE", processes.to_string()),
        ("PET_MASTER_ADDR", address),
        ("PET_MASTER_PORT", port),
    ]));
    variables
}

fn pairs<const N: usize>(pairs: [(&str, String); N]) -> Variables {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{job::tests::job, layout::Distribution};

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn changed(export: &str) -> String {
        let given = variables(&[("HOSTNAME", "train-0"), ("PATH", "/bin"), ("OLD", "1"), ("HOME", "/root")]);
        let caller = variables(&[
            ("HOSTNAME", "train-0"),
            ("PATH", "/opt/bin:/bin"),
            ("HOME", "/root"),
            ("DATA", "/data"),
            ("SLURM_JOB_ID", "7"),
            (HOST_PROCESS, "1"),
        ]);
        let changes = changes(&Export::parse(export), &caller, &given);
        let words = changes.into_iter().map(|(name, value)| {
            let text = |text: Text| String::from_utf8(text.0).unwrap();
            value.map_or_else(
                || format!("-{}", text(name.clone())),
                |value| format!("{}={}", text(name.clone()), text(value)),
            )
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// srun(1), `--export`.
    #[test]
    fn what_the_script_changed_travels() {
        assert_eq!(changed("ALL"), "DATA=/data PATH=/opt/bin:/bin SLURM_JOB_ID=7 -OLD");
        assert_eq!(changed("ALL,SEED=3"), "DATA=/data PATH=/opt/bin:/bin SLURM_JOB_ID=7 -OLD SEED=3");
        assert_eq!(changed("DATA,SEED=3,ABSENT"), "SLURM_JOB_ID=7 DATA=/data SEED=3");
        assert_eq!(changed("NONE"), "SLURM_JOB_ID=7");
    }

    #[test]
    fn a_task_knows_its_place() {
        let job = job(&[
            ("GPU_RUN_HOSTS", "t-0.t,t-1.t,t-2.t"),
            ("GPU_RUN_INDEX", "0"),
            ("SLURM_GPUS_ON_NODE", "8"),
        ])
        .unwrap();
        let layout = Layout { hosts: vec![1, 2], tasks: vec![2, 1], distribution: Distribution::default() };
        let of = |host, local, caller: &[(&str, &str)]| {
            let pairs = of_task(&job, &layout, host, local, &variables(caller));
            pairs.into_iter().collect::<BTreeMap<_, _>>()
        };
        let task = of(1, 0, &[("MASTER_ADDR", "t-0.t")]);
        let expected = [
            ("SLURM_PROCID", "2"),
            ("SLURM_NODEID", "1"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NNODES", "2"),
            ("SLURM_JOB_NUM_NODES", "3"),
            ("SLURM_STEP_NODELIST", "t-1.t,t-2.t"),
            ("SLURM_TASKS_PER_NODE", "2,1"),
            ("LOCAL_WORLD_SIZE", "1"),
            ("WORLD_SIZE", "3"),
            // The step's first host, not the job's.
            ("MASTER_ADDR", "t-1.t"),
            ("PET_NODE_RANK", "1"),
            ("PET_NPROC_PER_NODE", "8"),
        ];
        for (name, value) in expected {
            assert_eq!(task[name], value, "{name}");
        }
        let task = of(0, 1, &[("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "12345")]);
        assert_eq!((&*task["MASTER_ADDR"], &*task["PET_MASTER_PORT"]), ("10.0.0.1", "12345"));
        assert_eq!((&*task["PET_NPROC_PER_NODE"], &*task["RANK"]), ("2", "1"));
    }
}
