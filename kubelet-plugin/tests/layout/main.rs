//! Static layouts on emulated machines: from the file to partitions, through the driver's library.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod combinations;
mod interrupted;
mod node;
mod obstacles;
mod usual;

use tessera_fakes::machine;
