//! A program that uses an emulated card as a CUDA program uses a real one.

use std::process::ExitCode;

fn main() -> ExitCode {
    tessera_emulator::cuda::main()
}
