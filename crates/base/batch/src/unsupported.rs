//! Options of sbatch without a counterpart: some may be left out, without others a job would be another.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::error::BatchError;

/// An option of sbatch, or of pyxis.
struct Unsupported {
    long: &'static str,
    short: Option<char>,
    takes: Takes,
    /// The reason for its missing effect; or the way to do it here.
    words: &'static str,
}

enum Takes {
    Nothing,
    Value,
    Either,
}

const fn option(long: &'static str, short: Option<char>, takes: Takes, words: &'static str) -> Unsupported {
    Unsupported { long, short, takes, words }
}

const LOGS: &str = "output is in the pods' logs (kubectl logs)";
const MAIL: &str = "no mail is sent";
const NO_NEED: &str = "it has no effect here";
const NODES: &str = "name nodes by a label: --constraint=kubernetes.io/hostname=NODE";
const LAYOUT: &str = "--nodes, --ntasks-per-node and --cpus-per-task say how tasks lie";

/// They are said, and do nothing.
const IGNORED: &[Unsupported] = &[
    option("output", Some('o'), Takes::Value, LOGS),
    option("error", Some('e'), Takes::Value, LOGS),
    option("open-mode", None, Takes::Value, LOGS),
    option("mail-type", None, Takes::Value, MAIL),
    option("mail-user", None, Takes::Value, MAIL),
    option("comment", None, Takes::Value, NO_NEED),
    option("wckey", None, Takes::Value, NO_NEED),
    option("time-min", None, Takes::Value, NO_NEED),
    option("tmp", None, Takes::Value, NO_NEED),
    option("hint", None, Takes::Value, NO_NEED),
    option("threads-per-core", None, Takes::Value, NO_NEED),
    option("cpu-freq", None, Takes::Value, NO_NEED),
    option(
        "gpu-bind",
        None,
        Takes::Value,
        "each task sees the GPUs of its pod, or its own with --gpus-per-task",
    ),
    option("gres-flags", None, Takes::Value, "the GpuPool's placement decides about topology"),
    option("switches", None, Takes::Value, "gangs are placed by topology anyway"),
    option("oversubscribe", Some('s'), Takes::Nothing, NO_NEED),
    option("overcommit", Some('O'), Takes::Nothing, NO_NEED),
    option("contiguous", None, Takes::Nothing, "gangs are placed by topology anyway"),
    option("parsable", None, Takes::Nothing, NO_NEED),
    option("quiet", Some('Q'), Takes::Nothing, NO_NEED),
    option("verbose", Some('v'), Takes::Nothing, NO_NEED),
    option("get-user-env", None, Takes::Either, "nothing of your environment is taken along"),
    option("no-kill", Some('k'), Takes::Either, NO_NEED),
    option("propagate", None, Takes::Either, NO_NEED),
    option("no-container-mount-home", None, Takes::Nothing, NO_NEED),
    option("container-writable", None, Takes::Nothing, NO_NEED),
    option("container-name", None, Takes::Value, "each pod has a container of its own"),
];

/// They end the command.
const REFUSED: &[Unsupported] = &[
    option(
        "dependency",
        Some('d'),
        Takes::Value,
        "chain jobs with a workflow engine (Argo Workflows, Kubeflow \
        Pipelines), or begin the next one after `kubectl wait --for=condition=complete job/NAME`",
    ),
    option("licenses", Some('L'), Takes::Value, "count licences with a ResourceQuota or with Kueue"),
    option("het-group", None, Takes::Value, HETEROGENEOUS),
    option("begin", Some('b'), Takes::Value, "begin at a time with a CronJob"),
    option(
        "deadline",
        None,
        Takes::Value,
        "--time limits how long a job runs; nothing limits how long it waits",
    ),
    option(
        "hold",
        Some('H'),
        Takes::Nothing,
        "print the objects with -o yaml, and set suspend: true in the Job",
    ),
    option("reservation", None, Takes::Value, "a GpuPool of its own keeps cards for a team: --partition"),
    option("nodelist", Some('w'), Takes::Value, NODES),
    option("nodefile", Some('F'), Takes::Value, NODES),
    option(
        "exclude",
        Some('x'),
        Takes::Value,
        "keep the pods off by a taint of the node, or choose by a label: --constraint=KEY=VALUE",
    ),
    option("cluster-constraint", None, Takes::Value, "choose a cluster with --context"),
    option("clusters", Some('M'), Takes::Value, "choose a cluster with --context"),
    option(
        "signal",
        None,
        Takes::Value,
        "before its end a job gets SIGTERM, and SIGKILL 30 s later; save checkpoints at that",
    ),
    option("input", Some('i'), Takes::Value, "mount a volume (--mount), and redirect in the script"),
    option("nice", None, Takes::Either, "priorities are those of classes: --qos"),
    option("priority", None, Takes::Value, "priorities are those of classes: --qos"),
    option("uid", None, Takes::Value, "the ConfigMap gpu-run names the user"),
    option("gid", None, Takes::Value, "the ConfigMap gpu-run names the user"),
    option("bb", None, Takes::Value, "mount a volume: --mount"),
    option("bbf", None, Takes::Value, "mount a volume: --mount"),
    option("gpus-per-socket", None, Takes::Value, "--gpus-per-node"),
    option("ntasks-per-gpu", None, Takes::Value, "--ntasks-per-node"),
    option("ntasks-per-socket", None, Takes::Value, LAYOUT),
    option("ntasks-per-core", None, Takes::Value, LAYOUT),
    option("sockets-per-node", None, Takes::Value, LAYOUT),
    option("cores-per-socket", None, Takes::Value, LAYOUT),
    option("extra-node-info", Some('B'), Takes::Value, LAYOUT),
    option("mincpus", None, Takes::Value, LAYOUT),
    option("core-spec", Some('S'), Takes::Value, LAYOUT),
    option(
        "pty",
        None,
        Takes::Nothing,
        "start a job that sleeps, and open a terminal in its pod: kubectl exec --stdin --tty POD -- bash",
    ),
    option("container", None, Takes::Value, "name an image: --image"),
    option("container-save", None, Takes::Value, "build images beforehand"),
];

/// Of jobs of several parts.
pub(crate) const HETEROGENEOUS: &str =
    "start a job for each part, or use a JobSet, whose parts are one gang (docs/gangs.md)";

/// With these options, not shown in `--help`.
pub(crate) fn augment(command: Command) -> Command {
    command.args(IGNORED.iter().chain(REFUSED).map(|option| {
        let argument = Arg::new(option.long).long(option.long).hide(true);
        let argument = match option.takes {
            Takes::Nothing => argument.action(ArgAction::SetTrue),
            Takes::Value => argument.num_args(1),
            Takes::Either => argument.num_args(0..=1).require_equals(true).default_missing_value(""),
        };
        match option.short {
            Some(short) => argument.short(short),
            None => argument,
        }
    }))
}

/// Notes about options without effect.
///
/// # Errors
/// [`BatchError::Refused`] for an option without which the job would be another.
pub(crate) fn check(matches: &ArgMatches) -> Result<Vec<String>, BatchError> {
    let given = |option: &&Unsupported| matches.value_source(option.long) == Some(ValueSource::CommandLine);
    if let Some(option) = REFUSED.iter().find(given) {
        return Err(BatchError::refused(&format!("--{}", option.long), option.words));
    }
    Ok(IGNORED.iter().filter(given).map(|option| format!("--{}: {}", option.long, option.words)).collect())
}
