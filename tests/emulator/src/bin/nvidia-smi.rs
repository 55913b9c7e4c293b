//! Stands in for `nvidia-smi` on an emulated machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    tessera_emulator::smi::main()
}
