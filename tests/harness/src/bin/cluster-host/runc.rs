//! The OCI runtime called by containerd: removes the seccomp filter from a container's configuration and executes
//! the real runc. Ours is built without libseccomp, to need no C library, and refuses
//! containers with a filter; but the kubelet requests one for every sandbox.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};
use serde_json::Value;

/// Path of the real runc, beside the link to this program.
const REAL: &str = "runc.real";

pub fn called_as_runc() -> bool {
    std::env::args()
        .next()
        .is_some_and(|name| Path::new(&name).file_name().is_some_and(|name| name == "runc"))
}

pub fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    let own = Path::new(&arguments[0]);
    if let (true, Some(bundle)) = (arguments.iter().any(|word| word == "create"), bundle(&arguments)) {
        drop_filter(Path::new(bundle))?;
    }
    let real = own.with_file_name(REAL);
    let error = Command::new(&real).args(&arguments[1..]).exec();
    Err(error).with_context(|| format!("cannot start {}", real.display()))
}

fn bundle(arguments: &[String]) -> Option<&str> {
    let position = arguments.iter().position(|word| word == "--bundle" || word == "-b")?;
    arguments.get(position + 1).map(String::as_str)
}

fn drop_filter(bundle: &Path) -> Result<()> {
    let path = bundle.join("config.json");
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut configuration: Value =
        serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    let linux = configuration.get_mut("linux").and_then(Value::as_object_mut);
    if linux.is_some_and(|linux| linux.remove("seccomp").is_some()) {
        fs::write(&path, serde_json::to_vec(&configuration)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
