use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tessera_harness::cache::cache_directory;
use tessera_harness::progress::{Event, Progress};

const NAME: &str = "cargo-mutants";

/// The version that is used: another one makes other mutants.
const VERSION: &str = "27.1.0";

/// What building it took elsewhere on two processors, from nothing.
const EXPECTED: Duration = Duration::from_secs(150);

/// cargo-mutants in the cache; installed there from crates.io on first use.
pub(super) fn find() -> Result<PathBuf> {
    let folder = cache_directory()?.join(format!("{NAME}-{VERSION}"));
    let program = folder.join("bin").join(NAME);
    if program.exists() {
        return Ok(program);
    }
    let lock = folder.with_extension("lock");
    let locked = File::create(&lock).with_context(|| format!("cannot write {}", lock.display()))?;
    let (progress, tool) = (Progress::terminal(), format!("{NAME} {VERSION}"));
    if locked.try_lock().is_err() {
        progress.report(&Event::WaitingFor { tool: tool.clone() });
        locked.lock().with_context(|| format!("cannot lock {}", lock.display()))?;
    }
    if program.exists() {
        return Ok(program);
    }
    progress.report(&Event::Building { tool: tool.clone(), expected: EXPECTED });
    let start = Instant::now();
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // cargo puts the program into its place when it is whole.
    let output = Command::new(cargo)
        .args(["install", "--quiet", "--locked", "--root"])
        .arg(&folder)
        .arg(format!("{NAME}@{VERSION}"))
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .output()
        .context("cannot run cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo install {NAME}@{VERSION} failed:\n{}", said.trim());
    progress.report(&Event::Built { tool, took: start.elapsed() });
    Ok(program)
}
