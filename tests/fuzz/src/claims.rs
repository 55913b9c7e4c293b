//! Claims, classes and allocations invalid for any API server, against good slices.

/// One input.
pub fn run(data: &[u8]) {
    super::allocate::run(data, &["claims", "classes", "allocated", "node"]);
}
