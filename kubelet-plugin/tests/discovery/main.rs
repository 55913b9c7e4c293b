//! Discovery on an emulated machine: from its driver and `/sys` to the published facts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod facts;
mod mig;
mod pools;
mod running;

use tessera_fakes::machine;
