//! ResourceSlices invalid for any API server: taken apart, indexed, allocated from, explained.

/// One input.
pub fn run(data: &[u8]) {
    super::allocate::run(data, &["slices"]);
}
