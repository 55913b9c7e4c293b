//! From an emulated machine's driver and `/sys` to the facts that are published.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod facts;
mod mig;
mod pools;
mod running;

use tessera_fakes::machine;
