//! Claims, classes and allocations that no API server would let through, against good slices.

/// One input.
pub fn run(data: &[u8]) {
    super::allocate::run(data, &["claims", "classes", "allocated", "node"]);
}
