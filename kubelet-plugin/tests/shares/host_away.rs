//! mps-host hangs, is gone, or another program listens at its socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tessera_fakes::poll::until_async;

use crate::container::Container;
use crate::follow::{Following, with_share};
use crate::host::kill;
use crate::node::{Node, claim, prepare, unprepare};

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_nobody_wants_ends_as_soon_as_mps_host_is_back() {
    let (mut node, preparer, _following, share) = with_share().await;
    let supervisor = node.host.supervisor().unwrap();
    kill(node.host.reaper(), Signal::STOP);
    kill(supervisor, Signal::KILL);
    unprepare(&preparer, &share).await.unwrap();
    assert_eq!(node.hardware(), [node.device(0, "mps")], "the card is kept");
    kill(node.host.reaper(), Signal::CONT);
    let since = Instant::now();
    until_async("freed", async || node.hardware().is_empty()).await;
    assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
    assert!(node.is_empty().await);
    node.host.end_pod();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_will_not_end_now_is_ended_later_without_a_claim_for_its_card() {
    let (node, preparer, _following, share) = with_share().await;
    // mps-host hangs: neither answering nor ending.
    let supervisor = node.host.supervisor().unwrap();
    kill(supervisor, Signal::STOP);
    unprepare(&preparer, &share).await.unwrap();
    assert_eq!(node.hardware(), [node.device(0, "mps")], "the card is kept");
    kill(supervisor, Signal::CONT);
    until_async("freed", async || node.hardware().is_empty()).await;
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cards_of_an_mps_host_that_is_killed_at_once_are_closed_until_the_next_one_runs() {
    let (mut node, preparer, _following, share) = with_share().await;
    let container = Container::of(&node.spec(&share));
    node.host.end_pod();
    until_async("closed", async || node.host.card(0)["computeMode"] == 2).await;
    assert_eq!(container.run(&node.host).device["error"], "CUDA_ERROR_DEVICE_UNAVAILABLE");
    node.host.start();
    node.host.daemon("running", |daemon| daemon.server_pid.is_some()).await;
    assert_eq!(node.host.card(0)["computeMode"], 3);
    assert!(container.run(&node.host).device["error"].is_null());
    unprepare(&preparer, &share).await.unwrap();
    assert!(node.is_empty().await, "the mode is what it was before");
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_that_outlive_mps_host_keep_their_cards_open() {
    let (node, preparer, following, share) = with_share().await;
    let (supervisor, reaper) = (node.host.supervisor().unwrap(), node.host.reaper());
    kill(reaper, Signal::STOP);
    kill(supervisor, Signal::KILL);
    until_async("away", async || following.metrics.host_up.get() == 0).await;
    let container = Container::of(&node.spec(&share));
    // Gives the plugin time for further looks.
    for _ in 0..5 {
        assert!(container.run(&node.host).device["error"].is_null());
        assert_eq!(node.host.card(0)["computeMode"], 3);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    kill(reaper, Signal::CONT);
    following.is_connected().await;
    unprepare(&preparer, &share).await.unwrap();
    assert!(node.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_socket_holds_nobody_up_and_is_given_up() {
    let mut node = Node::without("t4");
    let socket = node.host.directory().join("host.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    // Confirms a subscription and then sends garbage without end; every other connection gets no answer.
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for (number, stream) in listener.incoming().flatten().enumerate() {
            if number % 2 == 0 {
                std::thread::spawn(move || {
                    let mut stream = stream;
                    let _ = stream.read(&mut [0; 256]);
                    let _ = stream.write_all(b"\"subscribed\"\n");
                    let line = format!("{{\"event\":{}\n", "[".repeat(1 << 20));
                    while stream.write_all(line.as_bytes()).is_ok() {}
                });
            } else {
                kept.push(stream);
            }
        }
    });
    let preparer = node.start().await;
    let following = Following::start(&preparer);
    let whole = claim("whole");
    node.api.allocate(&whole, &[("gpu", &node.device(0, ""))]);
    for _ in 0..3 {
        let since = Instant::now();
        prepare(&preparer, &whole).await.unwrap();
        unprepare(&preparer, &whole).await.unwrap();
        assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(following.metrics.host_up.get(), 0);
    node.host.start();
    following.is_connected().await;
}
