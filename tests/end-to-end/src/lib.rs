//! Tests on the real cluster, and of several crates together; they are in `tests/`.
