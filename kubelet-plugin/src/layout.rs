//! Static MIG layouts: an administrator's file defines how cards are partitioned, and the plugin applies the file.
//!
//! ```text
//! file, name from the GpuPool ─> LayoutConfig ─┐
//! card's facts ────────────────────────────────┴─> Desired ─┐
//! driver: mode, instances, clients ─────────────────────────┼─> decide ─> journal intent ─> carry out ─> complete
//! claims on the card, under its lock ───────────────────────┘     └─> what is in the way: Event, metric, taint
//! ```
//! A card is changed only while no claim holds any part of the card and no program uses it; until then the card takes no new
//! claims. Only instances made by this driver for a layout are ever destroyed. Partitions of a layout are published as
//! existing partitions, like an administrator's own.

mod announce;
mod carry_out;
mod decide;
mod keeper;
mod look;
mod metrics;
mod record;
mod source;
mod status;

pub use keeper::{CardHold, CardHolder, LayoutKeeper, LayoutPace};
pub use metrics::LayoutMetrics;
pub use status::{CardStatus, LayoutState, LayoutStatus};
