//! Daemons that run in a driver's root that is a whole system, mounted read-only into mps-host's pod.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::Signal;
use tessera_mps_host::protocol::Daemon;

use crate::client::Client;
use crate::host::{Host, kill};
use crate::machine::EmulatedMachine;

/// Where the machine is mounted for mps-host, below its directory.
const MOUNTED: &str = "driver-root";

/// A machine with loader, libraries and `/dev/null`: a whole system, like the root file system of the GPU Operator's driver
/// container. The loader's path is an absolute link, as on Debian and Ubuntu.
fn whole_system() -> EmulatedMachine {
    let machine = EmulatedMachine::new("t4");
    let root = machine.root();
    let null = (root.join("dev/null"), Mode::from_raw_mode(0o666), makedev(1, 3));
    mknodat(CWD, &null.0, FileType::CharacterDevice, null.1, null.2).unwrap();
    let listed = Command::new("ldd").arg(root.join("bin/nvidia-cuda-mps-control")).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let paths: Vec<&Path> =
        text.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new).collect();
    assert!(paths.len() >= 2, "a loader and libc: {text}");
    for path in paths {
        let name = path.file_name().unwrap();
        if name.to_str().unwrap().starts_with("ld-linux") {
            fs::copy(path, root.join("lib/loader")).unwrap();
            symlink("/lib/loader", root.join("lib").join(name)).unwrap();
        } else {
            fs::copy(path, root.join("lib").join(name)).unwrap();
        }
    }
    machine
}

/// All names below a machine's root, except those of its state.
fn names(root: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() && entry.file_name() != "state" {
                directories.push(entry.path());
            }
            names.push(entry.path());
        }
    }
    names.sort();
    names
}

/// Starts mps-host with the machine mounted read-only except for its state, and with the kernel's `/proc`, as a container's
/// root has it. `more` are further mounts; `$ROOT` in them is the mounted root.
fn start(host: &mut Host, more: &str) {
    let root = host.directory().join(MOUNTED);
    fs::create_dir(&root).unwrap();
    let machine = host.machine.root();
    let script = format!(
        "set -e; ROOT={root}; mount --bind {machine} $ROOT; mount -o remount,bind,ro $ROOT; \
         mount --bind {machine}/state $ROOT/state; mount --bind /proc $ROOT/proc; {more}; exec \"$0\" \"$@\"",
        root = root.display(),
        machine = machine.display(),
    );
    host.start_after(&script, &root);
}

/// Checks that a daemon and its server run in the machine's root, can't write to it, and have their own `/dev/shm`.
fn run_in_the_root(daemon: &Daemon) {
    for pid in [daemon.pid, daemon.server_pid] {
        let root = PathBuf::from(format!("/proc/{}/root", pid.unwrap()));
        assert!(root.join("state/machine.json").exists() && !root.join("usr/bin/env").exists(), "{pid:?}");
        let error = fs::write(root.join("lib/new"), "").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()), "{error}");
        assert_eq!(fs::read_to_string(root.join("dev/shm/of-the-daemon")).unwrap(), "x");
        assert!(root.join("lib/loader").exists(), "what the root has is seen");
    }
}

/// Starts a daemon in such a root, uses it and ends it.
async fn lives_and_ends(mut host: Host, more: &str) {
    let before = names(&host.machine.root());
    start(&mut host, more);
    let daemon = host.first().await;
    let supervisor = host.supervisor().unwrap();
    // The daemon's `/dev/shm` is mounted in the supervisor's namespace.
    let shm = daemon.shm_directory.clone().unwrap();
    let as_mounted = PathBuf::from(format!("/proc/{supervisor}/root")).join(shm.strip_prefix("/").unwrap());
    fs::write(as_mounted.join("of-the-daemon"), "x").unwrap();
    run_in_the_root(&daemon);
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(client.device["mpsServer"], daemon.server_pid.unwrap());
    drop(client);

    kill(daemon.pid.unwrap(), Signal::KILL);
    let again = host.other_than(daemon.pid).await;
    run_in_the_root(&again);
    let client = Client::start(&host, &again.pipe_directory, &[]);
    assert_eq!(client.device["mpsServer"], again.server_pid.unwrap());
    drop(client);
    host.release(0, 0).await.unwrap();
    assert_eq!(host.list().await, []);
    assert_eq!(host.card(0)["computeMode"], 0);
    assert_eq!(names(&host.machine.root()), before, "nothing is written into the root");
    host.end_pod();
}

/// `driverRoot: /run/nvidia/driver`: the root has the parents of mps-host's directory, and they are not empty.
#[tokio::test]
async fn a_driver_containers_root() {
    if !tessera_harness::skip::node_tier("a_driver_containers_root") {
        return;
    }
    let machine = whole_system();
    for directory in ["dev/shm", "tmp/kept"] {
        fs::create_dir_all(machine.root().join(directory)).unwrap();
    }
    fs::write(machine.root().join("tmp/kept/file"), "").unwrap();
    symlink("kept/file", machine.root().join("tmp/link")).unwrap();
    lives_and_ends(Host::on(machine), "test -e $ROOT/tmp/link").await;
}

/// A root without a place for mps-host's directory and without `/dev/shm`.
#[tokio::test]
async fn a_root_without_any_place_for_the_daemons_directory() {
    if !tessera_harness::skip::node_tier("a_root_without_any_place_for_the_daemons_directory") {
        return;
    }
    lives_and_ends(Host::on(whole_system()), "test ! -e $ROOT/tmp").await;
}

/// `driverRoot: /`: the root is the node's, so it contains mps-host's directory, read-only like everything in it.
#[tokio::test]
async fn the_nodes_own_root() {
    if !tessera_harness::skip::node_tier("the_nodes_own_root") {
        return;
    }
    let host = Host::on(whole_system());
    let machine = host.machine.root();
    let same = machine.join(host.directory().strip_prefix("/").unwrap());
    for directory in [&same, &machine.join("dev/shm")] {
        fs::create_dir_all(directory).unwrap();
    }
    let own = host.directory().display().to_string();
    let more = format!("mount --bind {own} $ROOT{own}; mount -o remount,bind,ro $ROOT{own}");
    lives_and_ends(host, &more).await;
}

/// Emulated cards as the chart mounts them: not a whole system, so programs run in mps-host's own root. The root is
/// writable, because it contains the machine's state.
#[tokio::test]
async fn the_root_of_emulated_cards_is_not_entered() {
    if !tessera_harness::skip::node_tier("the_root_of_emulated_cards_is_not_entered") {
        return;
    }
    let mut host = Host::without("t4");
    host.start_with(&[]);
    let daemon = host.first().await;
    for pid in [daemon.pid, daemon.server_pid] {
        assert!(fs::exists(format!("/proc/{}/root/usr/bin/env", pid.unwrap())).unwrap());
    }
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(client.device["mpsServer"], daemon.server_pid.unwrap());
    drop(client);
    host.release(0, 0).await.unwrap();
}
