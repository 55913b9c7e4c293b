//! The job, read from the environment of its pods.

use std::{env, fs, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::{channel::Key, layout::Distribution};

/// Where hosts listen, unless GPU_RUN_PORT says otherwise: the port of Slurm's node daemon.
const USUAL_PORT: u16 = 6818;
pub const PORT: &str = "GPU_RUN_PORT";

/// The key itself, for processes of a pod alone.
pub const KEY: &str = "GPU_RUN_KEY";

/// For hosts to come, and for a host to learn of the job's end. Images are large. GPU_RUN_WAIT has other seconds.
const WAIT: Duration = Duration::from_secs(600);

/// From a SIGTERM to the SIGKILL after it: Slurm's KillWait, and a pod's grace period. GPU_RUN_KILL_WAIT has other seconds.
const KILL_WAIT: Duration = Duration::from_secs(30);

/// Exit code of a pod that ends because of another one. Jobs of `kubectl gpu run` ignore it and make the pod anew: the other
/// pod decides whether the job fails.
pub const DISRUPTED: u8 = 213;

/// One job, seen from one of its pods.
#[derive(Clone)]
pub struct Job {
    /// In the order of their indexes; at least one.
    pub hosts: Vec<Host>,
    /// This host's place in `hosts`.
    pub index: usize,
    /// None where a job of one host has none: each `srun` serves itself there.
    pub key: Option<Key>,
    pub tasks: Option<u32>,
    pub tasks_per_node: Option<u32>,
    pub cpus_per_task: Option<u32>,
    pub gpus_per_task: Option<u32>,
    pub distribution: Distribution,
    pub gpus_on_node: Option<u32>,
    /// SLURM_ARRAY_TASK_ID in a pod of an array.
    pub array_task: Option<String>,
    pub wait: Duration,
    pub kill_wait: Duration,
}

/// A pod of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name in Slurm's lists: as in GPU_RUN_HOSTS.
    pub name: String,
    /// A name or address to connect to.
    pub address: String,
    pub port: u16,
}

impl Job {
    /// From GPU_RUN_… and SLURM_… variables. Without GPU_RUN_HOSTS the job is this machine alone.
    pub fn from_environment() -> Result<Self> {
        let mut job = Self::read(&|name| env::var(name).ok().filter(|value| !value.is_empty()))?;
        if job.hosts.len() == 1
            && let Some(secret) = env::var_os(KEY)
        {
            job.key = Key::new(secret.as_encoded_bytes());
            return Ok(job);
        }
        let path = env::var_os("GPU_RUN_KEY_FILE");
        if job.hosts.len() > 1 || path.is_some() {
            let path = path.context("GPU_RUN_KEY_FILE is not set")?;
            let place = std::path::Path::new(&path);
            let secret = fs::read(place).with_context(|| format!("failed to read {}", place.display()))?;
            let short = || format!("{} has fewer than 16 bytes", place.display());
            job.key = Some(Key::new(&secret).with_context(short)?);
        }
        Ok(job)
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let number = |name: &str| -> Result<Option<u32>> {
            variable(name)
                .map(|value| value.parse().with_context(|| format!("{name} is no number: {value}")))
                .transpose()
        };
        let positive = |name: &str| -> Result<Option<u32>> {
            let value = number(name)?;
            ensure!(value != Some(0), "{name} is 0");
            Ok(value)
        };
        let seconds = |name: &str, usual: Duration| -> Result<Duration> {
            Ok(number(name)?.map_or(usual, |seconds| Duration::from_secs(seconds.into())))
        };
        let port = match number(PORT)? {
            Some(port) => u16::try_from(port).context("GPU_RUN_PORT is above 65535")?,
            None => USUAL_PORT,
        };
        let hosts = variable("GPU_RUN_HOSTS").unwrap_or_else(own_name);
        let hosts: Vec<Host> = hosts.split(',').map(|entry| Host::new(entry.trim(), port)).collect();
        ensure!(hosts.iter().all(|host| !host.address.is_empty()), "GPU_RUN_HOSTS has an empty entry");
        let index = match number("GPU_RUN_INDEX")?.or(number("JOB_COMPLETION_INDEX")?) {
            Some(index) => index as usize,
            None if hosts.len() == 1 => 0,
            None => bail!("neither GPU_RUN_INDEX nor JOB_COMPLETION_INDEX is set"),
        };
        ensure!(
            index < hosts.len(),
            "this is host {index}, and GPU_RUN_HOSTS has {}: they are counted from 0",
            hosts.len()
        );
        Ok(Self {
            hosts,
            index,
            key: None,
            tasks: positive("GPU_RUN_TASKS")?,
            tasks_per_node: positive("GPU_RUN_TASKS_PER_NODE")?,
            cpus_per_task: positive("GPU_RUN_CPUS_PER_TASK")?,
            gpus_per_task: positive("GPU_RUN_GPUS_PER_TASK")?,
            distribution: distribution(variable)?,
            gpus_on_node: number("SLURM_GPUS_ON_NODE")?,
            array_task: array_task(variable)?,
            wait: seconds("GPU_RUN_WAIT", WAIT)?,
            kill_wait: seconds("GPU_RUN_KILL_WAIT", KILL_WAIT)?,
        })
    }

    /// The host of this process.
    pub fn own(&self) -> &Host {
        &self.hosts[self.index]
    }

    /// The host of the job's command.
    pub fn first(&self) -> &Host {
        &self.hosts[0]
    }
}

impl Host {
    fn new(entry: &str, port: u16) -> Self {
        let with_port =
            entry.rsplit_once(':').and_then(|(address, port)| Some((address, port.parse().ok()?)));
        let (address, port) = with_port.unwrap_or((entry, port));
        Self { name: entry.to_owned(), address: address.to_owned(), port }
    }

    /// Whether a user means this host: by its whole name, or by the part before the first dot, a pod's own hostname.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.split_once('.').is_some_and(|(short, _)| short == name)
    }
}

/// Slurm's name: sbatch sets it, and srun reads it.
fn distribution(variable: &dyn Fn(&str) -> Option<String>) -> Result<Distribution> {
    let Some(text) = variable("SLURM_DISTRIBUTION") else { return Ok(Distribution::default()) };
    text.parse().map_err(|error| anyhow!("SLURM_DISTRIBUTION={text}: {error}"))
}

/// In an array each pod is a job of its own: of the list GPU_RUN_ARRAY_TASKS the entry at the pod's index.
fn array_task(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>> {
    let Some(tasks) = variable("GPU_RUN_ARRAY_TASKS") else { return Ok(None) };
    let index = variable("JOB_COMPLETION_INDEX").and_then(|index| index.parse().ok());
    let task = index.and_then(|index: usize| tasks.split(',').nth(index));
    Ok(Some(task.context("JOB_COMPLETION_INDEX has no entry in GPU_RUN_ARRAY_TASKS")?.to_owned()))
}

fn own_name() -> String {
    nix::unistd::gethostname().map_or_else(|_| "localhost".into(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A job of these hosts, seen from the first.
    pub(crate) fn job(variables: &[(&str, &str)]) -> Result<Job> {
        Job::read(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_job_is_read_from_its_pods_environment() {
        let job = job(&[
            ("GPU_RUN_HOSTS", "train-0.train,train-1.train:7000"),
            ("JOB_COMPLETION_INDEX", "1"),
            ("GPU_RUN_TASKS_PER_NODE", "2"),
        ])
        .unwrap();
        assert_eq!(
            job.own(),
            &Host { name: "train-1.train:7000".into(), address: "train-1.train".into(), port: 7000 }
        );
        assert_eq!((job.first().port, job.tasks_per_node, job.tasks), (6818, Some(2), None));
        assert!(job.first().is_called("train-0") && !job.first().is_called("train"));
    }

    #[test]
    fn without_variables_it_is_this_machine() {
        let job = job(&[]).unwrap();
        assert_eq!((job.hosts.len(), job.index), (1, 0));
    }

    #[test]
    fn a_pod_of_an_array_has_its_task() {
        let of = |index| {
            job(&[("GPU_RUN_ARRAY_TASKS", "1,3,7"), ("GPU_RUN_INDEX", "0"), ("JOB_COMPLETION_INDEX", index)])
        };
        assert_eq!(of("2").unwrap().array_task.unwrap(), "7");
        assert!(of("3").is_err());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [
            [("GPU_RUN_HOSTS", "a,b"), ("GPU_RUN_INDEX", "2")],
            [("GPU_RUN_HOSTS", "a,b"), ("GPU_RUN_PORT", "70000")],
            [("GPU_RUN_HOSTS", "a,,b"), ("GPU_RUN_INDEX", "0")],
            [("GPU_RUN_HOSTS", "a"), ("GPU_RUN_TASKS", "many")],
            [("GPU_RUN_HOSTS", "a"), ("GPU_RUN_TASKS", "0")],
        ] {
            assert!(job(&wrong).is_err(), "{wrong:?}");
        }
    }
}
