//! The options of `srun`, by its man page.

use std::{ffi::OsString, path::PathBuf};

use clap::{Arg, Args as _, Command, FromArgMatches as _, Parser};

use crate::{
    environment::Export,
    layout::{Distribution, Wanted},
};

/// Runs a command in the job's pods. Once in each, unless the job or -n say more.
#[derive(Debug, Parser)]
pub struct Options {
    /// Tasks in all. [default: the job's]
    #[arg(short = 'n', long, value_name = "TASKS", value_parser = clap::value_parser!(u32).range(1..))]
    pub ntasks: Option<u32>,
    /// Nodes: pods of the job. [default: all]
    #[arg(short = 'N', long, value_name = "NODES", value_parser = nodes)]
    pub nodes: Option<u32>,
    /// Tasks on each node; with -n, at most.
    #[arg(long, alias = "tasks-per-node", value_name = "TASKS",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub ntasks_per_node: Option<u32>,
    /// How tasks are counted: block (host by host) or cyclic (a task of each host, then the next). [default: the job's]
    #[arg(short = 'm', long, value_name = "HOW")]
    pub distribution: Option<Distribution>,
    /// CPUs of each task: only SLURM_CPUS_PER_TASK.
    #[arg(short = 'c', long, value_name = "CPUS", value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus_per_task: Option<u32>,
    /// GPUs of each task, in CUDA_VISIBLE_DEVICES: N or MODEL:N. Otherwise a task sees all of its pod's.
    #[arg(long, value_name = "GPUS", value_parser = gpus)]
    pub gpus_per_task: Option<u32>,
    /// Only these nodes, as in SLURM_JOB_NODELIST: NAME-[0-3],…
    #[arg(short = 'w', long, value_name = "NODES")]
    pub nodelist: Option<String>,
    /// Not these nodes.
    #[arg(short = 'x', long, value_name = "NODES")]
    pub exclude: Option<String>,
    /// First node, counted from 0.
    #[arg(short = 'r', long, value_name = "NODE", default_value_t = 0)]
    pub relative: usize,
    /// Puts the task's number before each line.
    #[arg(short = 'l', long)]
    pub label: bool,
    /// Passes output on at once, not line by line.
    #[arg(short = 'u', long)]
    pub unbuffered: bool,
    /// Variables of this environment for tasks: ALL, NONE, or NAME[=VALUE],… with ALL for these besides.
    #[arg(long, value_name = "NAMES", default_value = "ALL", value_parser = export)]
    pub export: Export,
    /// Input of tasks: all of srun's, none, a task's number (nothing for the others), or a file.
    #[arg(short = 'i', long, value_name = "MODE", default_value = "all")]
    pub input: String,
    /// File for output, or none. %t is the task, %n and %N its node's number and name, %j the job, %x its name.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<String>,
    /// The same for errors. [default: with output]
    #[arg(short = 'e', long, value_name = "FILE")]
    pub error: Option<String>,
    /// Directory of the tasks. [default: this one]
    #[arg(short = 'D', long, value_name = "DIR")]
    pub chdir: Option<PathBuf>,
    /// Whether the first failing task ends the others. With 0, srun waits for all.
    #[arg(short = 'K', long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_value = "1",
          default_missing_value = "1", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub kill_on_bad_exit: u8,
    /// Seconds from the end of the first task until the others are ended; 0: never.
    #[arg(short = 'W', long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u32,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Options without effect here: a pod has its devices, CPUs and memory, and steps share them.
const WITH_VALUE: [(&str, Option<char>); 32] = [
    ("accel-bind", None),
    ("account", Some('A')),
    ("comment", None),
    ("constraint", Some('C')),
    ("cores-per-socket", None),
    ("cpu-bind", None),
    ("cpu-freq", None),
    ("cpu_bind", None),
    ("cpus-per-gpu", None),
    ("gpu-bind", None),
    ("gpu-freq", None),
    ("gpus", Some('G')),
    ("gpus-per-node", None),
    ("gpus-per-socket", None),
    ("gres", None),
    ("gres-flags", None),
    ("hint", None),
    ("job-name", Some('J')),
    ("jobid", None),
    ("mem", None),
    ("mem-bind", None),
    ("mem-per-cpu", None),
    ("mem-per-gpu", None),
    ("mpi", None),
    ("network", None),
    ("ntasks-per-gpu", None),
    ("open-mode", None),
    ("partition", Some('p')),
    ("qos", Some('q')),
    ("threads-per-core", None),
    ("time", Some('t')),
    ("tmp", None),
];
const WITH_OR_WITHOUT: [(&str, Option<char>); 8] = [
    ("exact", None),
    ("exclusive", None),
    ("external-launcher", None),
    ("no-kill", Some('k')),
    ("overlap", None),
    ("overcommit", Some('O')),
    ("oversubscribe", Some('s')),
    ("propagate", None),
];
const WITHOUT: [(&str, Option<char>); 3] =
    [("quiet", Some('Q')), ("verbose", Some('v')), ("disable-status", Some('X'))];

/// Options of Slurm refused here, with the way to do it instead.
const REFUSED: [(&str, &str); 7] = [
    ("--pty", "a terminal is kubectl exec's: kubectl exec --stdin --tty POD -- bash"),
    ("--multi-prog", "start the programs by a script that looks at SLURM_PROCID"),
    ("--het-group", "a job's pods are all alike"),
    ("--bcast", "put the file on a volume that all pods mount"),
    ("--container-image", "steps run in the pod's image: give it to kubectl gpu run --image"),
    ("--container-mounts", "steps run in the pod: give volumes to kubectl gpu run --mount"),
    ("--dependency", "wait for the step before: wait, or a line of its own"),
];

impl Options {
    /// Arguments after the program's name. Ends the process for `--help` and mistakes, as clap does.
    pub fn read(arguments: Vec<OsString>) -> Self {
        let mut command = Self::augment_args(
            Command::new("srun").infer_long_args(true).override_usage("srun [OPTIONS] COMMAND…"),
        );
        let ignored = |arg: &(&'static str, Option<char>)| {
            let ignored = Arg::new(arg.0).long(arg.0).hide(true).overrides_with(arg.0);
            arg.1.into_iter().fold(ignored, |arg, short| arg.short(short))
        };
        command = command.args(WITH_VALUE.iter().map(|arg| ignored(arg).num_args(1)));
        command =
            command.args(WITH_OR_WITHOUT.iter().map(|arg| ignored(arg).num_args(0..=1).require_equals(true)));
        command = command.args(WITHOUT.iter().map(|arg| ignored(arg).action(clap::ArgAction::SetTrue)));
        let matches = command
            .clone()
            .try_get_matches_from([OsString::from("srun")].into_iter().chain(arguments.clone()));
        let options = matches.and_then(|matches| Self::from_arg_matches(&matches));
        options.unwrap_or_else(|error| {
            let given = |name: &str| {
                let is = |argument: &OsString| {
                    argument.to_str().is_some_and(|text| text.split('=').next() == Some(name))
                };
                arguments.iter().any(is)
            };
            if error.kind() == clap::error::ErrorKind::UnknownArgument
                && let Some((name, instead)) = REFUSED.iter().find(|(name, _)| given(name))
            {
                command.error(clap::error::ErrorKind::UnknownArgument, format!("{name}: {instead}")).exit()
            }
            error.exit()
        })
    }

    /// Their part on hosts and tasks.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            nodes: self.nodes,
            tasks: self.ntasks,
            tasks_per_node: self.ntasks_per_node,
            only: self.nodelist.clone(),
            without: self.exclude.clone(),
            relative: self.relative,
        }
    }
}

fn export(text: &str) -> Result<Export, std::convert::Infallible> {
    Ok(Export::parse(text))
}

/// `2`, or `1-2`: the larger, if the job has as many.
fn nodes(text: &str) -> Result<u32, String> {
    let last = text.rsplit('-').next().unwrap_or(text);
    last.parse().ok().filter(|nodes| *nodes > 0).ok_or_else(|| "a number of nodes is needed".to_owned())
}

/// `2`, or `h100:2`.
fn gpus(text: &str) -> Result<u32, String> {
    let last = text.rsplit(':').next().unwrap_or(text);
    last.parse().map_err(|_| "a number of GPUs is needed, or MODEL:NUMBER".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Options {
        Options::read(line.split_whitespace().map(OsString::from).collect())
    }

    /// srun(1): options end at the command, whose own are left alone.
    #[test]
    fn options_are_read_as_srun_does() {
        let options =
            read("-N2 -n 4 --ntasks-per-node=2 -c8 -l --export=ALL,A=b python -m train -n 3 --label");
        assert_eq!((options.nodes, options.ntasks, options.cpus_per_task), (Some(2), Some(4), Some(8)));
        assert_eq!((options.ntasks_per_node, options.label), (Some(2), true));
        assert_eq!(options.command, ["python", "-m", "train", "-n", "3", "--label"]);
        // Unambiguous beginnings.
        assert_eq!(read("--ntasks-per-n 2 a").ntasks_per_node, Some(2));
        assert_eq!(read("-N 1-2 a").nodes, Some(2));
        assert_eq!(read("--gpus-per-task=h100:2 a").gpus_per_task, Some(2));
        assert_eq!((read("a").kill_on_bad_exit, read("-K a").kill_on_bad_exit), (1, 1));
        assert_eq!(
            (read("-K=0 a").kill_on_bad_exit, read("--kill-on-bad-exit=0 a").kill_on_bad_exit),
            (0, 0)
        );
        assert_eq!(read("-i none -W 60 a -i").input, "none");
    }

    #[test]
    fn options_of_what_a_pod_has_already_are_taken() {
        let line = "--mpi=pmix --cpu-bind=none --exclusive --overlap -J step -t 1:00:00 --gres=gpu:8 --mem 0 -p gpu -Q \
                    --external-launcher --cpu_bind=cores --mpi=none --gpus-per-node=8 -v -v python a.py";
        assert_eq!(read(line).command, ["python", "a.py"]);
    }
}
