//! Third-party cargo tools, installed on first use.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tessera_workspace::cache::cache_directory;

/// A program installed by cargo from the registry of crates.
pub struct CargoTool {
    /// Name of its crate and its program.
    pub name: &'static str,
    /// The pinned version: another one may give other results.
    pub version: &'static str,
    /// More arguments of `cargo install`.
    pub arguments: &'static [&'static str],
    /// Duration of a full build on two processors of another machine.
    pub expected: Duration,
}

impl CargoTool {
    /// Path of its program in the cache; installs the program on first use.
    ///
    /// # Errors
    /// When not installed and impossible to install, for example without a network.
    pub fn find(&self) -> Result<PathBuf> {
        let Self { name, version, .. } = self;
        let folder = cache_directory()?.join(format!("{name}-{version}"));
        let program = folder.join("bin").join(name);
        if program.exists() {
            return Ok(program);
        }
        let lock = folder.with_extension("lock");
        let locked = File::create(&lock).with_context(|| format!("cannot write {}", lock.display()))?;
        if locked.try_lock().is_err() {
            eprintln!("waiting for another process that installs {name} {version}");
            locked.lock().with_context(|| format!("cannot lock {}", lock.display()))?;
        }
        if program.exists() {
            return Ok(program);
        }
        eprintln!("installing {name} {version} (once; about {} s)", self.expected.as_secs());
        let start = Instant::now();
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // cargo moves only a complete program into place.
        let status = Command::new(cargo)
            .args(["install", "--locked", "--root"])
            .arg(&folder)
            .args(self.arguments)
            .arg(format!("{name}@{version}"))
            .env_remove("CARGO_TARGET_DIR")
            .stdin(Stdio::null())
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "`cargo install {name}@{version}` failed");
        eprintln!("installed {name} {version} in {:.1} s", start.elapsed().as_secs_f64());
        Ok(program)
    }
}
