//! The driver's files: from `nvidia-ctk` if there is one, otherwise searched.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Node, claim, prepare};

/// Puts a tool into the driver's root that logs its arguments and answers with `script`.
fn tool(node: &Node, script: &str) -> PathBuf {
    let directory = node.path().join("driver/usr/bin");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("nvidia-ctk");
    let calls = node.path().join("calls");
    let script = format!("#!/bin/sh\necho \"$@\" >> '{}'\n{script}\n", calls.display());
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.join("nvidia-cdi-hook"), "").unwrap();
    calls
}

/// The tool's answer for a machine, reduced to one entry of each kind.
fn answer(node: &Node) -> Value {
    let root = node.path().join("driver").to_string_lossy().into_owned();
    json!({
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "GPU-0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidia-modeset"}, {"path": "/dev/nvidia7"}],
            "mounts": [
                {"hostPath": format!("{root}/usr/lib64/libcuda.so.580.95.05"),
                 "containerPath": "/usr/lib64/libcuda.so.580.95.05", "options": ["ro", "bind"]},
                {"hostPath": format!("{root}/run/nvidia-persistenced/socket"),
                 "containerPath": "/run/nvidia-persistenced/socket", "options": ["bind"]},
            ],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook",
                       "args": ["nvidia-cdi-hook", "update-ldcache", "--ldconfig-path", format!("@{root}/sbin/ldconfig")]}],
        },
    })
}

fn library(node: &Node) {
    let directory = node.path().join("driver/usr/lib64");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("libcuda.so.580.95.05"), "").unwrap();
}

#[tokio::test]
async fn nvidia_ctk_is_asked_once_for_a_driver_and_gives_no_device_nodes() {
    let node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    library(&node);
    fs::write(node.path().join("answer"), answer(&node).to_string()).unwrap();
    let calls = tool(&node, &format!("cat '{}'", node.path().join("answer").display()));

    let preparer = node.start().await;
    prepare(&preparer, &claim).await.unwrap();
    let edits = node.spec(&claim)["containerEdits"].clone();
    let nodes: Vec<_> =
        edits["deviceNodes"].as_array().unwrap().iter().map(|node| node["path"].clone()).collect();
    assert_eq!(nodes, ["/dev/nvidiactl"]);
    assert_eq!(edits["env"], json!(["NVIDIA_VISIBLE_DEVICES=void"]));
    // The daemon whose socket the tool found is gone now.
    let mounts: Vec<_> =
        edits["mounts"].as_array().unwrap().iter().map(|mount| mount["containerPath"].clone()).collect();
    assert_eq!(mounts, ["/usr/lib64/libcuda.so.580.95.05"]);
    assert_eq!(edits["hooks"][0]["path"], "/usr/bin/nvidia-cdi-hook");

    let root = node.path().join("driver");
    let called = fs::read_to_string(&calls).unwrap();
    for argument in [
        "cdi generate",
        "--format=json",
        &format!("--driver-root={}", root.display()),
        &format!("--nvidia-ctk-path={}/usr/bin/nvidia-cdi-hook", root.display()),
    ] {
        assert!(called.contains(argument), "{argument} in {called}");
    }
    // The answer is cached on disk.
    drop(preparer);
    fs::remove_file(node.spec_path(&claim)).unwrap();
    let preparer = node.start().await;
    prepare(&preparer, &claim).await.unwrap();
    assert_eq!(node.spec(&claim)["containerEdits"], edits);
    assert_eq!(fs::read_to_string(&calls).unwrap().lines().count(), 1);
}

#[tokio::test]
async fn a_tool_that_fails_is_replaced_by_a_search() {
    for script in ["echo no driver >&2; exit 1", "echo '{'", "kill -9 $$", "head -c 100000 /dev/zero"] {
        let node = Node::new(1);
        let claim = claim("a");
        node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
        library(&node);
        tool(&node, script);
        prepare(&node.start().await, &claim).await.unwrap();
        let edits = node.spec(&claim)["containerEdits"].clone();
        assert!(edits["mounts"].to_string().contains("libcuda.so.580.95.05"), "{script}: {edits}");
        assert!(edits["hooks"].is_null(), "{script}: {edits}");
    }
}

#[tokio::test]
async fn the_background_looks_before_the_first_claim_and_repairs_specs() {
    let node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    prepare(&node.start().await, &claim).await.unwrap();
    assert!(node.spec(&claim)["containerEdits"]["mounts"].is_null());

    // Now a driver with files and a tool is installed.
    library(&node);
    fs::write(node.path().join("answer"), answer(&node).to_string()).unwrap();
    tool(&node, &format!("cat '{}'", node.path().join("answer").display()));
    let preparer = node.start().await;
    let stop = CancellationToken::new();
    let background = tokio::spawn({
        let (preparer, stop) = (preparer.clone(), stop.clone());
        async move { preparer.run(stop).await }
    });
    let repaired = async {
        while node.spec(&claim)["containerEdits"]["hooks"].is_null() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), repaired).await.unwrap();
    stop.cancel();
    background.await.unwrap();
}

#[tokio::test]
async fn claims_wait_for_the_tool_and_not_each_for_its_own() {
    let node = Node::new(4);
    let claims: Vec<_> = (1..=4).map(|number| claim(&number.to_string())).collect();
    for (number, claim) in claims.iter().enumerate() {
        node.api.allocate(claim, &[("gpus", &format!("gpu-0{}-00", number + 1))]);
    }
    fs::write(node.path().join("answer"), answer(&node).to_string()).unwrap();
    let calls = tool(&node, &format!("sleep 0.3; cat '{}'", node.path().join("answer").display()));
    let answers = node.start().await.prepare(claims).await;
    assert!(answers.values().all(Result::is_ok));
    assert_eq!(fs::read_to_string(calls).unwrap().lines().count(), 1);
}
