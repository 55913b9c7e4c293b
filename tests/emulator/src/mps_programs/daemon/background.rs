//! Starting a daemon in the background.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{LOOK, Mode};
use crate::mps::place::Place;

/// How long the starting program waits for the daemon in the background.
const STARTING: Duration = Duration::from_secs(10);

/// Starts a daemon in the background. Returns once the daemon answers.
///
/// # Errors
/// The daemon cannot be started; the text is for standard error.
pub fn detach(place: &Place, mode: Mode) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    // The daemon's standard error has no reader later, so a file collects it until the daemon is known to run.
    let mut said = tempfile()?;
    let errors = said.try_clone().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.arg("-f").stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    command.args(mode.multi_user.then_some("-M"));
    command.args(mode.static_partitioning.then_some("-S"));
    // SAFETY: setsid is async-signal-safe and touches nothing of this process.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let since = Instant::now();
    loop {
        let is_this = fs::read_to_string(place.pid()).is_ok_and(|pid| pid.trim() == child.id().to_string());
        if is_this && UnixStream::connect(place.privileged()).is_ok() {
            return Ok(());
        }
        if child.try_wait().map_err(|error| error.to_string())?.is_some() {
            let mut text = String::new();
            io::Seek::rewind(&mut said).map_err(|error| error.to_string())?;
            io::Read::read_to_string(&mut said, &mut text).map_err(|error| error.to_string())?;
            return Err(text.trim().to_owned());
        }
        if since.elapsed() > STARTING {
            let _ = child.kill();
            return Err("the daemon does not start".to_owned());
        }
        std::thread::sleep(LOOK);
    }
}

/// A file without a name.
fn tempfile() -> Result<File, String> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(memfd_create("output", MemfdFlags::CLOEXEC).map_err(|error| error.to_string())?.into())
}
