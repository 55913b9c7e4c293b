//! Who has not the key, and what is no message.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::job::{Job, Said, eventually};

/// Nobody without the key starts anything.
#[test]
fn another_key_starts_nothing() {
    let job = Job::new(2, 1);
    fs::write(job.path().join("other-key"), "not the secret of this job").unwrap();
    let said =
        job.run("GPU_RUN_WAIT=2 GPU_RUN_KEY_FILE=other-key srun touch started; echo $?; srun -n1 echo fine");
    assert_eq!(said.out, "1\nfine\n", "{}", said.err);
    assert!(said.err.contains("does not have this job's key"), "{}", said.err);
    assert!(!job.path().join("started").exists());
}

/// A host with another key is none of the job's, and srun says which.
#[test]
fn a_host_of_another_job_gets_no_command() {
    let job = Job::new(2, 1).with("GPU_RUN_WAIT", "10");
    fs::write(job.path().join("other-key"), "not the secret of this job").unwrap();
    // Its first host never comes, so that it waits.
    let hosts = format!("127.0.0.1:1,127.0.0.1:{}", job.ports[1]);
    let mut stranger = job.command(1);
    stranger.env("GPU_RUN_KEY_FILE", "other-key").env("GPU_RUN_HOSTS", hosts).env("GPU_RUN_WAIT", "30");
    let mut stranger = stranger.args(["host", "--", "false"]).spawn().unwrap();
    let said = job.host(0, &["bash", "-c", "srun touch started; echo $?"]).wait();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(said.out, "1\n", "{}", said.err);
    assert!(said.err.contains("is not this job's host"), "{}", said.err);
    assert!(!job.path().join("started").exists());
}

/// A pod's address may have been another job's a moment ago: srun tries again.
#[test]
fn an_address_that_changes_hands_is_tried_again() {
    let job = Job::new(2, 1);
    let stranger = TcpListener::bind(("0.0.0.0", job.ports[1])).unwrap();
    let first = job.host(0, &["bash", "-c", "srun bash -c 'echo $POD'"]);
    let (mut stream, _) = stranger.accept().unwrap();
    stream.read_exact(&mut [0; 40]).unwrap();
    // Its random bytes, and a proof of another key.
    stream.write_all(&[&[7; 32][..], &[0, 0, 0, 16], &[0; 16]].concat()).unwrap();
    drop((stream, stranger));
    let others = job.others();
    let said = first.wait();
    assert_eq!((said.code, said.lines()), (0, vec!["0", "1"]), "{}", said.err);
    assert!(others.into_iter().all(|other| other.wait().code == 0));
}

/// Short, long and wrong bytes, and connections that say nothing: steps run on.
#[test]
fn garbage_on_the_port_does_no_harm() {
    let job = Job::new(2, 1);
    let others = job.others();
    let first = job.host(
        0,
        &["bash", "-c", "srun true; until [ -e disturbed ]; do sleep 0.05; done; srun bash -c 'echo $POD'"],
    );
    let connect = |port: u16| {
        let mut stream = None;
        eventually("a connection", || {
            stream = TcpStream::connect(("127.0.0.1", port)).ok();
            stream.is_some()
        });
        stream.unwrap()
    };
    let mut silent = Vec::new();
    for port in &job.ports {
        for bytes in [&b"GET / HTTP/1.1\r\nHost: there\r\n\r\n0123456789"[..], b"gpu-run1", &[0xff; 100_000]]
        {
            let mut stream = connect(*port);
            // The host may have closed the connection before it has read all.
            let _ = stream.write_all(bytes);
            silent.push(stream);
        }
        // A right beginning, then a message of 4 GiB.
        let mut stream = connect(*port);
        stream.write_all(&[b"gpu-run1", &[7; 32][..], &[0xff; 4], &[0; 64]].concat()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() <= 32 + 4 + 16, "{} bytes for a stranger", answer.len());
        silent.extend((0..20).map(|_| connect(*port)));
    }
    fs::write(job.path().join("disturbed"), "").unwrap();
    let said = first.wait();
    assert_eq!((said.code, said.lines()), (0, vec!["0", "1"]), "{}", said.err);
    assert!(others.into_iter().all(|other| other.wait().code == 0));
}

/// Connections without the key keep nobody out, however slowly they speak.
#[test]
fn slow_connections_make_room() {
    let job = Job::new(2, 1);
    let others = job.others();
    let first = job.host(
        0,
        &[
            "bash",
            "-c",
            "srun touch up; until [ -e disturbed ]; do sleep 0.05; done; srun bash -c 'echo $POD'",
        ],
    );
    eventually("a step", || job.path().join("up").exists());
    let slow: Vec<_> = (0..200).map(|_| TcpStream::connect(("127.0.0.1", job.ports[1])).unwrap()).collect();
    // A byte each second, for longer than srun waits.
    thread::spawn(move || {
        for byte in [&b"gpu-run1"[..], &[7; 31]].concat() {
            for mut stream in &slow {
                // Fails for those that are closed.
                let _ = stream.write_all(&[byte]);
            }
            thread::sleep(Duration::from_secs(1));
        }
    });
    fs::write(job.path().join("disturbed"), "").unwrap();
    let said = first.wait();
    assert_eq!((said.code, said.lines()), (0, vec!["0", "1"]), "{}", said.err);
    assert!(others.into_iter().all(|other| other.wait().code == 0));
}

/// What is wrong in the pod is said before anything runs.
#[test]
fn a_wrong_environment_is_refused() {
    let job = Job::new(2, 1);
    for (name, value, words) in [
        ("GPU_RUN_KEY_FILE", "no-such-file", "failed to read no-such-file"),
        ("GPU_RUN_INDEX", "2", "counted from 0"),
        ("GPU_RUN_TASKS_PER_NODE", "many", "GPU_RUN_TASKS_PER_NODE is no number: many"),
    ] {
        let output = job.command(0).env(name, value).args(["host", "--", "touch", "ran"]).output().unwrap();
        let said = Said::of(&output);
        assert_eq!(said.code, 1);
        assert!(said.err.contains(words), "{}", said.err);
    }
    fs::write(job.path().join("key"), "short").unwrap();
    let output = job.command(0).args(["host", "--", "touch", "ran"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("fewer than 16 bytes"));
    assert!(!job.path().join("ran").exists());
}
