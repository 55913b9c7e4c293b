//! Shares with their own multiprocessors (static partitions).

use rustix::process::Signal;
use tessera_mps_host::client::MpsHostError;
use tessera_mps_host::protocol::{Daemon, DaemonState, Ensure, ErrorCode, Settings};

use crate::client::Client;
use crate::host::{Host, LONG, kill};
use crate::machine::EmulatedMachine;

fn host(cuda: &str) -> Host {
    let mut host = Host::on(EmulatedMachine::with("hgx-h100-80gb", &["--cuda-version", cuda]));
    host.start();
    host
}

fn wish(host: &Host, shares: &[(&str, u8)]) -> Ensure {
    let shares = shares.iter().map(|(share, compute)| ((*share).to_owned(), *compute)).collect();
    Ensure { static_shares: Some(shares), ..host.wish(0, Settings::default()) }
}

async fn ensure(host: &Host, shares: &[(&str, u8)]) -> Result<Daemon, MpsHostError> {
    host.client().ensure(wish(host, shares), LONG).await
}

/// The partition of a share, as `CUDA_MPS_SM_PARTITION` names it, and its multiprocessors.
fn partition(daemon: &Daemon, share: &str) -> (String, u32) {
    let partition = &daemon.static_partitions.as_ref().unwrap()[share];
    (partition.name.clone(), partition.multiprocessors)
}

fn client(host: &Host, daemon: &Daemon, partition: &str) -> Client {
    Client::start(host, &daemon.pipe_directory, &[("CUDA_MPS_SM_PARTITION", partition)])
}

fn refused(answer: Result<Daemon, MpsHostError>) -> (ErrorCode, String) {
    match answer {
        Err(MpsHostError::Refused { code, message }) => (code, message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_share_has_its_own_and_keeps_it_as_others_come_and_go() {
    let host = host("13.1");
    let daemon = ensure(&host, &[("a", 50)]).await.unwrap();
    // There are 15 chunks of 8 multiprocessors.
    let (a, multiprocessors) = partition(&daemon, "a");
    assert_eq!(multiprocessors, 56);
    let mut program = client(&host, &daemon, &a);
    assert_eq!(program.device["multiprocessors"], 56);
    assert_eq!(host.card(0)["computeMode"], 3);

    let daemon = ensure(&host, &[("a", 50), ("b", 25), ("c", 25)]).await.unwrap();
    assert_eq!(partition(&daemon, "a").0, a);
    let (b, multiprocessors) = partition(&daemon, "b");
    assert_eq!(multiprocessors, 24);
    assert_eq!(client(&host, &daemon, &b).device["multiprocessors"], 24);
    // A share that ends leaves its multiprocessors to others.
    let (_, message) = refused(ensure(&host, &[("a", 50), ("b", 25), ("c", 25), ("d", 25)]).await);
    assert!(message.contains("125 %"), "{message}");
    let daemon = ensure(&host, &[("a", 50), ("c", 25), ("d", 25)]).await.unwrap();
    assert_eq!(daemon.static_partitions.as_ref().unwrap().len(), 3);
    assert_eq!(client(&host, &daemon, &b).device["error"], "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION");
    assert_eq!(program.order("allocate 100")["holdsMiB"], 100, "who is there notices nothing");
    drop(program);
    host.release(0, 0).await.unwrap();
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn without_a_partition_nobody_gets_in() {
    let host = host("13.1");
    let daemon = ensure(&host, &[("a", 50)]).await.unwrap();
    let hostile = Client::start(&host, &daemon.pipe_directory, &[]);
    assert_eq!(hostile.device["error"], "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION");
}

#[tokio::test]
async fn processes_that_outlive_their_share_keep_its_chunks_and_that_is_said() {
    let host = host("13.1");
    let daemon = ensure(&host, &[("a", 60), ("b", 40)]).await.unwrap();
    let left = client(&host, &daemon, &partition(&daemon, "a").0);
    let (code, message) = refused(ensure(&host, &[("b", 40), ("c", 60)]).await);
    assert_eq!(code, ErrorCode::Failed, "it passes");
    assert!(message.contains("still hold 9 chunks"), "{message}");
    assert_eq!(host.list().await[0].state, DaemonState::Running, "the others are none the worse for it");
    drop(left);
    host.until("nobody", || host.card(0)["processes"].as_array().unwrap().len() == 1).await;
    let daemon = ensure(&host, &[("b", 40), ("c", 60)]).await.unwrap();
    assert_eq!(partition(&daemon, "c").1, 72);
}

#[tokio::test]
async fn partitions_survive_the_supervisor_and_come_back_with_the_daemon() {
    let host = host("13.1");
    let daemon = ensure(&host, &[("a", 50), ("b", 50)]).await.unwrap();
    let supervisor = host.supervisor().unwrap();
    kill(supervisor, Signal::KILL);
    host.until("another supervisor", || host.supervisor().is_some_and(|pid| pid != supervisor)).await;
    assert_eq!(host.list().await, std::slice::from_ref(&daemon));
    assert_eq!(ensure(&host, &[("a", 50), ("b", 50)]).await.unwrap(), daemon);

    kill(daemon.pid.unwrap(), Signal::KILL);
    let again = host.other_than(daemon.pid).await;
    for share in ["a", "b"] {
        let (name, multiprocessors) = partition(&again, share);
        assert_ne!(name, partition(&daemon, share).0, "another daemon, other names");
        assert_eq!(client(&host, &again, &name).device["multiprocessors"], multiprocessors);
    }
}

/// A supervisor that dies after making a partition and before recording it leaves an unknown one.
#[tokio::test]
async fn a_partition_that_nobody_knows_is_taken_away() {
    let host = host("13.1");
    let daemon = ensure(&host, &[("a", 50)]).await.unwrap();
    let order = |line: &str| {
        use std::io::Write as _;
        let mut child = std::process::Command::new(host.machine.root().join("bin/nvidia-cuda-mps-control"))
            .env("CUDA_MPS_PIPE_DIRECTORY", &daemon.pipe_directory)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    assert!(order(&format!("sm_partition add {} 8", daemon.device)).contains("created"));
    let daemon = ensure(&host, &[("a", 50), ("b", 50)]).await.unwrap();
    assert_eq!(partition(&daemon, "b").1, 56);
    assert_eq!(order("lspart").lines().count(), 2 + 1 + 2);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let host = host("13.1");
    for (shares, part) in
        [(&[("a", 0)][..], "1 to 100"), (&[("a", 101)], "1 to 100"), (&[("a", 6)], "15 chunks")]
    {
        let (code, message) = refused(ensure(&host, shares).await);
        assert_eq!(code, ErrorCode::InvalidRequest);
        assert!(message.contains(part), "{message}");
        assert_eq!(host.list().await, [], "nothing of the attempt stays");
    }
    ensure(&host, &[("a", 50)]).await.unwrap();
    let (_, message) = refused(host.ensure(0, Settings::default()).await);
    assert!(message.contains("with static SM partitions"), "{message}");
}

#[tokio::test]
async fn an_older_driver_says_no() {
    let host = host("13.0");
    let (code, message) = refused(ensure(&host, &[("a", 50)]).await);
    assert_eq!(code, ErrorCode::Failed);
    assert!(message.contains("-S"), "{message}");
    assert_eq!((host.list().await, host.card(0)["computeMode"].clone()), (vec![], 0.into()));
}
