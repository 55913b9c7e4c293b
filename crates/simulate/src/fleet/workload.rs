//! What arrives on a fleet, and when.

mod list;
mod shape;

use std::time::Duration;

pub(super) use list::Ask;
pub use list::{Line, LineError, ListReader, time};
pub use shape::Shape;
pub(super) use shape::{EPOCH, NAMESPACE};

/// Most pods of a workload.
pub const MOST_PODS: usize = 100_000;

/// Pods, each of a shape.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// What they are, each once.
    pub shapes: Vec<Shape>,
    /// In the order of their arrival.
    pub pods: Vec<Pods>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Its name: that of its line, or of its owner, and a number.
    pub name: String,
    /// Place in [`Workload::shapes`].
    pub shape: usize,
    /// When it arrives.
    pub at: Duration,
    /// How long it runs; `None` for ever.
    pub duration: Option<Duration>,
    /// Those with more go first.
    pub priority: i32,
    /// Those with the same start together: number and size.
    pub gang: Option<(u32, u32)>,
}
