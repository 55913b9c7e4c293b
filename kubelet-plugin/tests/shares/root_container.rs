//! A container running as the node's root, with the mounts of its claim.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::container::Container;
use crate::node::{Node, claim, prepare, unprepare};

/// Attempts to plant a file in the place of the next daemon's, or of the socket in use by others.
const ATTEMPTS: &str = "rm -f control; mv control other; ln -s /etc/passwd link; ln -sfn /etc control; \
     mkdir directory; mkfifo pipe; touch file; echo 1 > nvidia-cuda-mps-control.pid; mount -o remount,bind,rw .";

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| format!("{} {:?}", entry.file_name().display(), entry.file_type().unwrap()))
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn it_uses_its_share_and_changes_nothing_of_the_daemons() {
    if !tessera_harness::skip::node_tier("it_uses_its_share_and_changes_nothing_of_the_daemons") {
        return;
    }
    let node = Node::new("t4");
    let preparer = node.start().await;
    let share = claim("share");
    node.allocate_mps(&share, &node.device(0, "mps"), "4Gi", 25, 1);
    prepare(&preparer, &share).await.unwrap();
    let daemon = node.host.list().await[0].clone();
    let pipe = &daemon.pipe_directory;
    let (before, pid) = (names(pipe), fs::read(pipe.join("nvidia-cuda-mps-control.pid")).unwrap());

    let spec = node.spec(&share);
    let mounts = spec["devices"][0]["containerEdits"]["mounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["containerPath"] == "/tmp/nvidia-mps").unwrap();
    let options: Vec<&str> = mount["options"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let target = tempfile::tempdir().unwrap();
    let sample = node.host.machine.root().join("bin/cuda-sample");
    // Like containers of Docker and containerd, without CAP_SYS_ADMIN.
    let script = format!(
        "set -e; mount --bind {pipe} {target}; mount -o remount,{options} {target}; cd {target}; \
         exec setpriv --bounding-set -sys_admin sh -c '{ATTEMPTS}; exec {sample}'",
        pipe = pipe.display(),
        target = target.path().display(),
        options = options.join(","),
        sample = sample.display(),
    );
    let container = Container::of(&spec);
    let environment = container.environment.iter().filter(|(name, _)| name != "CUDA_MPS_PIPE_DIRECTORY");
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("CUDA_MPS_PIPE_DIRECTORY", target.path())
        .envs(environment.map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        (names(pipe), fs::read(pipe.join("nvidia-cuda-mps-control.pid")).unwrap()),
        (before, pid),
        "{said}"
    );
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let device: Value = serde_json::from_str(printed.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {printed}{said}"));
    assert_eq!(device["mpsServer"], daemon.server_pid.unwrap(), "the share is used all the same: {device}");
    assert_eq!(device["memoryLimitMiB"], 4096);
    unprepare(&preparer, &share).await.unwrap();
    assert!(node.is_empty().await);
}
