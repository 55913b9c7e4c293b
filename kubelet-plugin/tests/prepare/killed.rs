//! A real process, killed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_journal::{FileSystem, Listed, LocalFileSystem};

use crate::support::{Node, claim, prepare, unprepare};

const DIRECTORY: &str = "TESSERA_TEST_KILLED_DIRECTORY";
const NUMBER: &str = "TESSERA_TEST_KILLED_AT";

/// Kills its own process before the n-th effect.
struct Fatal {
    left: AtomicUsize,
}

impl Fatal {
    fn effect(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            kill(Pid::this(), Signal::SIGKILL).unwrap();
        }
    }
}

impl FileSystem for Fatal {
    fn create_directory(&self, path: &Path) -> std::io::Result<()> {
        self.effect();
        LocalFileSystem.create_directory(path)
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> std::io::Result<fs::File> {
        self.effect();
        LocalFileSystem.create(path, bytes)
    }

    fn sync(&self, file: &fs::File, path: &Path) -> std::io::Result<()> {
        self.effect();
        LocalFileSystem.sync(file, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.effect();
        LocalFileSystem.rename(from, to)
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        self.effect();
        LocalFileSystem.remove(path)
    }

    fn sync_directory(&self, path: &Path) -> std::io::Result<()> {
        self.effect();
        LocalFileSystem.sync_directory(path)
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        LocalFileSystem.read(path)
    }

    fn list(&self, path: &Path) -> std::io::Result<Vec<Listed>> {
        LocalFileSystem.list(path)
    }
}

/// In the child process: prepares a claim and unprepares it, or dies on the way.
async fn live_and_die(directory: &Path) {
    let number = std::env::var(NUMBER).unwrap().parse().unwrap();
    let node = Node::at(directory, 2);
    node.api.allocate(&claim("a"), &[("gpus", "gpu-01-00"), ("gpus", "gpu-02-00")]);
    let fatal = Arc::new(Fatal { left: AtomicUsize::new(number) });
    let preparer = node.try_start(fatal).await.unwrap();
    prepare(&preparer, &claim("a")).await.unwrap();
    unprepare(&preparer, &claim("a")).await.unwrap();
}

/// Starts itself again as the process to kill.
#[tokio::test(flavor = "multi_thread")]
async fn killed_before_every_effect_of_a_claims_life() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return live_and_die(Path::new(&directory)).await;
    }
    let mut killed = 0;
    for number in 1.. {
        let node = Node::new(2);
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::killed_before_every_effect_of_a_claims_life"])
            .env(DIRECTORY, node.path())
            .env(NUMBER, number.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        if ended.success() {
            break;
        }
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(ended.signal(), Some(9), "{ended}");
        killed += 1;
        let other = claim("other");
        node.api.allocate(&claim("a"), &[("gpus", "gpu-01-00"), ("gpus", "gpu-02-00")]);
        node.api.allocate(&other, &[("gpus", "gpu-02-00")]);
        let preparer = node.start().await;
        preparer.restore_specs().await.unwrap();
        node.settled();
        prepare(&preparer, &claim("a")).await.unwrap();
        unprepare(&preparer, &claim("a")).await.unwrap();
        prepare(&preparer, &other).await.unwrap();
        assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-other"]);
    }
    assert!(killed > 7, "{killed}");
}
