//! See `bodies/claims.rs`.
#![no_main]

#[path = "../bodies/allocate.rs"]
mod allocate;
#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../../allocator/tests/oracle/generator.rs"]
mod generator;
#[path = "../bodies/claims.rs"]
mod claims;

libfuzzer_sys::fuzz_target!(|data: &[u8]| claims::run(data));
