//! See `bodies/selectors.rs`.
#![no_main]

#[path = "../bodies/selectors.rs"]
mod selectors;

libfuzzer_sys::fuzz_target!(|data: &[u8]| selectors::run(data));
