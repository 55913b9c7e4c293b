//! Stands in for `nvidia-smi` on an emulated machine.

fn main() {}
