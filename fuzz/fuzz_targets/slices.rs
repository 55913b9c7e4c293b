//! See `bodies/slices.rs`.
#![no_main]

#[path = "../bodies/allocate.rs"]
mod allocate;
#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../../allocator/tests/oracle/generator.rs"]
mod generator;
#[path = "../bodies/slices.rs"]
mod slices;

libfuzzer_sys::fuzz_target!(|data: &[u8]| slices::run(data));
