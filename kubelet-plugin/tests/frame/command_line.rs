//! A wrong command line is an error at once.

use std::{net::TcpListener, process::Output};

use crate::plugin::command;

fn run(arguments: &[&str]) -> (Output, String) {
    let output = command().args(arguments).output().unwrap();
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    (output, text)
}

#[test]
fn help_explains_every_option() {
    let output = command().arg("--help").stdout(std::process::Stdio::piped()).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for option in ["--driver-name", "--kubelet-directory", "--host-driver-root", "--http-address", "POD_UID"]
    {
        assert!(text.contains(option), "{option} in\n{text}");
    }
}

#[test]
fn mistakes_are_named() {
    for (arguments, code, says) in [
        (&[][..], 2, "--node-name"),
        (&["--node-name", "Node_1"], 2, "not a DNS subdomain"),
        (&["--node-name", "n", "--nonsense"], 2, "--nonsense"),
        (&["--node-name", "n", "--http-address", "127.0.0.1:0"], 1, "give --kubeconfig a file"),
        (
            &["--node-name", "n", "--http-address", "127.0.0.1:0", "--kubeconfig", "/nowhere/kubeconfig"],
            1,
            "cannot read the kubeconfig /nowhere/kubeconfig",
        ),
        (
            &["probe", "--socket", "/nowhere/probe.sock", "/healthz"],
            1,
            "does not answer at /nowhere/probe.sock",
        ),
        (&["probe", "--socket", "/nowhere/probe.sock", "/metrics"], 2, "/readyz"),
    ] {
        let (output, text) = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}

/// As the plugin starts `nvidia-modprobe`. Only root may change the root.
#[test]
fn programs_run_in_another_root() {
    let within = ["in-root", "/", "/bin/sh", "-c", "pwd; exit 7"];
    let output = command().args(within).stdout(std::process::Stdio::piped()).output().unwrap();
    if output.status.code() == Some(7) {
        assert_eq!(output.stdout, b"/\n");
    } else {
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("cannot make / the root"), "{text}");
    }
    let (output, text) = run(&["in-root", "/nowhere", "/bin/sh"]);
    assert!(!output.status.success() && text.contains("cannot make /nowhere the root"), "{text}");
    let (output, text) = run(&["in-root", "/"]);
    assert!(!output.status.success() && text.contains("usage"), "{text}");
}

#[test]
fn a_path_that_is_too_long_for_sockets_is_named() {
    let directory = format!("/tmp/{}", "k".repeat(100));
    let (output, text) = run(&["--node-name", "n", "--kubelet-directory", &directory]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("choose a shorter --driver-name or --kubelet-directory"), "{text}");
}

#[test]
fn a_probe_socket_in_use_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("probe.sock");
    let _taken = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let (output, text) = run(&["--node-name", "n", "--probe-socket", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("choose another --probe-socket"), "{text}");
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (output, text) = run(&["--node-name", "n", "--http-address", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("choose another --http-address"), "{text}");
}
