//! A node with fake cards, a fake API server, and a file system that fails on order.

mod api;
mod cards;
mod disk;
mod mps_host;
mod node;
mod observer;
mod seat;

pub use api::{Api, Behaviour, result};
pub use cards::{Cards, real_uuid};
pub use disk::stable::{Loss, Stable};
pub use disk::{Disk, Fault, Moment};
pub use mps_host::FakeMpsHost;
pub use node::{Node, claim, names, prepare, unprepare};
pub use observer::Seen;
pub use seat::Seat;
