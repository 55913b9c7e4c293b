//! The driver's files: from `nvidia-ctk` if there is one, otherwise searched.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use tessera_kubelet_plugin::prepare::DriverFilesState;

use crate::support::{Node, claim, prepare};

/// Puts a tool into the driver's root: of a version without known faults, logging its arguments and answering with `script`.
fn tool(node: &Node, script: &str) -> PathBuf {
    tool_of_version("1.18.1", node, script)
}

fn tool_of_version(version: &str, node: &Node, script: &str) -> PathBuf {
    let directory = node.path().join("driver/usr/bin");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("nvidia-ctk");
    let calls = node.path().join("calls");
    let told = format!("NVIDIA Container Toolkit CLI version {version}\ncommit: 0123abc");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{told}'; exit; fi\necho \"$@\" >> '{}'\n{script}\n",
        calls.display()
    );
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
            "hooks": [{"hookName": "createContainer", "path": format!("{root}/usr/bin/nvidia-cdi-hook"),
                       "args": ["nvidia-cdi-hook", "update-ldcache", "--ldconfig-path", format!("@{root}/sbin/ldconfig")]}],
        },
    })
}

/// The tool's answer, as a script for it.
fn answering(node: &Node) -> String {
    fs::write(node.path().join("answer"), answer(node).to_string()).unwrap();
    format!("cat '{}'", node.path().join("answer").display())
}

fn library(node: &Node) -> PathBuf {
    node.path().join("driver/usr/lib64/libcuda.so.580.95.05")
}

#[tokio::test]
async fn nvidia_ctk_is_asked_once_for_a_driver_and_gives_no_device_nodes() {
    let node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    let calls = tool(&node, &answering(&node));

    let preparer = node.start().await;
    prepare(&preparer, &claim).await.unwrap();
    let edits = node.spec(&claim)["containerEdits"].clone();
    let nodes: Vec<_> =
        edits["deviceNodes"].as_array().unwrap().iter().map(|node| node["path"].clone()).collect();
    assert_eq!(nodes, ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]);
    assert_eq!(edits["env"], json!(["NVIDIA_VISIBLE_DEVICES=void"]));
    // The daemon whose socket the tool found is gone now.
    let mounts: Vec<_> =
        edits["mounts"].as_array().unwrap().iter().map(|mount| mount["containerPath"].clone()).collect();
    assert_eq!(mounts, ["/usr/lib64/libcuda.so.580.95.05"]);
    let root = node.path().join("driver");
    assert_eq!(edits["hooks"][0]["path"], json!(root.join("usr/bin/nvidia-cdi-hook")));
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
    assert!(node.spec(&claim)["containerEdits"]["hooks"].is_null());

    // Now a tool is installed.
    tool(&node, &answering(&node));
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
    let calls = tool(&node, &format!("sleep 0.3; {}", answering(&node)));
    let answers = node.start().await.prepare(claims).await;
    assert!(answers.values().all(Result::is_ok));
    assert_eq!(fs::read_to_string(calls).unwrap().lines().count(), 1);
}

/// The packages of a driver are updated while the module of the earlier one stays loaded.
#[tokio::test]
async fn claims_are_refused_while_the_loaded_drivers_files_are_gone_and_prepared_ones_keep_theirs() {
    for has_tool in [false, true] {
        let node = Node::new(2);
        let (before, after) = (claim("a"), claim("b"));
        node.api.allocate(&before, &[("gpus", "gpu-01-00")]);
        node.api.allocate(&after, &[("gpus", "gpu-02-00")]);
        if has_tool {
            tool(&node, &answering(&node));
        }
        let preparer = node.start().await;
        prepare(&preparer, &before).await.unwrap();
        let spec = node.spec(&before);
        assert!(spec.to_string().contains("libcuda.so.580.95.05"), "{spec}");

        let updated = library(&node).with_file_name("libcuda.so.580.126.09");
        fs::rename(library(&node), &updated).unwrap();
        if has_tool {
            tool(&node, "echo 'driver/library version mismatch' >&2; exit 1");
        }
        let error = prepare(&preparer, &after).await.unwrap_err();
        assert_eq!(error.reason(), "driver_files");
        let error = error.to_string();
        for part in ["580.95.05", "580.126.09", "reboot the node"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert_eq!(node.driver_files.borrow().missing.as_ref(), Some(&error));
        assert!(preparer.restore_specs().await.is_err());
        assert_eq!(node.spec(&before), spec);
        // Also in another instance.
        let preparer = node.start().await;
        assert!(preparer.restore_specs().await.is_err());
        assert_eq!(node.spec(&before), spec);

        fs::rename(updated, library(&node)).unwrap();
        prepare(&preparer, &after).await.unwrap();
        assert!(node.spec(&after).to_string().contains("libcuda.so.580.95.05"));
        assert_eq!(*node.driver_files.borrow(), DriverFilesState::default());
    }
}

/// Nothing but the first CUDA program outside of a container loads the module on some nodes.
#[tokio::test]
async fn unified_memory_is_loaded_or_claims_are_refused() {
    let node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    let devices = node.path().join("driver/proc/devices");
    let loaded = fs::read_to_string(&devices).unwrap();
    let without = loaded.replace("508 nvidia-uvm\n", "");
    fs::write(&devices, &without).unwrap();
    let preparer = node.start().await;
    let program = node.path().join("driver/usr/bin/nvidia-modprobe");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let script = |text: String| {
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    for (does, says) in [
        (None, "no nvidia-modprobe"),
        (Some("echo not permitted >&2; exit 1"), "not permitted"),
        (Some("true"), "has not loaded it"),
    ] {
        if let Some(does) = does {
            script(does.to_owned());
        }
        let error = prepare(&preparer, &claim).await.unwrap_err();
        assert_eq!(error.reason(), "unified_memory");
        let error = error.to_string();
        assert!(error.contains(says) && error.contains("modprobe nvidia-uvm"), "{error}");
    }
    script(format!("[ \"$*\" = '-u -c 0' ] && echo '{loaded}' > '{}'", devices.display()));
    prepare(&preparer, &claim).await.unwrap();
    assert!(node.spec(&claim).to_string().contains("/dev/nvidia-uvm"));
}

/// systemd finds devices of containers by these links, also partitions made on demand.
#[tokio::test]
async fn the_host_has_a_link_to_each_device_that_is_given_out() {
    let node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    let dev = node.path().join("driver/dev");
    for name in ["nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"] {
        fs::write(dev.join(name), "").unwrap();
    }
    let preparer = node.start().await;
    prepare(&preparer, &claim).await.unwrap();
    let links = || {
        ["195:0", "195:255", "508:0", "508:1"].map(|link| fs::read_link(dev.join("char").join(link)).unwrap())
    };
    assert_eq!(links()[0], PathBuf::from("../nvidia0"));
    // Also for claims prepared by an earlier version.
    fs::remove_dir_all(dev.join("char")).unwrap();
    preparer.restore_specs().await.unwrap();
    assert_eq!(links()[3], PathBuf::from("../nvidia-uvm-tools"));
}

#[tokio::test]
async fn hooks_whose_program_is_gone_are_not_run() {
    for is_tool_gone in [true, false] {
        let node = Node::new(2);
        let (before, after) = (claim("a"), claim("b"));
        node.api.allocate(&before, &[("gpus", "gpu-01-00")]);
        node.api.allocate(&after, &[("gpus", "gpu-02-00")]);
        let calls = tool(&node, &answering(&node));
        let preparer = node.start().await;
        prepare(&preparer, &before).await.unwrap();
        assert!(node.spec(&before)["containerEdits"]["hooks"].is_array());

        let programs = node.path().join("driver/usr/bin");
        fs::remove_file(programs.join("nvidia-cdi-hook")).unwrap();
        if is_tool_gone {
            fs::remove_file(programs.join("nvidia-ctk")).unwrap();
        } else {
            // Its hooks are its own now.
            let own = answer(&node).to_string().replace("/nvidia-cdi-hook\"", "/nvidia-ctk\"");
            fs::write(node.path().join("answer"), own).unwrap();
        }
        prepare(&preparer, &after).await.unwrap();
        preparer.restore_specs().await.unwrap();
        for claim in [&before, &after] {
            let edits = node.spec(claim)["containerEdits"].clone();
            assert!(edits["mounts"].to_string().contains("libcuda.so.580.95.05"), "{edits}");
            let path = if is_tool_gone { json!(null) } else { json!(programs.join("nvidia-ctk")) };
            assert_eq!(edits["hooks"][0]["path"], path, "{edits}");
        }
        assert_eq!(fs::read_to_string(&calls).unwrap().lines().count(), if is_tool_gone { 1 } else { 2 });
    }
}

/// Its hooks let an image run its own code as root of the node (CVE-2025-23266).
#[tokio::test]
async fn a_tool_with_unsafe_hooks_is_not_used() {
    for (version, is_used) in [
        ("1.14.6", false),
        ("1.17.0-rc.1", false),
        ("1.17.7", false),
        ("unknown", false),
        ("1.17.8", true),
        ("2.0.0", true),
    ] {
        let node = Node::new(1);
        let claim = claim("a");
        node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
        tool_of_version(version, &node, &answering(&node));
        prepare(&node.start().await, &claim).await.unwrap();
        let edits = node.spec(&claim)["containerEdits"].clone();
        assert_eq!(edits["hooks"].is_array(), is_used, "{version}: {edits}");
        assert!(edits["mounts"].to_string().contains("libcuda.so.580.95.05"), "{version}: {edits}");
    }
}

/// A failing hook of a newer tool would keep every pod from starting.
#[tokio::test]
async fn hooks_are_left_out_by_name_whoever_names_them() {
    for has_tool in [true, false] {
        let mut node = Node::new(1);
        let claim = claim("a");
        node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
        node.disabled_hooks = vec!["update-ldcache".to_owned(), "of-another-version".to_owned()];
        if has_tool {
            tool(&node, &answering(&node));
        } else {
            with_own_hook(&mut node);
        }
        prepare(&node.start().await, &claim).await.unwrap();
        let hooks = node.spec(&claim)["containerEdits"]["hooks"].clone();
        assert!(!hooks.to_string().contains("update-ldcache"), "{hooks}");
        assert_eq!(hooks.to_string().contains("enable-cuda-compat"), !has_tool, "{hooks}");
    }
}

/// The plugin's own program for hooks, and the `ldconfig` needed by the program.
fn with_own_hook(node: &mut Node) {
    let program = node.path().join("nvidia-cdi-hook");
    fs::write(&program, "program").unwrap();
    let sbin = node.path().join("driver/sbin");
    fs::create_dir_all(&sbin).unwrap();
    fs::write(sbin.join("ldconfig"), "").unwrap();
    node.cdi_hook = Some(program);
}

/// For a container with a user namespace the program is run by a user who owns nothing of the node.
#[tokio::test]
async fn the_program_for_hooks_is_where_every_user_can_run_it() {
    let mut node = Node::new(1);
    let claim = claim("a");
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    with_own_hook(&mut node);
    // As made by the kubelet.
    let kubelet = node.path().join("kubelet");
    fs::set_permissions(&kubelet, fs::Permissions::from_mode(0o700)).unwrap();
    prepare(&node.start().await, &claim).await.unwrap();
    let hooks = node.spec(&claim)["containerEdits"]["hooks"].clone();
    let program = PathBuf::from(hooks[0]["path"].as_str().unwrap());
    assert_eq!(fs::read_to_string(&program).unwrap(), "program");
    for path in program.ancestors().take_while(|path| *path != node.path()) {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o555, 0o555, "{} has {mode:o}", path.display());
    }
}
