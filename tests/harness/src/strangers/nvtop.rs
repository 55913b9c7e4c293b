//! nvtop: a well-known monitor.
//!
//! If the system has none with snapshots (3.1 and later), the package of a newer Debian is unpacked into the
//! cache with the needed libraries; nothing is installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{EmulatedMachine, NotFound, StrangersError, expected};
use crate::cache;

/// Its name in messages.
pub const NAME: &str = "nvtop";

/// The Debian release whose package is unpacked.
const SUITE: &str = "trixie";
/// Debian's key for signing releases, from the package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An nvtop with snapshots.
#[derive(Debug)]
pub struct Nvtop {
    program: PathBuf,
    /// Loader and libraries of an unpacked nvtop, in place of the system's.
    unpacked: Option<(PathBuf, PathBuf)>,
}

impl Nvtop {
    /// Finds nvtop on the system or in the cache, or unpacks it into the cache.
    ///
    /// # Errors
    /// [`StrangersError::Cache`] where there is no cache.
    pub fn find() -> Result<Result<Self, NotFound>, StrangersError> {
        let on_the_system = Self { program: "nvtop".into(), unpacked: None };
        if on_the_system.prints_snapshots() {
            return Ok(Ok(on_the_system));
        }
        let directory = cache::cache_directory()?.join(format!("nvtop-{SUITE}"));
        let _lock = match super::lock(&directory) {
            Ok(lock) => lock,
            Err(reason) => return Ok(Err(reason)),
        };
        let found = Self::unpacked_in(&directory);
        if found.as_ref().is_some_and(Self::prints_snapshots) {
            return Ok(found.ok_or_else(|| NotFound(NAME.to_owned())));
        }
        let reason = match unpack(&directory) {
            Err(reason) => reason,
            Ok(()) => match Self::unpacked_in(&directory).filter(Self::prints_snapshots) {
                Some(nvtop) => return Ok(Ok(nvtop)),
                None => "the unpacked package does not run".to_owned(),
            },
        };
        Ok(Err(NotFound(format!(
            "{NAME} that prints snapshots is not there: {reason}. Install nvtop 3.1 or later, or run this on Debian, where \
             it is fetched by apt-get"
        ))))
    }

    fn unpacked_in(directory: &Path) -> Option<Self> {
        let root = directory.join("root/usr");
        let libraries = fs::read_dir(root.join("lib")).ok()?.flatten().map(|entry| entry.path());
        let libraries = libraries.into_iter().find(|path| path.join("libc.so.6").exists())?;
        let folders = ["lib64", "lib"].map(|folder| root.join(folder));
        let loaders = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let loader = loaders.map(|entry| entry.path()).find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
        })?;
        Some(Self { program: root.join("bin/nvtop"), unpacked: Some((loader, libraries)) })
    }

    fn command(&self, libraries: Option<&Path>) -> Command {
        let Some((loader, own)) = &self.unpacked else {
            let mut command = Command::new(&self.program);
            command.envs(libraries.map(|libraries| ("LD_LIBRARY_PATH", libraries)));
            return command;
        };
        let mut path = own.clone().into_os_string();
        if let Some(libraries) = libraries {
            path.push(":");
            path.push(libraries);
        }
        let mut command = Command::new(loader);
        command.arg("--library-path").arg(path).arg(&self.program);
        command
    }

    fn prints_snapshots(&self) -> bool {
        let help = self.command(None).arg("--help").output();
        help.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--snapshot"))
    }

    /// Compares nvtop's output with the machine's facts.
    ///
    /// # Errors
    /// See [`StrangersError`].
    pub fn check(&self, machine: &EmulatedMachine) -> Result<(), StrangersError> {
        let hardware = machine.hardware().to_owned();
        let failed =
            |reason: String| StrangersError::Failed { stranger: NAME, hardware: hardware.clone(), reason };
        let mut command = self.command(Some(&machine.directory().join("lib")));
        // Ignores the user's own settings.
        command.arg("--snapshot").env("XDG_CONFIG_HOME", machine.directory());
        let output = command.output().map_err(|error| failed(format!("it cannot be started: {error}")))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let found: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| failed(format!("no JSON: {error}")))?;
        let differences = expected::differences(&snapshot(&machine.facts()?), &found);
        if differences.is_empty() {
            Ok(())
        } else {
            Err(StrangersError::Different { stranger: NAME, hardware, differences })
        }
    }
}

/// nvtop's output for a machine: texts with units, null where a card does not report a value.
fn snapshot(facts: &Value) -> Value {
    let cards = facts["machine"]["cards"].as_array().cloned().unwrap_or_default();
    let states = facts["state"]["cards"].as_array().cloned().unwrap_or_default();
    let describe = |(card, state): (&Value, &Value)| {
        let board = &card["board"];
        let or = |first: &Value, second: &Value| first.as_u64().or(second.as_u64());
        let text = |number: Option<u64>, unit: &str| {
            number.map_or(Value::Null, |number| json!(format!("{number}{unit}")))
        };
        let busy = state["utilizationGpu"].as_u64().unwrap_or_default();
        let clocks = if busy > 0 { &board["clocksMaxMHz"] } else { &board["clocksMHz"] };
        let mebibytes = |value: &Value| value.as_u64().unwrap_or_default() << 20;
        let processes = state["processes"].as_array().cloned().unwrap_or_default();
        let used: u64 = processes.iter().filter_map(|process| process["usedMemoryBytes"].as_u64()).sum();
        let total = mebibytes(&board["memoryTotalMiB"]);
        // Includes reserved memory, like the first version of NVML's function.
        let used = used + mebibytes(&board["memoryReservedMiB"]);
        json!({
            "device_name": board["name"],
            "gpu_clock": text(clocks["graphics"].as_u64(), "MHz"),
            "mem_clock": text(clocks["memory"].as_u64(), "MHz"),
            "temp": text(or(&state["temperatureCelsius"], &board["temperatureCelsius"]), "C"),
            "fan_speed": null,
            "power_draw": text(or(&state["powerUsageMilliwatts"], &board["powerUsageMilliwatts"]).map(|power| power / 1000), "W"),
            "gpu_util": text(Some(busy), "%"),
            "mem_util": text(Some(100 * used / total.max(1)), "%"),
        })
    };
    cards.iter().zip(&states).map(describe).collect()
}

/// Unpacks nvtop and the needed libraries from Debian's packages, with the system's apt and mirror, but with separate
/// lists and archives.
fn unpack(directory: &Path) -> Result<(), String> {
    let parts = ["lists/partial", "archives/partial", "root"];
    for part in parts {
        fs::create_dir_all(directory.join(part))
            .map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mirrors = run(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]))?;
    let mirror = mirrors
        .lines()
        .find(|mirror| mirror.trim_end_matches('/').ends_with("/debian"))
        .ok_or("apt has no mirror of Debian")?;
    write("sources.list", &format!("deb [signed-by={KEYRING}] {mirror} {SUITE} main\n"))?;
    // An empty list of installed packages, so libraries are unpacked even if the system has them.
    write("status", "")?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        let at = |name: &str| directory.join(name).display().to_string();
        for (option, value) in [
            ("Dir::Etc::SourceList", at("sources.list")),
            ("Dir::Etc::SourceParts", "/dev/null".to_owned()),
            ("Dir::State::Lists", at("lists")),
            ("Dir::State::status", at("status")),
            ("Dir::Cache", directory.display().to_string()),
            ("Dir::Cache::archives", at("archives")),
            ("APT::Install-Recommends", "false".to_owned()),
            ("APT::Sandbox::User", "root".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
            ("Debug::NoLocking", "true".to_owned()),
        ] {
            command.arg("-o").arg(format!("{option}={value}"));
        }
        run(command.args(["--quiet", "--yes"]).args(arguments))
    };
    apt(&["update"])?;
    apt(&["--download-only", "install", NAME])?;
    let archives = fs::read_dir(directory.join("archives")).map_err(|error| error.to_string())?;
    for archive in archives.flatten().map(|entry| entry.path()) {
        if archive.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&archive).arg(directory.join("root")))?;
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", error.trim().lines().last().unwrap_or("it failed")))
}
