//! Missing dependencies of the plugin.

use std::{
    fs,
    time::{Duration, Instant},
};

use tessera_harness::kubelet_stand_in::Claim;

use crate::{
    machine::EmulatedMachine,
    node::Node,
    plugin::{LONG, Plugin},
};

/// The arguments, with another value for one option.
fn with(mut arguments: Vec<String>, option: &str, value: &str) -> Vec<String> {
    let place = arguments.iter().position(|argument| argument == option).unwrap();
    arguments[place + 1] = value.to_owned();
    arguments
}

#[tokio::test]
async fn a_driver_that_is_installed_later() {
    let node = Node::new("driver", "t4").await;
    let root = node.directory().join("later");
    fs::create_dir(&root).unwrap();
    let arguments = with(node.arguments(), "--driver-root", root.to_str().unwrap());
    let plugin = Plugin::start(node.directory(), &arguments);
    let registered = node.register().await;
    plugin.ready_line("[-] hardware: no libnvidia-ml.so.1 below").await;
    assert_eq!(plugin.get("/healthz").0, 200, "nothing that a restart would mend");
    assert!(plugin.log_text().contains("install the NVIDIA driver"));
    // Meanwhile the kubelet and its claims are served.
    let claim = node.claim(&["gpu-01-00"]).await;
    let error = registered.prepare(std::slice::from_ref(&claim)).await.unwrap().remove(&claim.uid);
    assert!(error.unwrap().unwrap_err().contains("driver"));
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    assert!(node.slices().await.is_empty());

    fs::remove_dir(&root).unwrap();
    std::os::unix::fs::symlink(node.machine.root(), &root).unwrap();
    plugin.ready().await;
    assert_eq!(node.devices().await.len(), 1);
}

/// An instance without any sight of the cards keeps pods from an earlier instance's published devices.
#[tokio::test]
async fn a_driver_that_went_while_no_plugin_ran() {
    let node = Node::new("went", "hgx-h100-80gb").await;
    let root = node.directory().join("driver");
    std::os::unix::fs::symlink(node.machine.root(), &root).unwrap();
    let arguments = with(node.arguments(), "--driver-root", root.to_str().unwrap());
    let plugin = Plugin::start(node.directory(), &arguments);
    node.register().await;
    plugin.ready().await;
    let before = node.slices().await;
    let devices = node.devices().await;
    assert!(devices.len() > 8 && node.tainted().await.is_empty());
    assert_eq!(plugin.terminate().await.code(), Some(0));

    node.machine.let_happen("fault --error LIB_RM_VERSION_MISMATCH");
    let plugin = Plugin::start(node.directory(), &arguments);
    let registered = node.register().await;
    let since = Instant::now();
    plugin.ready_line("[-] hardware").await;
    let lost: Vec<_> = devices.iter().map(|device| (device.clone(), "lost".to_owned())).collect();
    while node.tainted().await != lost {
        assert!(since.elapsed() < LONG, "{:?}; {}", node.tainted().await, plugin.log_text());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(since.elapsed() > Duration::from_secs(4), "an upgrade of the plugin must taint nothing");
    node.until_event("DriverNotReady").await;
    let annotations = |slices: Vec<k8s_openapi::api::resource::v1::ResourceSlice>| {
        slices.into_iter().map(|slice| (slice.metadata.name, slice.metadata.annotations)).collect::<Vec<_>>()
    };
    assert_eq!(annotations(node.slices().await), annotations(before), "the report of the node stays");
    assert!(!plugin.log_text().contains("no GPUs are published"), "{}", plugin.log_text());
    let claim = node.claim(&[&devices[0]]).await;
    let error = registered.prepare(std::slice::from_ref(&claim)).await.unwrap().remove(&claim.uid);
    let error = error.unwrap().unwrap_err();
    assert!(error.contains("different driver versions") && !error.contains("could not be loaded"), "{error}");
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();

    node.machine.let_happen("restore");
    plugin.ready().await;
    plugin.until("published anew", || plugin.get("/readyz").0 == 200).await;
    let since = Instant::now();
    while !node.tainted().await.is_empty() {
        assert!(since.elapsed() < LONG, "{}", plugin.log_text());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(node.devices().await, devices);
}

#[tokio::test]
async fn an_api_server_that_is_away_is_waited_for_without_haste() {
    let node = Node::new("api", "t4").await;
    let kubeconfig = node.directory().join("kubeconfig");
    let nowhere = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                   contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n\
                   current-context: c\n";
    fs::write(&kubeconfig, nowhere).unwrap();
    let arguments = with(node.arguments(), "--kubeconfig", kubeconfig.to_str().unwrap());
    let plugin = Plugin::start(node.directory(), &arguments);
    let registered = node.register().await;
    plugin.ready_line("[+] hardware").await;
    let claim = Claim { namespace: "ns".into(), name: "c".into(), uid: "unknown".into() };
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()["unknown"].as_ref().unwrap();
    let (status, text) = plugin.get("/readyz");
    assert_eq!(status, 503, "{text}");
    assert_eq!(plugin.get("/healthz").0, 200);

    let (time, lines) = (plugin.processor_time(), plugin.log().len());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let busy = plugin.processor_time() - time;
    assert!(busy < Duration::from_millis(300), "{busy:?} of processor time while waiting");
    let more = plugin.log().len() - lines;
    assert!(more < 60, "{more} lines while waiting");
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_kubelet_directory_that_cannot_be_written_yet() {
    let node = Node::new("disk", "t4").await;
    fs::write(node.kubelet_directory(), "a file where a directory shall be").unwrap();
    let plugin = node.plugin(None);
    plugin.logged("cannot open the journal").await;
    plugin.ready_line("[-] sockets").await;
    assert_eq!(plugin.get("/healthz").0, 200);
    fs::remove_file(node.kubelet_directory()).unwrap();
    node.register().await;
    plugin.ready().await;
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn connections_leave_no_open_files_behind() {
    let node = Node::new("files", "t4").await;
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    plugin.get("/healthz");
    let before = plugin.open_files();
    let socket = registered.registration_socket.clone();
    for _ in 0..200 {
        drop(std::os::unix::net::UnixStream::connect(&socket).unwrap());
        plugin.get("/healthz");
    }
    plugin.until("no more open files than before", || plugin.open_files() <= before + 8).await;
}

#[tokio::test]
async fn a_machine_without_cards_is_told_and_waited_for() {
    let node = Node::new("empty", "t4").await;
    // A file other than a library.
    let root = node.directory().join("broken");
    fs::create_dir_all(root.join("usr/lib64")).unwrap();
    fs::write(root.join("usr/lib64/libnvidia-ml.so.1"), "no library").unwrap();
    let arguments = with(node.arguments(), "--driver-root", root.to_str().unwrap());
    let plugin = Plugin::start(node.directory(), &arguments);
    plugin.ready_line("[-] hardware: can't load").await;
    // Replaced by another, working driver.
    let machine = EmulatedMachine::new("a30-x2");
    fs::remove_dir_all(&root).unwrap();
    std::os::unix::fs::symlink(machine.root(), &root).unwrap();
    node.register().await;
    plugin.ready().await;
    assert_eq!(node.devices().await.len(), 2);
    assert!(plugin.processor_time() < LONG);
}

/// A hanging driver delays neither the rest nor the end.
#[tokio::test]
async fn a_driver_that_hangs() {
    let node = Node::new("hangs", "t4").await;
    node.machine.let_happen("fault --call nvmlInit --delay-ms 3600000");
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready_line("[-] hardware: the driver library is being opened").await;
    let claim = Claim { namespace: "ns".into(), name: "c".into(), uid: "unknown".into() };
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()["unknown"].as_ref().unwrap();
    let since = Instant::now();
    assert_eq!(plugin.terminate().await.code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(9), "{:?}", since.elapsed());
    assert!(node.sockets().is_empty());
}

#[tokio::test]
async fn a_socket_that_was_removed_is_a_reason_to_be_restarted() {
    let node = Node::new("removed", "t4").await;
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    fs::remove_file(&registered.registration_socket).unwrap();
    let (status, text) = plugin.get("/healthz");
    assert_eq!(status, 503);
    assert!(text.contains("gpu.tessera.dev-reg.sock"), "{text}");
}
