//! `gpu-run`: runs the steps of a job in all its pods, by Slurm's words.
//!
//! One program under several names, chosen by its name at the start: `srun`, `scontrol`, `module`, and `gpu-run`
//! itself, the main process of each pod. Each pod's `gpu-run host` listens; `srun` connects to all of them, sends the command
//! and gets its output. `srun` keeps to Slurm's documentation (srun(1), 25.05), with one difference: a step ends with its
//! first failure, as with Slurm's `--kill-on-bad-exit`.

mod channel;
mod environment;
mod gpus;
mod groups;
mod host;
mod host_list;
mod install;
mod job;
mod layout;
mod message;
mod process;
mod scontrol;
mod srun;

use std::{env, ffi::OsString, path::Path, process::ExitCode};

const USAGE: &str = "\
gpu-run install DIR           copies this program to DIR/bin, with the names srun, scontrol and module
gpu-run host -- COMMAND…      a pod's main process: on index 0 runs the command, on the others serves steps until it ends
gpu-run srun|scontrol|module  as under that name

`kubectl gpu run` writes pods that use it.";

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    let mut name = name.unwrap_or_default();
    let mut arguments: Vec<OsString> = arguments.collect();
    if !matches!(name.as_str(), "srun" | "scontrol" | "module") && !arguments.is_empty() {
        name = arguments.remove(0).to_string_lossy().into_owned();
    }
    let result = match name.as_str() {
        "srun" => srun::main(arguments),
        "scontrol" => scontrol::main(&arguments),
        "module" => {
            eprintln!("module: the software is in the pod's image; nothing is loaded");
            Ok(0)
        }
        "host" => host::main(arguments),
        process::BECOME => process::become_command(&arguments),
        "install" => install::main(&arguments),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(0)
        }
        "--version" => {
            println!("gpu-run {}", env!("CARGO_PKG_VERSION"));
            Ok(0)
        }
        _ => Err(anyhow::anyhow!("this is used as\n{USAGE}")),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{name}: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
