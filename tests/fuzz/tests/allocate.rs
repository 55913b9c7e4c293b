//! Broken slices and claims, for a few seconds each: `TESSERA_FUZZ_SECONDS` says how many.

use tessera_fuzz::{claims, slices, time_boxed};

#[test]
fn slices_end_well() {
    time_boxed::run("slices", &[&[7; 2_000]], &[], slices::run);
}

#[test]
fn claims_end_well() {
    time_boxed::run("claims", &[&[7; 2_000]], &[], claims::run);
}
