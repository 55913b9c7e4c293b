//! Resets cards (`health.recovery: Reset`) where the driver recommends a reset, or where a fault ends with one.
//!
//! ```text
//! machine, policy ─> a reset helps ─> its taint is out ─> the card's lock, no claim on it
//!                                                             └─> the library is closed ─> nvidia-smi --gpu-reset ─> opened anew
//! ```
//! The driver resets no card that a program has open, and the plugin has all of them open: so it closes its library for as long as the
//! reset takes. Claims of other cards go on; those that are prepared meanwhile wait. Nothing is kept on disk: an instance that ends in
//! between leaves a card that has its fault or has it no more.

mod decide;
mod keeper;

pub use decide::helps;
pub use keeper::{ResetKeeper, ResetPace};
