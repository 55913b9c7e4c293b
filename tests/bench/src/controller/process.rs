//! The controller as a process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use tessera_harness::workspace;

/// A running controller; it is killed when dropped.
pub struct Controller {
    child: Child,
}

impl Controller {
    /// Builds the controller as in the image, or as for tests, and returns its path.
    pub fn build(unoptimised: bool) -> Result<PathBuf> {
        let (profile, folder) = if unoptimised { ("dev", "debug") } else { ("node", "node") };
        workspace::build(&["--profile", profile, "-p", "tessera-controller", "--bin", "controller"])?;
        Ok(workspace::target()?.join(folder).join("controller"))
    }

    /// Starts the controller. `addresses` are for metrics and for the fleet page.
    pub fn start(program: &Path, kubeconfig: &Path, addresses: [&str; 2]) -> Result<Self> {
        let child = Command::new(program)
            // As in the chart.
            .env("MALLOC_ARENA_MAX", "1")
            .args([
                "--http-address",
                addresses[0],
                "--fleet-address",
                addresses[1],
                "--pod-name",
                "bench",
                "--log-level",
                "warn",
            ])
            // As in the chart; only the stand-in has such pods.
            .args([
                "--namespace",
                "tessera-system",
                "--plugins",
                "app.kubernetes.io/component=kubelet-plugin",
            ])
            // Nobody was given the cards before.
            .args(["--handover", "1"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self { child })
    }

    /// Time of processors so far, in ms: user and system.
    pub fn processor_ms(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = stat.rsplit_once(')').context("no name in /proc/PID/stat")?;
        let ticks: u64 =
            fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        // USER_HZ is 100 on every Linux with Rust.
        Ok(ticks as f64 * 10.0)
    }

    /// Resident memory now.
    pub fn resident_mib(&self) -> Result<f64> {
        self.status_mib("VmRSS:")
    }

    /// Peak of resident memory.
    pub fn most_resident_mib(&self) -> Result<f64> {
        self.status_mib("VmHWM:")
    }

    fn status_mib(&self, name: &str) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib: f64 = line.context("the controller has ended")?.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
