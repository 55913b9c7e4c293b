//! The commands that a test cannot type as they stand.

use crate::blocks::Command;

/// What is run in place of a command.
pub enum Instead {
    /// Nothing.
    Nothing,
    /// The command with `--help`, which its program answers when it knows all arguments before.
    Help,
    /// The command, whatever its exit code, until its answer matches this regular expression.
    Says(&'static str),
    /// The command with one word for another.
    With(&'static str, &'static str),
}
use Instead::{Help, Nothing, Says, With};

pub struct Exception {
    pub page: &'static str,
    /// The command's beginning, each run of spaces as one.
    pub beginning: &'static str,
    /// Why the command is not typed as it stands.
    pub reason: &'static str,
    pub instead: Instead,
}

const fn of(
    page: &'static str,
    beginning: &'static str,
    reason: &'static str,
    instead: Instead,
) -> Exception {
    Exception { page, beginning, reason, instead }
}

const README: &str = "README.md";
const START: &str = "docs/start.md";
const TRYING: &str = "docs/trying.md";
const INSTALLING: &str = "docs/installing.md";
/// `helm template` checks the values against the chart's schema.
const TEMPLATE: Instead = With("helm install", "helm template");
/// From `kubectl gpu doctor`.
const WELL: &str = "nothing is wrong|0 errors";

pub const EXCEPTIONS: [Exception; 20] = [
    of(README, "cargo xtask image", "compiles for minutes", Help),
    of(README, "kind load", "no kind: the test names the demo's images so", Nothing),
    of(README, "cargo build --profile dist", "compiles for minutes", Nothing),
    of(README, "kubectl gpu doctor", "warns of a node with cgroup v1", Says(WELL)),
    of(README, "kubectl gpu explain pod/trainer", "another cluster, of a golden test", Nothing),
    of(README, "cargo xtask demo", "docs/start.md runs it", Help),
    of(README, "cargo xtask test", "runs this test", Nothing),
    of(
        START,
        "kubectl gpu explain pod/greedy",
        "exits with 1: the pod waits",
        Says("pod/greedy: does not fit"),
    ),
    of(START, "kubectl gpu doctor # what is wrong", "warns of a node with cgroup v1", Says(WELL)),
    of(
        START,
        "kubectl gpu doctor # the card gets no more",
        "exits with 1: a card is sick",
        Says("has a fault and gets no new claims: xid-79"),
    ),
    of(TRYING, "cargo xtask image", "compiles for minutes", Help),
    of(TRYING, "kind load", "no kind: the test names the demo's images so", Nothing),
    of(TRYING, "helm install", "README has installed the chart", TEMPLATE),
    of(TRYING, "cargo xtask demo --kubeconfig", "wants a cluster without Tessera", Help),
    of(TRYING, "$machine /driver-root/bin/nvidia-smi --gpu-reset", "exits with an error", Says("[Ii]n use")),
    of(INSTALLING, "cargo xtask cluster up --kubernetes 1.35", "builds another Kubernetes", Help),
    of(INSTALLING, "cargo xtask image", "compiles for minutes", Help),
    of(INSTALLING, "for image in", "needs a registry", With("skopeo", "echo skopeo")),
    of(INSTALLING, "helm install", "needs a registry", TEMPLATE),
    of(INSTALLING, "kubectl annotate deviceclass CLASS", "names no class", With("CLASS", "gpu.tessera.dev")),
];

/// What the shell gets for a command of a page.
pub fn typed(page: &str, command: &Command) -> String {
    let text = &command.text;
    let mut of_page = EXCEPTIONS.iter().filter(|exception| exception.page == page);
    let exception = of_page.find(|exception| command.begins_with(exception.beginning));
    // Comments begin with spaces for alignment.
    let without_comment = text.split("  #").next().unwrap_or_default();
    match exception.map(|exception| &exception.instead) {
        None => text.clone(),
        Some(Nothing) => String::new(),
        Some(Help) => format!("{without_comment} --help"),
        // The plugin and its slices need a moment, as does somebody who types.
        Some(Says(pattern)) => format!(
            "pattern='{pattern}'; for try in {{1..30}}; do said=$({without_comment} 2>&1) || true; \
             [[ $said =~ $pattern ]] && break; sleep 1; done; echo \"$said\"; [[ $said =~ $pattern ]]"
        ),
        Some(With(word, other)) => text.replace(word, other),
    }
}
