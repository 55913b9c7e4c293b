//! Clients of a daemon, and their limits.

use tessera_mps_host::protocol::{DaemonState, Settings};

use crate::client::Client;
use crate::host::{Host, LONG};

#[tokio::test]
async fn a_daemon_holds_its_card_before_the_first_client_and_leaves_it_as_it_was() {
    let host = Host::new("hgx-a100-80gb");
    let daemon = host.first().await;
    assert_eq!(daemon.state, DaemonState::Running);
    assert!(daemon.pid.is_some() && daemon.server_pid.is_some());
    assert_eq!(host.card(0)["computeMode"], 3);
    assert_eq!(host.card(1)["computeMode"], 0);
    // A program that bypasses the daemon gets no context, even before the first client.
    let past = Client::start(&host, "/nowhere".as_ref(), &[]);
    assert_eq!(past.device["error"], "CUDA_ERROR_DEVICE_UNAVAILABLE");
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(client.device["mpsServer"], daemon.server_pid.unwrap());
    drop(client);

    assert_eq!(host.first().await, daemon, "asked again, nothing is done");
    assert_eq!(host.release(0, 0).await.unwrap(), [0; 0]);
    assert_eq!(host.card(0)["computeMode"], 0);
    assert_eq!(host.card(0)["processes"], serde_json::json!([]));
    assert!(!daemon.pipe_directory.parent().unwrap().exists());
    assert_eq!(host.list().await, []);
    assert_eq!(host.release(0, 0).await.unwrap(), [0; 0], "released again, nothing is done");
}

#[tokio::test]
async fn daemons_of_two_cards_do_not_know_each_other() {
    let host = Host::new("hgx-a100-80gb");
    let (one, other) = tokio::join!(host.ensure(0, Settings::default()), host.ensure(5, Settings::default()));
    let (one, other) = (one.unwrap(), other.unwrap());
    let client = Client::start(&host, &other.pipe_directory, &[]);
    assert_eq!(client.device["mpsServer"], other.server_pid.unwrap());
    assert_eq!(host.card(5)["processes"].as_array().unwrap().len(), 2);
    host.release(0, 0).await.unwrap();
    assert!(!one.pipe_directory.exists());
    assert_eq!(host.list().await, [other]);
}

#[tokio::test]
async fn many_first_shares_at_once_start_one_daemon() {
    let host = Host::new("t4");
    let daemons = futures::future::join_all((0..20).map(|_| host.first())).await;
    assert!(daemons.windows(2).all(|pair| pair[0] == pair[1]), "{daemons:?}");
    assert_eq!(host.mps_processes().len(), 2, "a daemon and its server");
}

#[tokio::test]
async fn a_hostile_clients_environment_cannot_pass_the_daemons_limits() {
    let host = Host::new("t4");
    let settings = Settings { memory_limit_mib: Some(4096), active_thread_percentage: Some(50) };
    let daemon = host.ensure(0, settings).await.unwrap();
    let claims = [("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25")];
    let mut client = Client::start(&host, &daemon.pipe_directory, &claims);
    assert_eq!(client.device["memoryLimitMiB"], 1024);
    assert_eq!(client.order("allocate 2000")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    let hostile = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(hostile.device["memoryLimitMiB"], 4096);
    assert_eq!(hostile.device["activeThreadPercentage"], 50.0);

    // A larger share raises the limit of later clients; present ones keep theirs.
    let settings = Settings { memory_limit_mib: Some(8192), active_thread_percentage: Some(75) };
    let same = host.ensure(0, settings).await.unwrap();
    assert_eq!((same.pid, same.settings), (daemon.pid, settings));
    let later = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(later.device["memoryLimitMiB"], 8192);
    assert_eq!(later.device["activeThreadPercentage"], 75.0);
    assert_eq!(client.order("allocate 1000")["holdsMiB"], 1000);
}

#[tokio::test]
async fn clients_that_stay_are_told_and_lose_their_contexts_after_their_time() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let mut client = Client::start(&host, &daemon.pipe_directory, &[]);
    let mut events = host.client().events(LONG).await.unwrap();
    let ended = host.release(0, 1).await.unwrap();
    assert_eq!(ended, [client.pid()]);
    assert_eq!(client.says()["error"], "CUDA_ERROR_MPS_RPC_FAILURE");
    let event = serde_json::to_value(events.next().await.unwrap()).unwrap();
    assert_eq!(event["kind"]["clientsRemain"]["clients"][0], client.pid());
    let event = serde_json::to_value(events.next().await.unwrap()).unwrap();
    assert_eq!(event["kind"]["clientsEnded"]["clients"][0]["pid"], client.pid());
    assert_eq!(event["kind"]["clientsEnded"]["clients"][0]["program"], "cuda-sample");
    assert_eq!(serde_json::to_value(events.next().await.unwrap()).unwrap()["kind"], "stopped");
    let logged = format!("process {} (cuda-sample)", client.pid());
    host.until("logged", || host.log_text().contains(&logged)).await;
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn clients_that_leave_in_time_are_not_ended() {
    let host = Host::new("t4");
    let daemon = host.first().await;
    let client = Client::start(&host, &daemon.pipe_directory, &[]);
    let leave = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        drop(client);
    };
    let (ended, ()) = tokio::join!(host.release(0, 20), leave);
    assert_eq!(ended.unwrap(), [0; 0]);
}
