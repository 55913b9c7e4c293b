//! The driver's own tool, for work without a function in NVML. Blocks: for blocking threads only.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tessera_nvml::DriverRoot;

/// Directories below the driver root where `nvidia-smi` may be installed.
const DIRECTORIES: &[&str] =
    &["usr/bin", "bin", "usr/local/bin", "opt/bin", "usr/local/nvidia/bin", "run/current-system/sw/bin"];

/// Where a system has the loader of its programs.
const LOADERS: &[&str] = &["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"];

/// The most characters quoted from the tool.
const MOST_SAID: usize = 300;

/// `nvidia-smi` of an installed driver.
#[derive(Clone, Debug, Default)]
pub struct NvidiaSmi {
    installed: DriverRoot,
    in_root: Option<[OsString; 3]>,
}

/// Why the tool did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum NvidiaSmiError {
    /// Not installed.
    #[error("there is no nvidia-smi below {}", root.display())]
    Missing {
        /// The searched folder.
        root: PathBuf,
    },
    /// Cannot be started.
    #[error("cannot run {}: {source}", program.display())]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Killed, for not having ended in time.
    #[error("nvidia-smi does not end within {0:?}")]
    Late(Duration),
    /// The exit status could not be read.
    #[error("cannot wait for nvidia-smi: {0}")]
    Lost(io::Error),
    /// Ended with an error.
    #[error("nvidia-smi: {said} ({status})")]
    Failed {
        /// Its words, shortened.
        said: String,
        /// Its exit status.
        status: ExitStatus,
    },
}

impl NvidiaSmi {
    /// The tool of this installation, run with this process's own root.
    #[must_use]
    pub fn new(installed: DriverRoot) -> Self {
        Self { installed, in_root: None }
    }

    /// Runs the tool in the driver's root, by `in_root` (a program and its arguments), where the root is a whole system and not
    /// just the driver's files: there the tool finds the driver's daemons, such as `nvidia-persistenced`.
    #[must_use]
    pub fn in_its_root(self, in_root: Option<[OsString; 3]>) -> Self {
        let has_loader = LOADERS.iter().any(|loader| self.installed.find(Path::new(loader)).is_some());
        Self { in_root: in_root.filter(|_| has_loader), ..self }
    }

    /// Runs the tool, and returns its output.
    ///
    /// # Errors
    /// [`NvidiaSmiError`]. After `patience` the tool is killed.
    pub fn run(&self, arguments: &[&str], patience: Duration) -> Result<String, NvidiaSmiError> {
        let (mut command, program) = self.command()?;
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| NvidiaSmiError::NotStarted { program, source })?;
        let since = Instant::now();
        while child.try_wait().map_err(NvidiaSmiError::Lost)?.is_none() {
            if since.elapsed() > patience {
                let _ = child.kill();
                // A program can hang in the driver for ever.
                std::thread::spawn(move || child.wait());
                return Err(NvidiaSmiError::Late(patience));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = child.wait_with_output().map_err(NvidiaSmiError::Lost)?;
        let (said, status) = (said(&output), output.status);
        if status.success() { Ok(said) } else { Err(NvidiaSmiError::Failed { said, status }) }
    }

    fn command(&self) -> Result<(Command, PathBuf), NvidiaSmiError> {
        let root = &self.installed.path;
        let named = self.installed.first.iter().map(PathBuf::as_path);
        let mut paths =
            named.chain(DIRECTORIES.iter().map(Path::new)).map(|directory| directory.join("nvidia-smi"));
        let found = paths.find_map(|path| Some((self.installed.find(&path)?, path)));
        let (program, path) = found.ok_or_else(|| NvidiaSmiError::Missing { root: root.clone() })?;
        if let Some([own, arguments @ ..]) = &self.in_root {
            let mut command = Command::new(own);
            command.args(arguments).arg(Path::new("/").join(path));
            return Ok((command, program));
        }
        let mut command = Command::new(&program);
        if let Ok(library) = self.installed.find_library()
            && root != Path::new("/")
        {
            // This library alone: the libc beside may be another system's, of no use to this one's loader.
            command.env("LD_PRELOAD", library);
        }
        Ok((command, program))
    }
}

fn said(output: &Output) -> String {
    let said = [&*output.stdout, &*output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ").chars().take(MOST_SAID).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A root with this script as `nvidia-smi`.
    fn root(script: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("usr/bin/nvidia-smi");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        root
    }

    fn run(root: &Path, patience: Duration) -> Result<String, String> {
        let tool = NvidiaSmi::new(DriverRoot::from(root));
        tool.run(&["--gpu-reset", "-i", "0000:3b:00.0"], patience).map_err(|error| error.to_string())
    }

    #[test]
    fn its_words_are_told_whatever_comes_of_it() {
        let long = Duration::from_secs(20);
        let done = root("echo; echo \"$@\"; echo All done.");
        assert_eq!(run(done.path(), long).unwrap(), "--gpu-reset -i 0000:3b:00.0 All done.");
        let refused = root("echo GPU 0 is in use.; echo >&2 Sorry.; exit 19");
        assert_eq!(
            run(refused.path(), long).unwrap_err(),
            "nvidia-smi: GPU 0 is in use. Sorry. (exit status: 19)"
        );
        let hangs = root("exec sleep 60");
        let since = Instant::now();
        assert!(run(hangs.path(), Duration::from_millis(50)).unwrap_err().contains("does not end"));
        assert!(since.elapsed() < Duration::from_secs(10));
        assert!(run(Path::new("/nowhere"), long).unwrap_err().starts_with("there is no nvidia-smi below"));
    }

    #[test]
    fn only_a_root_with_a_loader_is_a_system_of_its_own() {
        let with = root("");
        let in_root = || Some(["/bin/echo".into(), "in-root".into(), "DIRECTORY".into()]);
        let run = |root: &Path| {
            let tool = NvidiaSmi::new(DriverRoot::from(root)).in_its_root(in_root());
            tool.run(&["-r"], Duration::from_secs(20)).unwrap()
        };
        assert_eq!(run(with.path()), "", "run as it is");
        for loader in LOADERS {
            let loader = with.path().join(loader);
            fs::create_dir_all(loader.parent().unwrap()).unwrap();
            fs::write(loader, "").unwrap();
        }
        assert_eq!(run(with.path()), "in-root DIRECTORY /usr/bin/nvidia-smi -r");
    }
}
