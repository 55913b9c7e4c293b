//! Containers that run as the node's root and write into the pipe directory (which needs CAP_SYS_ADMIN, since it is mounted
//! read-only) harm at most their own card, and not lastingly.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::process::Signal;
use tessera_mps_host::protocol::{Daemon, DaemonState};

use crate::client::Client;
use crate::host::{Host, Mounted, children, kill, state};

/// Makes nested directories, deeper than the longest path.
fn nest(directory: &Path, depth: usize) {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut place = openat(CWD, directory, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&place, "d", Mode::RWXU).unwrap();
        place = openat(&place, "d", flags, Mode::empty()).unwrap();
    }
}

#[tokio::test]
async fn directories_without_end_are_swept() {
    if !tessera_harness::skip::node_tier("directories_without_end_are_swept") {
        return;
    }
    // More than the limit of open files, and more than recursion could handle.
    const DEPTH: usize = 60_000;
    let mut host = Host::without("t4");
    // As on a node; unmounting removes whatever is left in it.
    let _mounted = Mounted::tmpfs(host.directory(), "mode=755");
    host.start();
    let daemon = host.first().await;
    let supervisor = host.supervisor();
    let kept = host.directory().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "").unwrap();
    let plant = |daemon: &Daemon| {
        nest(&daemon.pipe_directory, DEPTH);
        symlink(&kept, daemon.pipe_directory.join("d/link")).unwrap();
    };
    // They are removed before the next daemon of the directory starts, and at the end of the last share.
    plant(&daemon);
    kill(daemon.pid.unwrap(), Signal::KILL);
    let again = host.other_than(daemon.pid).await;
    plant(&again);
    host.release(0, 0).await.unwrap();
    assert!(!again.pipe_directory.parent().unwrap().exists(), "{}", host.log_text());
    assert!(kept.join("file").exists(), "links are not followed");
    assert_eq!(host.supervisor(), supervisor, "it did not die of it");
    host.end_pod();
}

/// A process that looks like a program of MPS, in its own process namespace like one of a container.
struct Impostor(Child);

impl Impostor {
    fn start(host: &Host, program: &str, pipe: &Path) -> Self {
        let path = host.directory().join(program);
        fs::copy("/bin/sleep", &path).unwrap();
        let child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child"])
            .arg(path)
            .args(["--", "1000"])
            .env_clear()
            .env("CUDA_MPS_PIPE_DIRECTORY", pipe)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Id of the process in the namespace.
    fn pid(&self) -> Option<u32> {
        let is_it = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.starts_with("nvidia-cuda-mps"))
        };
        children(self.0.id()).into_iter().find(is_it)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_containers_process_is_taken_for_no_daemon_and_no_server() {
    if !tessera_harness::skip::node_tier("a_containers_process_is_taken_for_no_daemon_and_no_server") {
        return;
    }
    let host = Host::new("t4");
    let daemon = host.first().await;
    let pipe = &daemon.pipe_directory;
    let impostors =
        ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"].map(|name| Impostor::start(&host, name, pipe));
    for impostor in &impostors {
        host.until("it looks like one", || impostor.pid().is_some()).await;
    }
    let pids = impostors.each_ref().map(|impostor| impostor.pid().unwrap());
    let pid_file = pipe.join("nvidia-cuda-mps-control.pid");
    fs::write(&pid_file, pids[0].to_string()).unwrap();
    kill(host.supervisor().unwrap(), Signal::KILL);
    let found = host.daemon("found", |found| found.state == DaemonState::Running).await;
    assert_eq!(found.pid, daemon.pid, "the file names another");
    kill(host.supervisor().unwrap(), Signal::KILL);
    kill(daemon.pid.unwrap(), Signal::KILL);
    let again = host.other_than(daemon.pid).await;
    assert!(!pids.contains(&again.pid.unwrap()));
    let client = Client::start(&host, &again.pipe_directory, &[]);
    assert_eq!(client.device["mpsServer"], again.server_pid.unwrap());
    drop(client);
    host.release(0, 0).await.unwrap();
    assert!(pids.iter().all(|pid| state(*pid) == Some('S')), "and what is no daemon is not ended as one");
}

#[tokio::test]
async fn connections_that_say_nothing_do_not_keep_others_out() {
    let host = Host::new("t4");
    host.list().await;
    let silent: Vec<UnixStream> = (0..300)
        .map(|number| {
            let mut stream = UnixStream::connect(host.directory().join("host.sock")).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"{\"version\":1,").unwrap();
            }
            stream
        })
        .collect();
    host.first().await;
    drop(silent);
    host.release(0, 0).await.unwrap();
}
