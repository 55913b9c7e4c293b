//! Whatever happens to its owner, a cluster leaves nothing.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tessera_harness::{Cluster, PodState, skip};

use super::{LIMIT, pod};

/// The program that starts a cluster and waits to be killed.
const OWNER: &str = env!("CARGO_BIN_EXE_cluster-owner");

/// What a cluster may not change of the machine.
#[derive(Debug, PartialEq)]
struct Machine {
    parameters: BTreeMap<&'static str, String>,
    cards: Vec<String>,
    namespaces: bool,
}

impl Machine {
    fn read() -> Self {
        let names = [
            "vm/overcommit_memory",
            "vm/panic_on_oom",
            "kernel/panic",
            "kernel/panic_on_oops",
            "kernel/keys/root_maxkeys",
            "net/ipv4/ip_forward",
            "kernel/hostname",
        ];
        let parameters = names
            .map(|name| (name, fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default()))
            .into_iter()
            .collect();
        let mut cards: Vec<String> = fs::read_dir("/sys/class/net")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        cards.sort();
        Self { parameters, cards, namespaces: Path::new("/run/netns").exists() }
    }
}

/// Processes, mounts, cgroups and files that name the cluster.
fn traces(state: &Path) -> Vec<String> {
    let name = state.file_name().unwrap().to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(name) {
            found.push(format!("process {}", String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(name)).map(|line| format!("mount {line}")));
    for line in mounts.lines().filter(|line| line.contains(" - cgroup")) {
        let group = PathBuf::from(line.split(' ').nth(4).unwrap()).join(name);
        if group.exists() {
            found.push(format!("cgroup {}", group.display()));
        }
    }
    if state.exists() {
        found.push(format!("directory {}", state.display()));
    }
    found
}

/// Runs `cluster-owner` and waits for its cluster's directory.
fn owner(arguments: &[&str]) -> (Child, PathBuf) {
    let mut child =
        Command::new(OWNER).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "the owner ended before its cluster was ready");
    (child, PathBuf::from(line.trim()))
}

fn wait_until_gone(state: &Path) {
    let end = Instant::now() + LIMIT;
    loop {
        let left = traces(state);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "left over: {left:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_leaves_nothing_of_the_node_tier() {
    if !skip::node_tier("a_killed_owner_leaves_nothing_of_the_node_tier") {
        return;
    }
    let before = Machine::read();
    let (mut child, state) = owner(&["node", "1"]);
    let cluster = Cluster::attach(&state).await.unwrap();
    cluster.create_pod(pod("orphan", &["/bin/hold"])).await.unwrap();
    cluster.wait_for_pod("default", "orphan", PodState::Ready, LIMIT).await.unwrap();
    let running = traces(&state);
    for kind in ["process", "cgroup", "directory"] {
        assert!(running.iter().any(|trace| trace.starts_with(kind)), "no {kind} in {running:#?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(&state);
    // The kernel takes links away some time after their namespaces.
    let end = Instant::now() + LIMIT;
    while Machine::read() != before && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(Machine::read(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_leaves_nothing_of_the_scheduler_tier() {
    let (mut child, state) = owner(&["scheduler", "1"]);
    assert!(traces(&state).iter().any(|trace| trace.contains("kube-apiserver")));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(&state);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_keeps_the_logs_and_nothing_else() {
    let (mut child, state) = owner(&["scheduler", "0", "panic"]);
    assert!(!child.wait().unwrap().success());
    let end = Instant::now() + LIMIT;
    while state.join("lock").exists() {
        assert!(Instant::now() < end, "it still runs: {:#?}", traces(&state));
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut left: Vec<String> = fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, ["failed", "log"]);
    assert!(fs::read_to_string(state.join("log/kube-apiserver.log")).unwrap().len() > 100);
    fs::remove_dir_all(&state).unwrap();
    wait_until_gone(&state);
}

/// The supervisor killed too: the kernel ends the processes, and the next cluster's supervisor removes the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_supervisor_takes_every_process_with_it() {
    if !skip::node_tier("a_killed_supervisor_takes_every_process_with_it") {
        return;
    }
    let (mut child, state) = owner(&["node", "1"]);
    let name = state.file_name().unwrap().to_str().unwrap().to_owned();
    let supervisor = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .find(|entry| {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            command.contains("\0supervise\0") && command.contains(&name)
        })
        .unwrap();
    let process: i32 = supervisor.file_name().to_str().unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), nix::sys::signal::Signal::SIGKILL).unwrap();
    let end = Instant::now() + LIMIT;
    while traces(&state).iter().any(|trace| trace.starts_with("process")) {
        assert!(Instant::now() < end, "still there: {:#?}", traces(&state));
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // Old enough for the next supervisor.
    let lock = fs::File::options().write(true).open(state.join("lock")).unwrap();
    lock.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600)).unwrap();
    drop(lock);
    Cluster::start(tessera_harness::ClusterOptions::scheduler_tier(0))
        .await
        .unwrap()
        .shutdown()
        .await
        .unwrap();
    wait_until_gone(&state);
}

#[test]
fn a_supervisor_that_fails_is_told_of_at_once() {
    let begin = Instant::now();
    let output = Command::new(OWNER)
        .args(["scheduler", "0"])
        .env("TESSERA_CLUSTER_HOST", "/bin/false")
        .output()
        .unwrap();
    assert!(!output.status.success());
    // It would wait a minute for an API server.
    assert!(begin.elapsed() < Duration::from_secs(50), "it waited {:?}", begin.elapsed());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cluster-host ended with exit status: 1"), "{said}");
    let logs = said.lines().find_map(|line| line.split_once("logs of the cluster: ")).unwrap().1;
    let state = Path::new(logs).parent().unwrap().to_owned();
    let mut left: Vec<_> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["failed", "log"]);
    fs::remove_dir_all(state).unwrap();
}

#[test]
fn without_root_the_node_tier_says_what_it_needs() {
    use std::os::unix::process::CommandExt;

    let folder = tempfile::tempdir().unwrap();
    // The nobody of most systems cannot read what lies below another user's home.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).unwrap();
    let program = folder.path().join("cluster-host");
    fs::copy(tessera_harness::host::host_executable().unwrap(), &program).unwrap();
    let mut probe = Command::new(&program);
    probe.args(["probe", "/tmp"]).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        probe.uid(65534).gid(65534);
    }
    let output = probe.output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("it needs root"), "{said}");
}
