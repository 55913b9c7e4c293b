//! A program using an emulated card as a CUDA program uses a real one.

use std::process::ExitCode;

fn main() -> ExitCode {
    tessera_emulator::cuda::main()
}
