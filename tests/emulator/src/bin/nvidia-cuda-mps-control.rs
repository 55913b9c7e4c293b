//! Stands in for `nvidia-cuda-mps-control` on an emulated machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    tessera_emulator::mps_programs::control::main()
}
