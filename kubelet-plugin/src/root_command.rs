//! `kubelet-plugin in-root DIRECTORY PROGRAM ARGUMENT…`: runs a program of the driver in the driver's own root, with the programs
//! and libraries found there. For the plugin itself: its image has nothing but the plugin.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// The name of the subcommand.
pub const SUBCOMMAND: &str = "in-root";

/// Changes the root of this process and becomes the program. Returns only on failure, with a message on stderr.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let [_, root, program, arguments @ ..] = &arguments[..] else {
        eprintln!("usage: kubelet-plugin {SUBCOMMAND} DIRECTORY PROGRAM [ARGUMENT]...");
        return ExitCode::FAILURE;
    };
    let changed = rustix::process::chroot(root.as_os_str()).and_then(|()| rustix::process::chdir("/"));
    match changed {
        Err(error) => eprintln!("cannot make {} the root: {error}", root.display()),
        Ok(()) => {
            let error = Command::new(program).args(arguments).exec();
            eprintln!("cannot run {}: {error}", program.display());
        }
    }
    ExitCode::FAILURE
}
