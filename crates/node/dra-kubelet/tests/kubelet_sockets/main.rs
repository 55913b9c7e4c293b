//! The sockets as the kubelet uses them, with a stand-in that prepares claims.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod http2;
mod instance;

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use http2::{Frame, KIND_DATA, KIND_RESET, frames};
use instance::{Behaviour, Running, claim};
use tessera_dra_kubelet::registration::RegistrationState;
use tessera_proto::{
    dra::{v1, v1beta1},
    dra_health::{v1 as health_v1, v1alpha1 as health_v1alpha1},
    registration::v1::{InfoRequest, RegistrationStatus},
};
use tonic::{Code, Request};

const REGISTRATION: &[u8] = include_bytes!("../data/registration.bin");
const DRA: &[u8] = include_bytes!("../data/dra.bin");

/// Sends a recorded conversation of a client and returns the answer, up to the end of each of these streams.
fn replay(socket: &Path, recorded: &[u8], piece: usize, streams: &[u32]) -> Vec<Frame> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for piece in recorded.chunks(piece) {
        stream.write_all(piece).unwrap();
    }
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        answer.extend_from_slice(&chunk[..count]);
        let frames = frames(&answer);
        let has_ended = |id: &u32| frames.iter().any(|frame| frame.stream == *id && frame.ends_its_stream());
        if streams.iter().all(has_ended) {
            return frames;
        }
    }
    panic!("not all of {streams:?} were answered: {:?}", frames(&answer));
}

fn data_of(frames: &[Frame], stream: u32) -> Vec<u8> {
    let data = frames.iter().filter(|frame| frame.kind == KIND_DATA && frame.stream == stream);
    data.flat_map(|frame| frame.payload.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubelets_recorded_registration_is_understood() {
    let running = Running::start(Some("uid-a"), Behaviour::default()).await;
    for piece in [usize::MAX, 7, 1] {
        let socket = running.paths.registration.clone();
        let frames =
            tokio::task::spawn_blocking(move || replay(&socket, REGISTRATION, piece, &[1, 3])).await.unwrap();
        assert!(frames.iter().all(|frame| frame.kind != KIND_RESET), "{frames:?}");
        let info = data_of(&frames, 1);
        let endpoint = running.paths.dra.to_str().unwrap();
        for text in ["DRAPlugin", "gpu.tessera.dev", endpoint, "v1.DRAPlugin", "v1beta1.DRAPlugin"] {
            assert!(info.windows(text.len()).any(|window| window == text.as_bytes()), "{text}");
        }
        assert_eq!(data_of(&frames, 3), [0; 5], "an empty message answers NotifyRegistrationStatus");
    }
    assert_eq!(*running.registration.borrow(), RegistrationState::Registered);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_older_kubelets_are_understood() {
    let running = Running::start(None, Behaviour::default()).await;
    let socket = running.paths.dra.clone();
    let frames = tokio::task::spawn_blocking(move || replay(&socket, DRA, 100, &[1, 5, 9])).await.unwrap();
    assert!(frames.iter().all(|frame| frame.kind != KIND_RESET), "{frames:?}");
    for stream in [1, 5, 9] {
        let text = b"example.com/claim=0b4e7d3c-8d0c-4b59-9f61-3b1f2f3a4c5d";
        assert!(data_of(&frames, stream).windows(text.len()).any(|window| window == text), "{stream}");
    }
    running.stop().await;
}

/// When this fails, HTTP/2 accepts the kubelet's authority as it is, and the adapter can go.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_adapter_every_call_is_reset() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let socket = directory.path().join("plain.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let server = instance::plain_registration_server();
    let serving =
        tokio::spawn(server.serve_with_incoming(tokio_stream::wrappers::UnixListenerStream::new(listener)));
    let frames = tokio::task::spawn_blocking(move || replay(&socket, REGISTRATION, usize::MAX, &[1, 3]))
        .await
        .unwrap();
    let resets: Vec<u32> = frames.iter().filter(|f| f.kind == KIND_RESET).map(|f| f.stream).collect();
    assert_eq!(resets, [1, 3]);
    serving.abort();
}

#[tokio::test]
async fn registration_accepted_and_refused() {
    let mut running = Running::start(None, Behaviour::default()).await;
    let mut client = running.registration_client().await;
    let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.r#type, "DRAPlugin");
    assert_eq!(info.name, "gpu.tessera.dev");
    assert_eq!(info.endpoint, running.paths.dra.to_str().unwrap());
    assert_eq!(
        info.supported_versions,
        ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
    );
    let refused =
        RegistrationStatus { plugin_registered: false, error: "endpoint already registered".to_owned() };
    client.notify_registration_status(refused).await.unwrap();
    let state = running.registration.borrow_and_update().clone();
    assert_eq!(state, RegistrationState::Refused("endpoint already registered".to_owned()));
    let accepted = RegistrationStatus { plugin_registered: true, error: String::new() };
    client.notify_registration_status(accepted).await.unwrap();
    assert_eq!(*running.registration.borrow_and_update(), RegistrationState::Registered);
    assert_eq!(running.metrics.registered.get(), 1);
    assert_eq!(running.metrics.registrations_refused.get(), 1);
    running.stop().await;
}

#[tokio::test]
async fn claims_in_both_versions_each_with_its_own_answer() {
    let running = Running::start(None, Behaviour::default()).await;
    let claims = vec![claim("good"), claim("bad"), claim("forgotten")];
    let mut client = running.dra_client().await;
    let request = v1::NodePrepareResourcesRequest { claims: claims.clone() };
    let answers = client.node_prepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(answers.len(), 3);
    let device = &answers["good"].devices[0];
    assert_eq!(device.request_names, ["gpu"]);
    assert_eq!(device.cdi_device_ids, ["example.com/claim=good"]);
    assert_eq!(device.share_id.as_deref(), Some("share"));
    assert_eq!(answers["bad"].error, "cannot prepare: the card is lost");
    assert!(answers["bad"].devices.is_empty());
    assert!(answers["forgotten"].error.contains("no answer"));

    let mut client = running.dra_v1beta1_client().await;
    let claims = vec![v1beta1::Claim { namespace: "ns".into(), name: "good".into(), uid: "good".into() }];
    let request = v1beta1::NodePrepareResourcesRequest { claims: claims.clone() };
    let answers = client.node_prepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(answers["good"].devices[0].device_name, "gpu-3b-00");
    let request = v1beta1::NodeUnprepareResourcesRequest { claims };
    let answers = client.node_unprepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(answers["good"].error, "");
    running.stop().await;
}

#[tokio::test]
async fn health_streams_in_both_versions() {
    let running = Running::start(None, Behaviour::default()).await;
    let mut v1 = running.health_v1_client().await;
    let mut v1alpha1 = running.health_v1alpha1_client().await;
    let mut one =
        v1.node_watch_resources(health_v1::NodeWatchResourcesRequest {}).await.unwrap().into_inner();
    let mut other = v1alpha1
        .node_watch_resources(health_v1alpha1::NodeWatchResourcesRequest {})
        .await
        .unwrap()
        .into_inner();
    running.report("gpu-3b-00", "xid-79");
    for _ in 0..2 {
        let device = one.message().await.unwrap().unwrap().devices.remove(0);
        assert_eq!(device.health, i32::from(health_v1::HealthStatus::Unhealthy));
        assert_eq!(device.message, "xid-79");
        let device = other.message().await.unwrap().unwrap().devices.remove(0);
        assert_eq!(device.device.unwrap().device_name, "gpu-3b-00");
        running.report("gpu-3b-00", "xid-79");
    }
    // A kubelet that watches does not delay the end.
    let since = Instant::now();
    running.stop().await;
    assert!(since.elapsed() < Duration::from_secs(15));
}

/// Reports do not queue up for a watcher that does not read: it gets the newest when it does.
#[tokio::test]
async fn who_does_not_read_its_stream_misses_what_is_old() {
    let running = Running::start(None, Behaviour::default()).await;
    let mut client = running.health_v1_client().await;
    let request = health_v1::NodeWatchResourcesRequest {};
    running.report("gpu-3b-00", "the first");
    let mut stream = client.node_watch_resources(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().devices[0].message, "the first");
    const REPORTS: usize = 3000;
    for number in 1..=REPORTS {
        running.report("gpu-3b-00", &format!("{number:01000}"));
        tokio::task::yield_now().await;
    }
    let newest = format!("{REPORTS:01000}");
    let mut read = 0;
    while stream.message().await.unwrap().unwrap().devices[0].message != newest {
        read += 1;
    }
    assert!(read < REPORTS / 4, "{read} of {REPORTS} reports were kept");
    drop((stream, client));
    running.stop().await;
}

#[tokio::test]
async fn requests_that_are_too_large_are_refused_and_the_next_is_served() {
    let running = Running::start(None, Behaviour::default()).await;
    let mut client = running.dra_client().await;
    let huge = vec![claim(&"x".repeat(2 << 20))];
    let status =
        client.node_prepare_resources(v1::NodePrepareResourcesRequest { claims: huge }).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    let many = (0..5000).map(|n| claim(&n.to_string())).collect();
    let status =
        client.node_prepare_resources(v1::NodePrepareResourcesRequest { claims: many }).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let good = v1::NodePrepareResourcesRequest { claims: vec![claim("good")] };
    assert!(client.node_prepare_resources(good).await.is_ok());
    running.stop().await;
}

/// Random bytes, truncated conversations, other protocols: connections end, nothing else does.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_sockets_harms_nobody() {
    let running = Running::start(None, Behaviour::default()).await;
    let sockets = [running.paths.registration.clone(), running.paths.dra.clone()];
    let garbage = tokio::task::spawn_blocking(move || {
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..400 {
            let mut bytes = match round % 4 {
                0 => (0..random.usize(0..3000)).map(|_| random.u8(..)).collect(),
                1 => b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
                2 => REGISTRATION[..random.usize(0..REGISTRATION.len())].to_vec(),
                _ => DRA.to_vec(),
            };
            if round % 4 == 3 {
                for _ in 0..random.usize(1..20) {
                    let place = random.usize(24..bytes.len());
                    bytes[place] = random.u8(..);
                }
            }
            let mut stream = UnixStream::connect(&sockets[round / 4 % 2]).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            // The other end may hang up while we write.
            let _ = stream.write_all(&bytes);
        }
    });
    garbage.await.unwrap();
    let mut client = running.dra_client().await;
    let good = v1::NodePrepareResourcesRequest { claims: vec![claim("good")] };
    assert!(client.node_prepare_resources(good).await.is_ok());
    drop(client);
    running.no_connections_within(Duration::from_secs(10)).await;
    running.stop().await;
}

/// A client that connects and sends nothing keeps its slot for a few seconds only.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_keep_the_kubelet_out() {
    let running = Running::start(None, Behaviour::default()).await;
    let silent: Vec<_> = (0..60).map(|_| UnixStream::connect(&running.paths.registration).unwrap()).collect();
    let mut client = running.registration_client().await;
    // The connections before it must time out first, 32 at a time.
    let mut request = Request::new(InfoRequest {});
    request.set_timeout(Duration::from_secs(30));
    client.get_info(request).await.unwrap();
    drop(silent);
    running.stop().await;
}

#[tokio::test]
async fn a_call_that_runs_is_answered_before_the_end_and_the_sockets_go_first() {
    let running = Running::start(Some("uid-a"), Behaviour { delay: Duration::from_secs(3) }).await;
    let mut client = running.dra_client().await;
    let call = tokio::spawn(async move {
        client.node_prepare_resources(v1::NodePrepareResourcesRequest { claims: vec![claim("good")] }).await
    });
    while running.calls.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let paths = running.paths.clone();
    let stopping = tokio::spawn(running.stop());
    while paths.registration.exists() || paths.dra.exists() {
        assert!(!call.is_finished());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(call.await.unwrap().unwrap().into_inner().claims["good"].error.is_empty());
    stopping.await.unwrap();
}

#[tokio::test]
async fn two_instances_serve_side_by_side_and_end_alone() {
    let old = Running::start(Some("uid-old"), Behaviour::default()).await;
    let new = Running::start_in(old.directory.clone(), Some("uid-new"), Behaviour::default()).await;
    let (old_paths, new_paths) = (old.paths.clone(), new.paths.clone());
    let _directory = old.directory.clone();
    old.registration_client().await.get_info(InfoRequest {}).await.unwrap();
    new.registration_client().await.get_info(InfoRequest {}).await.unwrap();
    old.stop().await;
    assert!(!old_paths.registration.exists() && !old_paths.dra.exists());
    assert!(new_paths.registration.exists() && new_paths.dra.exists());
    new.registration_client().await.get_info(InfoRequest {}).await.unwrap();
    new.stop().await;
    assert_eq!(fs::read_dir(new_paths.registration.parent().unwrap()).unwrap().count(), 0);
}

#[tokio::test]
async fn without_pod_uid_the_second_waits_for_the_first() {
    let first = Running::start(None, Behaviour::default()).await;
    let directory = first.directory.clone();
    let second = tokio::spawn(Running::start_in(directory, None, Behaviour::default()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!second.is_finished());
    first.registration_client().await.get_info(InfoRequest {}).await.unwrap();
    first.stop().await;
    let second = second.await.unwrap();
    second.registration_client().await.get_info(InfoRequest {}).await.unwrap();
    second.stop().await;
}

/// The kubelet connects as soon as it sees the name.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_socket_that_is_seen_can_be_connected_to_and_so_can_its_endpoint() {
    for round in 0..20 {
        let directory = instance::directory();
        let (path, uid) = (directory.path().to_owned(), format!("uid-{round}"));
        let registry = path.join("plugins_registry");
        let seen = tokio::task::spawn_blocking({
            let (path, uid) = (path.clone(), uid.clone());
            move || {
                let socket = registry.join(format!("gpu.tessera.dev-{uid}-reg.sock"));
                let endpoint = path.join(format!("plugins/gpu.tessera.dev/dra-{uid}.sock"));
                while !socket.exists() {
                    let names = fs::read_dir(&registry).into_iter().flatten().flatten();
                    for name in names.map(|entry| entry.file_name()) {
                        let name = name.to_string_lossy();
                        assert!(name.starts_with('.') || socket.ends_with(&*name), "{name}");
                    }
                }
                UnixStream::connect(&socket).unwrap();
                UnixStream::connect(&endpoint).unwrap();
            }
        });
        let running = Running::start_in(directory, Some(&uid), Behaviour::default()).await;
        seen.await.unwrap();
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_instances_own_probe_works_and_tells_when_a_socket_is_gone() {
    use tessera_dra_kubelet::probe::probe;
    let running = Running::start(None, Behaviour::default()).await;
    probe(&running.paths).await.unwrap();
    assert_eq!(running.calls.load(Ordering::SeqCst), 0, "a probe is no work");
    fs::remove_file(&running.paths.registration).unwrap();
    let error = probe(&running.paths).await.unwrap_err();
    assert!(error.to_string().contains("-reg.sock"), "{error}");
    running.stop().await;
}
