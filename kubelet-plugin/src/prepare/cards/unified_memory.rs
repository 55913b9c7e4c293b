//! The kernel module `nvidia-uvm`, required by every CUDA program. On some nodes nothing loads the module until the first program
//! outside of a container asks for it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::cdi;
use crate::prepare::{PrepareError, PrepareOptions, blocking};

/// Locations below the driver's root where its installer and packages put the program for loading its modules.
const PROGRAMS: [&str; 2] = ["usr/bin/nvidia-modprobe", "usr/sbin/nvidia-modprobe"];
/// Time limit of the program.
const LONGEST: Duration = Duration::from_secs(20);

/// Loads a missing module with the driver's `nvidia-modprobe`, if installed.
///
/// # Errors
/// [`PrepareError::UnifiedMemory`] if the module is still missing afterwards.
pub(in crate::prepare) async fn load(options: &PrepareOptions) -> Result<(), PrepareError> {
    if is_there(options).await? {
        return Ok(());
    }
    let note = match PROGRAMS.iter().find(|path| options.roots.driver.join(path).is_file()) {
        None => format!(
            "and below {} there is no nvidia-modprobe to load it",
            options.roots.host_driver.display()
        ),
        Some(program) => match run(options, program).await {
            Ok(()) => "and nvidia-modprobe has not loaded it".to_owned(),
            Err(error) => format!("and nvidia-modprobe cannot load it from here ({error})"),
        },
    };
    if is_there(options).await? {
        tracing::info!("nvidia-modprobe has loaded the kernel module nvidia-uvm");
        return Ok(());
    }
    Err(PrepareError::UnifiedMemory { note })
}

async fn is_there(options: &PrepareOptions) -> Result<bool, PrepareError> {
    let roots = options.roots.clone();
    blocking::run(move || cdi::has_unified_memory(&roots)).await
}

/// Runs the program, in the driver's root if different from this process's own: the program starts `modprobe` there.
async fn run(options: &PrepareOptions, program: &str) -> Result<(), String> {
    let mut command = match &options.in_driver_root {
        Some(change_root) => {
            let mut command = Command::new(&change_root[0]);
            command.args(&change_root[1..]).arg(PathBuf::from("/").join(program));
            command
        }
        None => Command::new(options.roots.driver.join(program)),
    };
    command.args(["-u", "-c", "0"]).stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(LONGEST, command.output()).await;
    let output = ended.map_err(|_| "it did not end".to_owned())?.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, message.trim().lines().next_back().unwrap_or_default()))
}
