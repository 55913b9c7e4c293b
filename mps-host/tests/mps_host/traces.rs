//! What dead daemons and supervisors leave behind.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::process::Command;

use rustix::process::Signal;
use tessera_mps_host::protocol::DaemonState;

use crate::client::Client;
use crate::host::{Host, kill};

#[tokio::test]
async fn a_dead_daemons_directory_is_cleaned_before_the_next() {
    let mut host = Host::without("t4");
    let root = host.directory().join(host.machine.cards()[0]["uuid"].as_str().unwrap());
    fs::create_dir_all(root.join("pipe")).unwrap();
    fs::create_dir_all(root.join("log")).unwrap();
    drop(UnixListener::bind(root.join("pipe/control")).unwrap());
    fs::write(root.join("pipe/nvidia-cuda-mps-control.pid"), format!("{}\n", std::process::id())).unwrap();
    fs::write(root.join("log/control.log"), "of the dead").unwrap();
    host.start();
    assert_eq!(host.list().await, []);
    assert!(!root.exists(), "without a record it is nobody's");
    let daemon = host.first().await;
    assert_ne!(daemon.pid, Some(std::process::id()), "another's id in a file makes no daemon");
    let log = fs::read_to_string(root.join("log/control.log")).unwrap();
    assert!(!log.contains("of the dead"));
}

#[tokio::test]
async fn an_end_that_was_cut_off_is_brought_to_its_end() {
    let mut host = Host::new("t4");
    let daemon = host.first().await;
    let record = daemon.pipe_directory.parent().unwrap().join("daemon.json");
    host.end_pod();
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace("\"wanted\": true", "\"wanted\": false")).unwrap();
    host.start();
    host.until("it is gone", || !record.exists()).await;
    assert_eq!(host.list().await, []);
    assert_eq!(host.card(0)["computeMode"], 0);
}

/// mps-host dies together with a daemon that is being ended and waits for its client.
#[tokio::test]
async fn a_daemon_that_was_to_end_does_not_come_back() {
    let mut host = Host::new("t4");
    let daemon = host.first().await;
    let record = daemon.pipe_directory.parent().unwrap().join("daemon.json");
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    {
        let release = host.release(0, 3600);
        let ending = host.daemon("ending", |daemon| daemon.state == DaemonState::Stopping);
        tokio::select! {
            released = release => panic!("it did not wait for its client: {released:?}"),
            _ = ending => {}
        }
    }
    host.end_pod();
    drop(client);
    host.start();
    host.until("it is gone", || !record.exists()).await;
    assert_eq!(host.list().await, []);
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn a_damaged_record_costs_its_own_daemon_only() {
    let mut host = Host::new("hgx-a100-80gb");
    let daemon = host.first().await;
    let other = host.ensure(1, Default::default()).await.unwrap();
    fs::write(daemon.pipe_directory.parent().unwrap().join("daemon.json"), "{").unwrap();
    kill(host.supervisor().unwrap(), Signal::KILL);
    host.until("swept", || !daemon.pipe_directory.exists()).await;
    assert_eq!(host.list().await, [other]);
    host.end_pod();
}

/// If the record can't be read because the disk fails, the daemon may have clients: it is kept.
#[tokio::test]
async fn a_record_that_can_not_be_read_costs_no_daemon() {
    let mut host = Host::new("hgx-a100-80gb");
    let daemon = host.first().await;
    let other = host.ensure(1, Default::default()).await.unwrap();
    let record = daemon.pipe_directory.parent().unwrap().join("daemon.json");
    let aside = record.with_extension("aside");
    fs::rename(&record, &aside).unwrap();
    // Root can't read this either.
    std::os::unix::fs::symlink(&record, &record).unwrap();
    let killed = host.supervisor().unwrap();
    kill(killed, Signal::KILL);
    host.until("another supervisor", || host.supervisor().is_some_and(|now| now != killed)).await;
    assert_eq!(host.list().await, [other]);

    fs::rename(&aside, &record).unwrap();
    kill(host.supervisor().unwrap(), Signal::KILL);
    host.daemon("adopted", |now| now.pid == daemon.pid).await;
    host.end_pod();
}

#[tokio::test]
async fn a_mode_that_an_administrator_set_is_left() {
    let host = Host::new("hgx-a100-80gb");
    let smi = |card: &str, mode: &str| {
        let program = host.machine.root().join("bin/nvidia-smi");
        assert!(Command::new(program).args(["-i", card, "-c", mode]).output().unwrap().status.success());
    };
    smi("0", "EXCLUSIVE_PROCESS");
    host.first().await;
    host.release(0, 0).await.unwrap();
    assert_eq!(host.card(0)["computeMode"], 3, "it was so before");
    host.ensure(1, Default::default()).await.unwrap();
    smi("1", "PROHIBITED");
    host.release(1, 0).await.unwrap();
    assert_eq!(host.card(1)["computeMode"], 2, "somebody set it meanwhile");
}

/// The daemon's `/dev/shm` is a mount, which needs root.
#[tokio::test]
async fn a_daemon_has_shared_memory_of_its_own() {
    if !tessera_harness::skip::node_tier("a_daemon_has_shared_memory_of_its_own") {
        return;
    }
    let mut host = Host::without("hgx-a100-80gb");
    host.start_with(&["--shared-memory-size", "8Mi"]);
    let daemon = host.first().await;
    let shm = daemon.shm_directory.clone().unwrap();
    let full = fs::write(shm.join("large"), vec![1; 9 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "one tenant can't fill the node's memory");
    fs::remove_file(shm.join("large")).unwrap();
    let metadata = shm.metadata().unwrap();
    assert_ne!(metadata.dev(), shm.parent().unwrap().metadata().unwrap().dev());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o1777);
    fs::write(shm.join("seen"), "").unwrap();
    for pid in [daemon.pid, daemon.server_pid].into_iter().flatten() {
        assert!(fs::exists(format!("/proc/{pid}/root/dev/shm/seen")).unwrap(), "{pid}");
    }
    assert!(!fs::exists("/dev/shm/seen").unwrap(), "nobody else has it");
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(client.device["mpsServer"], daemon.server_pid.unwrap());
    drop(client);
    let other = host.ensure(1, Default::default()).await.unwrap();
    assert!(!other.shm_directory.unwrap().join("seen").exists());

    kill(daemon.pid.unwrap(), Signal::KILL);
    host.daemon("again", |now| now.state == DaemonState::Running && now.pid != daemon.pid).await;
    host.release(0, 0).await.unwrap();
    assert!(!shm.exists());
    host.release(1, 0).await.unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&host.directory().display().to_string()), "{mounts}");
}
