//! Stands in for `nvidia-cuda-mps-server` on an emulated machine. Started by the control daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    tessera_emulator::mps_programs::server::main()
}
