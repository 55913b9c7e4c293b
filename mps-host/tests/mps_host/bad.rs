//! Invalid input, and nodes that lack something.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use tessera_mps_host::client::MpsHostError;
use tessera_mps_host::protocol::{ErrorCode, Settings};

use crate::client::Client;
use crate::host::{Host, LONG};

#[tokio::test]
async fn limits_that_make_no_sense_are_refused_and_change_nothing() {
    let host = Host::new("t4");
    let memory = |limit| Settings { memory_limit_mib: Some(limit), ..Settings::default() };
    let percentage = |limit| Settings { active_thread_percentage: Some(limit), ..Settings::default() };
    for settings in [memory(0), memory(u64::MAX), percentage(0), percentage(101), percentage(255)] {
        let error = host.ensure(0, settings).await.unwrap_err();
        assert!(
            matches!(error, MpsHostError::Refused { code: ErrorCode::InvalidRequest, .. }),
            "{settings:?}: {error}"
        );
    }
    assert_eq!(host.list().await, []);
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn a_node_without_mps_says_what_is_missing() {
    let host = Host::new("t4");
    fs::remove_file(host.machine.root().join("bin/nvidia-cuda-mps-control")).unwrap();
    let error = host.ensure(0, Settings::default()).await.unwrap_err();
    assert!(matches!(error, MpsHostError::Refused { code: ErrorCode::ProgramMissing, .. }), "{error}");
    assert!(error.to_string().contains("nvidia-cuda-mps-control"), "{error}");
    assert_eq!(host.list().await, [], "nothing stays of the attempt");
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn a_node_with_half_of_mps_says_what_is_missing() {
    let host = Host::new("t4");
    fs::remove_file(host.machine.root().join("bin/nvidia-cuda-mps-server")).unwrap();
    let error = host.ensure(0, Settings::default()).await.unwrap_err();
    assert!(matches!(error, MpsHostError::Refused { code: ErrorCode::ProgramMissing, .. }), "{error}");
    assert!(error.to_string().contains("there is no nvidia-cuda-mps-server below"), "{error}");
    assert_eq!(host.list().await, []);
    assert_eq!(host.card(0)["computeMode"], 0);
}

#[tokio::test]
async fn a_card_that_somebody_uses_is_not_shared_and_keeps_its_mode() {
    let host = Host::new("t4");
    let user = Client::start(&host, "/nowhere".as_ref(), &[]);
    let error = host.ensure(0, Settings::default()).await.unwrap_err();
    assert!(matches!(error, MpsHostError::Refused { code: ErrorCode::DeviceInUse, .. }), "{error}");
    assert!(error.to_string().contains(&user.pid().to_string()), "{error}");
    assert_eq!(host.card(0)["computeMode"], 0);
    assert!(host.mps_processes().is_empty());
    drop(user);
    host.first().await;
}

#[tokio::test]
async fn a_daemon_that_does_not_start_says_why() {
    let host = Host::new("t4");
    let program = host.machine.root().join("bin/nvidia-cuda-mps-control");
    fs::write(&program, "#!/bin/sh\necho 'the driver is unwell' >&2\nexit 1\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let error = host.ensure(0, Settings::default()).await.unwrap_err();
    assert!(error.to_string().contains("the driver is unwell"), "{error}");
    assert_eq!(host.card(0)["computeMode"], 0);
    assert_eq!(host.list().await, []);
}

#[tokio::test]
async fn a_supervisor_that_is_away_is_waited_for_and_then_named() {
    let mut host = Host::without("t4");
    let error = host.client().list(Duration::from_millis(100)).await.unwrap_err();
    assert!(error.to_string().contains("sharing.mps.enabled"), "{error}");
    let client = host.client();
    let waiting = tokio::spawn(async move { client.list(LONG).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    host.start();
    assert_eq!(waiting.await.unwrap().unwrap(), []);
}

#[tokio::test]
async fn rubbish_is_answered_and_costs_its_own_connection_at_most() {
    let host = Host::new("t4");
    host.list().await;
    let socket = host.directory().join("host.sock");
    let ask = |line: &[u8]| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        // mps-host may close the connection before it has read everything.
        let _ = stream.write_all(line);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = BufReader::new(stream).read_line(&mut answer);
        answer
    };
    for line in [
        "rubbish\n",
        "{}\n",
        "{\"version\":1,\"operation\":{\"destroy\":{}}}\n",
        "{\"version\":1,\"operation\":{\"release\":{\"device\":\"../..\",\"graceSeconds\":0}}}\n",
        "{\"version\":1,\"operation\":{\"release\":{\"device\":\"GPU-1\",\"graceSeconds\":-1}}}\n",
    ] {
        assert!(ask(line.as_bytes()).contains("invalidRequest"), "{line}");
    }
    assert!(ask(b"{\"version\":9,\"operation\":\"list\"}\n").contains("protocol version 9"));
    assert_eq!(ask(&vec![b'x'; 4 << 20]), "", "too long to be read");
    assert_eq!(ask(b"{\"version\":1,\"operation\":\"list\"}"), "", "cut off");
    assert_eq!(host.list().await, []);
}

#[tokio::test]
async fn only_root_may_ask() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root to become another user");
        return;
    }
    let host = Host::new("t4");
    host.list().await;
    let socket = host.directory().join("host.sock");
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // Even if the file's mode permits everybody.
    fs::set_permissions(host.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(4096).decode())";
    let output = Command::new("python3").args(["-c", script]).arg(&socket).uid(65534).gid(65534).output();
    let answer = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(answer.contains("forbidden"), "{answer}");
}

#[test]
fn the_command_line_explains_itself() {
    let program = env!("CARGO_BIN_EXE_mps-host");
    let help = Command::new(program).args(["--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("/run/tessera/mps"));
    assert!(String::from_utf8_lossy(&help.stdout).contains("mps-host check"));
    let wrong = Command::new(program).args(["--directory", "run"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
