//! Resets cards (`health.recovery: Reset`) where the driver recommends a reset, or where a fault ends with one.
//!
//! ```text
//! machine, policy ─> a reset helps ─> its taint is out ─> the card's lock, no claim on it
//!                                                             └─> the library is closed ─> nvidia-smi --gpu-reset ─> opened anew
//! ```
//! The driver resets no card opened by a program, and the plugin has all cards open. So the plugin closes its library for the
//! duration of the reset. Claims of other cards go on; claims being prepared meanwhile wait. Nothing is kept on disk: an instance
//! killed during a reset leaves a card with or without its fault.

mod decide;
mod keeper;

pub use decide::helps;
pub use keeper::{ResetKeeper, ResetPace};
