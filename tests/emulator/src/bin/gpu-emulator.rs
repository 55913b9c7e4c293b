//! Makes emulated machines and lets things happen to them.

use std::process::ExitCode;

fn main() -> ExitCode {
    tessera_emulator::cli::main()
}
