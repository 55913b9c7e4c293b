//! A shell of somebody who has cloned the repository.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tessera_harness::{cache::cache_directory, workspace};
use tokio::{process::Command, time::timeout};

use crate::{
    blocks::{Block, Code},
    exceptions::typed,
};

/// Of `cargo xtask cluster`.
const RECORD_VARIABLE: &str = "TESSERA_DEVELOPMENT_CLUSTER";

/// For one block: several times as long as the demo takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Ends the cluster when it is dropped.
pub struct Shell {
    /// `cargo xtask` compiles and starts it for the commands of the pages.
    tasks: PathBuf,
    /// Home directory, with the files of this test.
    home: TempDir,
}

impl Shell {
    /// Ends the cluster of an interrupted run.
    pub fn new(programs: &Path) -> Self {
        let shell = Self { tasks: programs.join("tessera-tasks"), home: tempfile::tempdir().unwrap() };
        let ended = shell.end_cluster();
        assert!(ended.as_ref().is_ok_and(|output| output.status.success()), "{ended:?}");
        shell.remember(&format!(
            "unset BASH_ENV\ncargo() {{ [ \"$1\" = xtask ] && '{}' \"${{@:2}}\"; }}\n\
             trap 'echo \"${{0##*/}}:$LINENO: exit code $?: $BASH_COMMAND\"; exit 1' ERR",
            shell.tasks.display()
        ));
        shell
    }

    /// The cluster's directory.
    pub fn cluster(&self) -> PathBuf {
        fs::read_to_string(record()).unwrap().trim().into()
    }

    /// Types a block.
    ///
    /// # Panics
    /// A command fails: with page, line and the block's output.
    pub async fn run(&self, block: &Block) {
        let script = self.home.path().join(Path::new(block.page).file_name().unwrap());
        fs::write(&script, lines(block)).unwrap();
        let log = self.home.path().join("log");
        let output = File::create(&log).unwrap();
        let mut bash = Command::new("bash");
        bash.arg(&script)
            .current_dir(workspace::root())
            .env("HOME", self.home.path())
            .env("BASH_ENV", self.environment())
            .env("TESSERA_CACHE", cache_directory().unwrap())
            .env(workspace::BUILT_VARIABLE, "1")
            .env(RECORD_VARIABLE, record())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .kill_on_drop(true);
        let ended = timeout(LIMIT, bash.status()).await;
        let said = fs::read_to_string(&log).unwrap();
        let place = format!("{}:{}", block.page, block.line);
        let succeeded = ended.unwrap_or_else(|_| panic!("{place}: not in time\n{said}")).unwrap().success();
        assert!(succeeded, "{place}: this block fails\n{said}");
        // The page says: type them.
        for export in said.lines().filter(|line| line.starts_with("  export ")) {
            self.remember(export);
        }
    }

    /// The file that each block begins with.
    fn environment(&self) -> PathBuf {
        self.home.path().join("environment")
    }

    fn remember(&self, line: &str) {
        let file = OpenOptions::new().create(true).append(true).open(self.environment());
        writeln!(file.unwrap(), "{line}").unwrap();
    }

    fn end_cluster(&self) -> io::Result<Output> {
        let mut down = std::process::Command::new(&self.tasks);
        down.args(["cluster", "down"]).env(RECORD_VARIABLE, record()).output()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Ended by the pages already, or the test has failed for another reason.
        let _ = self.end_cluster();
    }
}

/// Where this test's cluster is remembered: the same for each run.
fn record() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cluster-of-the-pages")
}

/// A script with each line where the page has it, so that the shell's errors name the page's lines.
fn lines(block: &Block) -> String {
    let mut script = String::new();
    let mut add = |line: usize, text: &str| {
        let missing = line - 1 - script.matches('\n').count();
        script += &"\n".repeat(missing);
        script += text;
        script += "\n";
    };
    match &block.code {
        Code::Commands(commands) => {
            for command in commands {
                add(command.line, &typed(block.page, command));
            }
        }
        Code::Manifests(text) => add(block.line, &format!("kubectl apply -f - <<'END'\n{text}END")),
    }
    script
}
