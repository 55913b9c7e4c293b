//! Others on the pod's network flood the metrics port with connections.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::{node::Node, plugin::Plugin};

/// Limits on the plugin's open files: fewer than the opened connections.
const FILES: (u64, u64) = (128, 192);

/// Number of concurrent connections.
const CROWD: usize = 400;

/// Size of an endless header, bytes per connection.
const HEADER: usize = 256 << 10;

/// How much the plugin's memory may grow by such headers, KiB: 32 connections with 16 KiB each, and overhead.
const GROWTH: u64 = 8 << 10;

fn crowd(address: SocketAddr) -> Vec<TcpStream> {
    (0..CROWD).map(|_| TcpStream::connect_timeout(&address, Duration::from_secs(20)).unwrap()).collect()
}

#[tokio::test]
async fn idle_connections_keep_neither_the_kubelet_nor_claims_waiting() {
    let node = Node::new("idle", "t4").await;
    let plugin = Plugin::start_with_files(node.directory(), &node.arguments(), FILES);
    let registered = node.register().await;
    plugin.ready().await;
    let device = node.devices().await.remove(0);
    let claim = node.claim(&[&device]).await;

    let idle = crowd(plugin.address());
    let calls = async {
        registered.prepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
        node.register().await;
    };
    tokio::time::timeout(Duration::from_secs(45), calls).await.expect("within the kubelet's own time");
    // Silent connections are closed after a while, to make room for others.
    plugin.until("metrics", || plugin.try_get("/metrics").is_ok_and(|(status, _)| status == 200)).await;
    let (_, metrics) = plugin.get("/metrics");
    let refused =
        metrics.lines().find_map(|line| line.strip_prefix("tessera_http_connections_refused_total "));
    let refused: usize = refused.unwrap().parse().unwrap();
    // On a busy machine places of closed connections go to others of the crowd.
    assert!(refused >= CROWD - 2 * 32, "{refused}");
    drop(idle);
    registered.unprepare(std::slice::from_ref(&claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn probes_have_a_way_of_their_own() {
    let node = Node::new("probes", "t4").await;
    let plugin = Plugin::start_with_files(node.directory(), &node.arguments(), FILES);
    plugin.until("alive", || plugin.probe("/healthz").0).await;
    let (ready, why) = plugin.probe("/readyz");
    assert!(!ready && why.contains("[-] registered with the kubelet"), "{why}");
    node.register().await;
    plugin.ready().await;
    assert_eq!(plugin.files_limits(), (FILES.1, FILES.1), "as much as it may have");
    // All connections are taken, again and again.
    let (address, done) = (plugin.address(), tokio_util::sync::CancellationToken::new());
    let stop = done.clone();
    let attack = tokio::task::spawn_blocking(move || {
        let mut rounds = 0;
        while !stop.is_cancelled() {
            drop(crowd(address));
            rounds += 1;
        }
        rounds
    });
    for _ in 0..20 {
        for path in ["/healthz", "/readyz"] {
            let (is_well, said) = plugin.probe(path);
            assert!(is_well, "{path}: {said}");
        }
    }
    done.cancel();
    assert!(attack.await.unwrap() > 0);

    let socket = plugin.probe_socket.clone();
    assert_eq!(plugin.terminate().await.code(), Some(0));
    assert!(!socket.exists());
}

#[tokio::test]
async fn headers_without_end_cost_next_to_nothing() {
    let node = Node::new("headers", "t4").await;
    let plugin = node.plugin(None);
    node.register().await;
    plugin.ready().await;
    plugin.get("/metrics");
    let before = plugin.most_resident_kib();

    let mut crowd = crowd(plugin.address());
    for stream in &mut crowd {
        stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        // The connection may be closed, or not be read any more.
        let _ = stream
            .write_all(b"GET /metrics HTTP/1.1\r\nX: ")
            .and_then(|()| stream.write_all(&[b'x'; HEADER]));
    }
    let after = plugin.most_resident_kib();
    assert!(after < before + GROWTH, "{before} KiB before, {after} KiB at most since");
    for mut stream in crowd {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "given up"),
        }
    }
    assert_eq!(plugin.get("/metrics").0, 200);
    assert_eq!(plugin.terminate().await.code(), Some(0));
}
