//! Any process may die at any time.

use std::os::unix::fs::MetadataExt as _;

use rustix::process::Signal;
use tessera_mps_host::client::MpsHostError;
use tessera_mps_host::protocol::{Daemon, DaemonState, ErrorCode, EventKind};

use crate::client::Client;
use crate::host::{Host, LONG, children, kill, lives, state};

#[tokio::test]
async fn a_killed_supervisor_is_started_again_and_finds_its_daemons() {
    let host = Host::new("hgx-a100-80gb");
    let daemon = host.first().await;
    let mut client = Client::start(&host, &daemon.pipe_directory, &[]);
    for _ in 0..3 {
        let supervisor = host.supervisor().unwrap();
        kill(supervisor, Signal::KILL);
        host.until("another supervisor", || host.supervisor().is_some_and(|pid| pid != supervisor)).await;
        let found = host.list().await;
        assert_eq!(found, std::slice::from_ref(&daemon), "{}", host.log_text());
    }
    assert_eq!(client.order("allocate 100")["holdsMiB"], 100);
    assert_eq!(host.first().await.pid, daemon.pid);
    drop(client);
    host.release(0, 0).await.unwrap();
    assert_eq!(host.card(0)["computeMode"], 0, "what was set before is remembered");
}

#[tokio::test]
async fn a_killed_daemon_without_clients_is_started_again_at_once() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let mut events = host.client().events(LONG).await.unwrap();
    kill(daemon.pid.unwrap(), Signal::KILL);
    let EventKind::DaemonDied { pid, clients } = events.next().await.unwrap().kind else { panic!() };
    assert_eq!((Some(pid), clients), (daemon.pid, vec![]));
    assert_eq!(events.next().await.unwrap().kind, EventKind::Restarted);
    let again = host.other_than(daemon.pid).await;
    assert_eq!(again.restarts, 1);
    assert_eq!(again.pipe_directory, daemon.pipe_directory);
    let client = Client::start(&host, &again.pipe_directory, &[]);
    assert_eq!(client.device["mpsServer"], again.server_pid.unwrap());
    drop(client);
    host.release(0, 0).await.unwrap();
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn a_killed_daemons_clients_go_on_and_it_is_started_again_after_them() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let mut client = Client::start(&host, &daemon.pipe_directory, &[]);
    kill(daemon.pid.unwrap(), Signal::KILL);
    let waits = DaemonState::WaitingForClients { clients: vec![client.pid()] };
    host.daemon("waiting", |daemon| daemon.state == waits).await;
    assert_eq!(client.order("allocate 100")["holdsMiB"], 100, "it is not harmed");
    // Nor does it matter if the supervisor dies.
    kill(host.supervisor().unwrap(), Signal::KILL);
    host.daemon("waiting", |daemon| daemon.state == waits).await;
    assert_eq!(client.order("allocate 100")["holdsMiB"], 200);
    drop(client);
    host.other_than(daemon.pid).await;
}

#[tokio::test]
async fn a_share_of_a_card_with_a_dead_daemon_and_clients_is_refused_with_their_ids() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    kill(daemon.pid.unwrap(), Signal::KILL);
    host.daemon("waiting", |daemon| matches!(daemon.state, DaemonState::WaitingForClients { .. })).await;
    let error = host.ensure(0, Default::default()).await.unwrap_err().to_string();
    assert!(error.contains(&client.pid().to_string()), "{error}");
    assert_eq!(host.release(0, 0).await.unwrap(), [client.pid()]);
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn a_killed_server_is_started_again_and_holds_the_card() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let mut client = Client::start(&host, &daemon.pipe_directory, &[]);
    kill(daemon.server_pid.unwrap(), Signal::KILL);
    assert_eq!(client.says()["error"], "CUDA_ERROR_MPS_RPC_FAILURE");
    let again = host
        .daemon("another server", |now| {
            now.state == DaemonState::Running
                && now.server_pid.is_some()
                && now.server_pid != daemon.server_pid
        })
        .await;
    assert_eq!(again.pid, daemon.pid);
    let past = Client::start(&host, "/nowhere".as_ref(), &[]);
    assert_eq!(past.device["error"], "CUDA_ERROR_DEVICE_UNAVAILABLE");
}

#[tokio::test]
async fn after_a_fault_it_is_told_who_must_end_before_the_server_takes_others() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let mut notebook = Client::start(&host, &daemon.pipe_directory, &[]);
    let mut faulty = Client::start(&host, &daemon.pipe_directory, &[]);
    notebook.order("linger");
    let mut events = host.client().events(LONG).await.unwrap();
    assert_eq!(faulty.order("fault")["error"], "CUDA_ERROR_LAUNCH_FAILED");
    assert_eq!(notebook.says()["error"], "CUDA_ERROR_LAUNCH_FAILED");
    let event = events.next().await.unwrap();
    let EventKind::ServerFault { clients } = event.kind else { panic!("{event:?}") };
    assert!(clients.iter().any(|client| client.pid == notebook.pid()), "{clients:?}");
    drop(faulty);
    let left = |daemon: &Daemon| daemon.fault.as_ref().map(|fault| fault.clients.clone());
    let seen = host.daemon("waiting for one", |daemon| left(daemon) == Some(vec![notebook.pid()])).await;
    assert_eq!((&seen.state, seen.server_pid), (&DaemonState::Running, daemon.server_pid));
    assert_eq!(seen.fault.map(|fault| fault.id), event.id, "whoever did not listen tells the same");

    let early = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(early.device["error"], "CUDA_ERROR_MPS_SERVER_NOT_READY");
    let error = host.ensure(0, Default::default()).await.unwrap_err();
    let MpsHostError::Refused { code, message } = error else { panic!("{error}") };
    assert_eq!(code, ErrorCode::DeviceInUse, "it passes by itself");
    assert!(message.contains("faulted") && message.contains(&notebook.pid().to_string()), "{message}");
    let state = host.list().await[0].state.clone();
    assert_eq!(state, DaemonState::Running, "the daemon is none the worse for that question");
    // Another supervisor notices the fault too.
    kill(host.supervisor().unwrap(), Signal::KILL);
    host.daemon("found", |daemon| left(daemon) == Some(vec![notebook.pid()])).await;

    let mut events = host.client().events(LONG).await.unwrap();
    drop(notebook);
    host.daemon("recovered", |daemon| daemon.fault.is_none()).await;
    assert_eq!(events.next().await.unwrap().kind, EventKind::ServerRecovered);
    host.ensure(0, Default::default()).await.unwrap();
    let next = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(next.device["mpsServer"], daemon.server_pid.unwrap());
}

#[tokio::test]
async fn a_server_that_can_not_be_started_is_tried_again_until_it_can() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let program = host.machine.root().join("bin/nvidia-cuda-mps-server");
    let away = program.with_extension("away");
    std::fs::rename(&program, &away).unwrap();
    kill(daemon.server_pid.unwrap(), Signal::KILL);
    let failed = host.daemon("failed", |daemon| matches!(daemon.state, DaemonState::Failed { .. })).await;
    assert_eq!((failed.pid, failed.server_pid), (daemon.pid, None));
    std::fs::rename(&away, &program).unwrap();
    // Without any request: until the server runs, any program could use the card.
    let again = host.daemon("running", |daemon| daemon.state == DaemonState::Running).await;
    assert_eq!(again.pid, daemon.pid);
    assert_ne!(again.server_instance, daemon.server_instance);
    assert!(again.server_instance.is_some() && again.restarts > daemon.restarts);
}

#[tokio::test]
async fn after_the_pods_end_the_next_one_starts_what_was_wanted() {
    let mut host = Host::new("hgx-a100-80gb");
    let daemon = host.first().await;
    let mut client = Client::start(&host, &daemon.pipe_directory, &[]);
    host.end_pod();
    assert_eq!(client.says()["error"], "CUDA_ERROR_MPS_RPC_FAILURE");
    host.start();
    let again = host.other_than(daemon.pid).await;
    let next = Client::start(&host, &again.pipe_directory, &[]);
    assert_eq!(next.device["mpsServer"], again.server_pid.unwrap());
    drop(next);
    host.release(0, 0).await.unwrap();
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn while_mps_host_is_away_nobody_takes_the_card() {
    let mut host = Host::new("hgx-a100-80gb");
    let daemon = host.first().await;
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    let inode = || std::fs::metadata(&daemon.pipe_directory).unwrap().ino();
    let before = inode();
    host.terminate();
    host.until("the card is closed", || host.card(0)["computeMode"] == 2).await;
    assert!(client.device["error"].is_null());
    host.end_pod();
    let early = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(early.device["error"], "CUDA_ERROR_DEVICE_UNAVAILABLE");
    host.start();
    let again = host.other_than(daemon.pid).await;
    assert_eq!(inode(), before, "containers have this directory mounted");
    let next = Client::start(&host, &again.pipe_directory, &[]);
    assert_eq!(next.device["mpsServer"], again.server_pid.unwrap());
    assert_eq!(host.card(0)["computeMode"], 3);
    drop(next);
    host.release(0, 0).await.unwrap();
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn who_took_the_card_meanwhile_is_waited_for_and_does_not_come_back() {
    let mut host = Host::new("hgx-a100-80gb");
    let daemon = host.first().await;
    // A killed mps-host can't close the card.
    host.end_pod();
    let past = Client::start(&host, &daemon.pipe_directory, &[]);
    assert!(past.device["error"].is_null() && past.device["mpsServer"].is_null(), "{}", past.device);
    host.start();
    let waits = DaemonState::WaitingForClients { clients: vec![past.pid()] };
    host.daemon("waiting", |daemon| daemon.state == waits).await;
    host.until("the card is closed", || host.card(0)["computeMode"] == 2).await;
    drop(past);
    let again = host.daemon("running", |daemon| daemon.state == DaemonState::Running).await;
    assert_eq!(
        Client::start(&host, &again.pipe_directory, &[]).device["mpsServer"],
        again.server_pid.unwrap()
    );
    host.release(0, 5).await.unwrap();
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn without_the_reaper_daemons_go_on_and_the_next_one_finds_them() {
    let mut host = Host::new("t4");
    let daemon = host.first().await;
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    let supervisor = host.supervisor().unwrap();
    host.kill_reaper();
    kill(supervisor, Signal::KILL);
    host.start();
    let found = host.daemon("found", |daemon| daemon.state == DaemonState::Running).await;
    assert_eq!(found, daemon);
    assert!(client.device["error"].is_null());
}

#[tokio::test]
async fn the_reaper_reaps_whatever_comes_to_it_and_does_not_end() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    assert!(children(host.reaper()).contains(&daemon.pid.unwrap()), "detached daemons come to it");
    for _ in 0..5 {
        let daemon = host.daemon("running", |daemon| daemon.state == DaemonState::Running).await;
        kill(daemon.pid.unwrap(), Signal::KILL);
        host.other_than(daemon.pid).await;
    }
    let zombies =
        || children(host.reaper()).into_iter().filter(|pid| state(*pid) == Some('Z')).collect::<Vec<_>>();
    host.until("all are reaped", || zombies().is_empty()).await;
    assert!(lives(host.reaper()));
    kill(host.reaper(), Signal::HUP);
    kill(host.supervisor().unwrap(), Signal::KILL);
    host.list().await;
}

#[tokio::test]
async fn told_to_end_it_waits_for_daemons_with_clients_only() {
    let mut host = Host::new("hgx-a100-80gb");
    let with = host.first().await;
    let without = host.ensure(1, Default::default()).await.unwrap();
    let client = Client::start(&host, &with.pipe_directory, &[]);
    host.terminate();
    host.until("the other is ended", || state(without.pid.unwrap()).is_none()).await;
    assert!(!host.has_ended(), "a daemon with a client is there");
    assert!(state(with.pid.unwrap()).is_some());
    drop(client);
    // Both daemons are wanted: the next pod finds one of them and starts the other.
    for pid in host.mps_processes() {
        kill(pid, Signal::KILL);
    }
    let since = std::time::Instant::now();
    while !host.has_ended() {
        assert!(since.elapsed() < LONG, "it does not end: {}", host.log_text());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    host.start();
    let daemons = async || {
        let daemons = host.list().await;
        daemons.iter().filter(|daemon| daemon.state == DaemonState::Running).count()
    };
    let since = std::time::Instant::now();
    while daemons().await < 2 {
        assert!(since.elapsed() < LONG, "{:?}", host.list().await);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
