//! A node with fake cards, a fake API server, and a file system failing on order.

mod cards;
mod mps_host;
mod node;
mod observer;
mod seat;

pub use cards::{Cards, real_uuid};
pub use mps_host::FakeMpsHost;
pub use node::{Node, claim, names, prepare, unprepare};
pub use observer::Seen;
pub use seat::Seat;
pub use tessera_fakes::api::{Api, Behaviour, result};
pub use tessera_fakes::disk::stable::{Loss, Stable};
pub use tessera_fakes::disk::{Disk, Fault, Moment};
