//! Broken daemons, directories that others have changed, full disks, and a second mps-host.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tessera_mps_host::protocol::{DaemonState, Settings};

use crate::client::Client;
use crate::host::{Host, LONG, Mounted, kill, lives};

/// Replaces the program that sends commands to daemons by a script. Running daemons are not affected.
fn replace_program(host: &Host, script: &str) {
    let bin = host.machine.root().join("bin");
    let new = bin.join("new");
    fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, bin.join("nvidia-cuda-mps-control")).unwrap();
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn a_daemon_that_never_answers_is_told_of_and_ended_all_the_same() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    replace_program(&host, "exec sleep 1000");
    let since = Instant::now();
    let clients = host.client().clients(LONG).await.unwrap();
    assert!(clients[0].error.as_ref().unwrap().contains("did not answer"), "{clients:?}");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    assert_eq!(host.list().await.len(), 1, "others are answered meanwhile");
    let ended = host.release(0, 1).await.unwrap();
    assert_eq!(ended, [client.pid()], "the driver knows them too");
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    assert!(host.mps_processes().is_empty());
    assert_eq!(host.card(0)["computeMode"], 0);
    assert_eq!(host.list().await, []);
}

#[tokio::test]
async fn what_a_daemon_says_without_end_is_neither_kept_nor_believed() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let supervisor = host.supervisor().unwrap();
    replace_program(&host, "exec yes 'Server 1 of 4711'");
    let before = resident_kib(supervisor);
    let clients = host.client().clients(LONG).await.unwrap();
    let error = clients[0].error.as_ref().unwrap();
    assert!(error.contains("makes no sense") && error.contains("Server 1 of 4711"), "{error}");
    assert!(error.len() < 1000, "{error}");
    let larger = Settings { memory_limit_mib: Some(1024), ..Settings::default() };
    let error = host.ensure(0, larger).await.unwrap_err().to_string();
    assert!(error.contains("makes no sense"), "{error}");
    assert!(resident_kib(supervisor) < before + 4096, "{before} {}", resident_kib(supervisor));
    assert_eq!(host.supervisor(), Some(supervisor));
    assert!(lives(daemon.pid.unwrap()), "nobody ended it");
    // The script ignores `quit`.
    host.release(0, 0).await.unwrap();
    assert!(host.mps_processes().is_empty());
}

#[tokio::test]
async fn another_process_is_not_taken_for_a_server() {
    let host = Host::new("t4");
    // The script gives the id of this test's process as the server's.
    let real = fs::canonicalize(host.machine.root().join("bin/nvidia-cuda-mps-control")).unwrap();
    let real = real.display();
    let own = std::process::id();
    replace_program(
        &host,
        &format!(
            "[ $# -gt 0 ] && exec {real} \"$@\"\nread order\ncase $order in get_server_list) echo {own};; \
             *) echo \"$order\" | {real};; esac"
        ),
    );
    // This test's process does not run the server's program, so it is not believed to be one.
    let daemon = host.ensure(0, Settings::default()).await;
    if let Ok(daemon) = &daemon {
        assert_eq!(daemon.server_pid, None, "{daemon:?}");
    }
    let _ = host.release(0, 0).await;
    assert!(lives(own));
}

#[tokio::test]
async fn what_a_container_plants_in_the_pipe_directory_holds_nobody_up() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let pid_file = daemon.pipe_directory.join("nvidia-cuda-mps-control.pid");
    let victim = host.directory().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("kept"), "").unwrap();
    let plant: [&dyn Fn(); 3] = [
        &|| {
            let fifo = Command::new("mkfifo").arg(&pid_file).status().unwrap();
            assert!(fifo.success());
        },
        &|| symlink("/dev/zero", &pid_file).unwrap(),
        &|| fs::create_dir(&pid_file).unwrap(),
    ];
    symlink(&victim, daemon.pipe_directory.join("elsewhere")).unwrap();
    for plant in plant {
        let _ = fs::remove_file(&pid_file);
        plant();
        kill(host.supervisor().unwrap(), Signal::KILL);
        // The daemon is found anyway, and its clients are not affected.
        let found = host.daemon("found", |found| found.state == DaemonState::Running).await;
        assert_eq!(found.pid, daemon.pid);
        let _ = fs::remove_dir(&pid_file);
    }
    host.release(0, 0).await.unwrap();
    assert!(!daemon.pipe_directory.exists());
    assert!(victim.join("kept").exists(), "links are not followed");
}

#[tokio::test]
async fn a_link_in_the_place_of_a_daemons_directory_leads_nowhere() {
    let mut host = Host::without("t4");
    let victim = host.directory().join("victim");
    fs::create_dir_all(victim.join("pipe")).unwrap();
    fs::write(victim.join("pipe/kept"), "").unwrap();
    let root = host.directory().join(host.machine.cards()[0]["uuid"].as_str().unwrap());
    symlink(&victim, &root).unwrap();
    host.start();
    host.list().await;
    assert!(victim.join("pipe/kept").exists());
    // A link that is made later.
    let _ = fs::remove_file(&root);
    symlink(&victim, &root).unwrap();
    host.first().await;
    assert!(victim.join("pipe/kept").exists());
    assert!(!victim.join("daemon.json").exists());
    host.release(0, 0).await.unwrap();
    assert!(!root.exists());
}

#[tokio::test]
async fn a_dead_daemons_pipe_directory_with_all_sorts_of_things_in_it_is_used_again() {
    let mut host = Host::new("t4");
    let daemon = host.first().await;
    host.end_pod();
    let pipe = &daemon.pipe_directory;
    let kept = host.directory().join("kept");
    fs::write(&kept, "").unwrap();
    fs::create_dir_all(pipe.join("a/b/c")).unwrap();
    fs::write(pipe.join("a/b/c/file"), "x").unwrap();
    fs::set_permissions(pipe.join("a"), fs::Permissions::from_mode(0o0)).unwrap();
    symlink(&kept, pipe.join("link")).unwrap();
    let _ = fs::remove_file(pipe.join("control"));
    fs::create_dir(pipe.join("control")).unwrap();
    host.start();
    let again = host.other_than(daemon.pid).await;
    assert_eq!(again.pipe_directory, daemon.pipe_directory);
    let client = Client::start(&host, &again.pipe_directory, &[]);
    assert_eq!(client.device["mpsServer"], again.server_pid.unwrap());
    assert!(!pipe.join("a").exists() && kept.exists());
}

#[tokio::test]
async fn something_else_in_the_place_of_the_socket_is_named_and_waited_for() {
    let mut host = Host::without("t4");
    let socket = host.directory().join("host.sock");
    fs::create_dir_all(socket.join("not-empty")).unwrap();
    host.start();
    host.until("told", || host.log_text().contains("something else is there")).await;
    assert!(host.log_text().contains("host.sock"), "{}", host.log_text());
    fs::remove_dir_all(&socket).unwrap();
    host.first().await;
    // A file, or the socket of a process that has ended, is replaced.
    host.end_pod();
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "").unwrap();
    host.start();
    host.list().await;
}

#[tokio::test]
async fn a_second_mps_host_says_so_and_takes_over_when_the_first_has_ended() {
    let mut host = Host::new("t4");
    let daemon = host.first().await;
    let log = host.directory().join("second.log");
    let mut second = Command::new(env!("CARGO_BIN_EXE_mps-host"))
        .arg("--directory")
        .arg(host.directory())
        .arg("--driver-root")
        .arg(host.machine.root())
        .args(["--shared-memory", "none"])
        .env_clear()
        .stdin(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    host.until("told", || said().contains("another mps-host works in")).await;
    assert_eq!(host.list().await, std::slice::from_ref(&daemon), "the first is not disturbed");
    host.end_pod();
    let again = host.other_than(daemon.pid).await;
    assert_ne!(again.pid, daemon.pid);
    host.release(0, 0).await.unwrap();
    kill(second.id(), Signal::TERM);
    second.wait().unwrap();
}

#[tokio::test]
async fn a_full_disk_refuses_shares_and_ends_those_that_are() {
    if !tessera_harness::skip::node_tier("a_full_disk_refuses_shares_and_ends_those_that_are") {
        return;
    }
    let mut host = Host::without("hgx-a100-80gb");
    let directory = host.directory().to_owned();
    let _mounted = Mounted::tmpfs(&directory, "size=512k,mode=755");
    host.start();
    host.list().await;
    let filler = directory.join("filler");
    let fill = || {
        let _ = fs::write(&filler, vec![0; 1 << 20]);
    };
    fill();
    let error = host.ensure(0, Settings::default()).await.unwrap_err().to_string();
    assert!(error.contains("No space left on device") && error.contains("/daemon."), "{error}");
    assert_eq!(host.list().await, [], "nothing stays of the attempt");
    assert_eq!(host.card(0)["computeMode"], 0);
    fs::remove_file(&filler).unwrap();
    let daemon = host.first().await;
    fill();
    let error = host.ensure(1, Settings::default()).await.unwrap_err().to_string();
    assert!(error.contains("No space left on device"), "{error}");
    assert_eq!(host.list().await, std::slice::from_ref(&daemon));
    host.release(0, 0).await.unwrap();
    assert_eq!(host.list().await, []);
    assert_eq!(host.card(0)["computeMode"], 0);
    host.end_pod();
}

/// The most connections that are served, each with more unread answers than fit into the socket's buffer.
#[tokio::test]
async fn who_does_not_read_its_answers_keeps_nobody_out() {
    let host = Host::new("t4");
    host.list().await;
    let limits = fs::read_to_string(format!("/proc/{}/limits", host.supervisor().unwrap())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let files: Vec<u32> = files.split_whitespace().flat_map(str::parse).collect();
    assert_eq!(files[0], files[1].min(65_536), "the soft limit is raised");
    let connect = || {
        let mut stream = UnixStream::connect(host.directory().join("host.sock")).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream.write_all("nonsense\n".repeat(1000).as_bytes()).unwrap();
        stream
    };
    let deaf: Vec<UnixStream> = (0..256).map(|_| connect()).collect();
    assert_eq!(host.list().await, []);
    drop(deaf);
}

#[tokio::test]
async fn subscribers_that_do_not_read_cost_next_to_nothing() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let supervisor = host.supervisor().unwrap();
    let deaf: Vec<_> =
        futures::future::join_all((0..50).map(|_| async { host.client().events(LONG).await.unwrap() })).await;
    let before = resident_kib(supervisor);
    let mut pid = daemon.pid;
    for _ in 0..10 {
        kill(pid.unwrap(), Signal::KILL);
        pid = host.other_than(pid).await.pid;
    }
    assert!(resident_kib(supervisor) < before + 4096);
    drop(deaf);
    host.release(0, 0).await.unwrap();
}

/// Runs `mps-host`; returns its exit code and output.
fn mps(host: &Host, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mps-host"));
    command.args(arguments).arg("--directory").arg(host.directory());
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[tokio::test]
async fn people_are_shown_how_it_is() {
    let mut host = Host::without("t4");
    let (code, said) = mps(&host, &["check", "--timeout", "0"]);
    assert!(code == Some(1) && said.contains("sharing.mps.enabled"), "{said}");
    let (code, help) = mps(&host, &["list", "--help"]);
    assert!(code == Some(0) && help.contains("--output"), "{help}");
    host.start();
    let settings = Settings { memory_limit_mib: Some(4096), active_thread_percentage: Some(25) };
    let daemon = host.ensure(0, settings).await.unwrap();
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    let (code, table) = mps(&host, &["list"]);
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().skip(2).collect();
    assert_eq!((code, words), (Some(0), vec!["running", "1", "4096", "MiB", "25", "%", "0"]), "{table}");
    let (code, json) = mps(&host, &["list", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(json["daemons"][0]["device"], daemon.device.as_str());
    assert_eq!(json["clients"][0]["clients"][0]["pid"], client.pid());
    assert_eq!(mps(&host, &["check", "--timeout", "20"]), (Some(0), "ok\n".to_owned()));
    kill(daemon.pid.unwrap(), Signal::KILL);
    host.daemon("waiting", |daemon| matches!(daemon.state, DaemonState::WaitingForClients { .. })).await;
    let (code, said) = mps(&host, &["check", "--timeout", "20"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("its daemon died") && said.contains(&client.pid().to_string()), "{said}");
}
