//! The fuzz targets of `fuzz/`, for a few seconds each: `TESSERA_FUZZ_SECONDS` says how many.

#[path = "../../fuzz/bodies/allocate.rs"]
mod allocate;
#[path = "../../fuzz/bodies/choices.rs"]
mod choices;
#[path = "../../fuzz/bodies/claims.rs"]
mod claims;
#[path = "oracle/generator.rs"]
mod generator;
#[path = "../../fuzz/bodies/slices.rs"]
mod slices;
#[path = "../../fuzz/time_boxed.rs"]
mod time_boxed;

#[test]
fn slices_end_well() {
    time_boxed::run("slices", &[&[7; 2_000]], &[], slices::run);
}

#[test]
fn claims_end_well() {
    time_boxed::run("claims", &[&[7; 2_000]], &[], claims::run);
}
