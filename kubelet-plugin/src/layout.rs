//! Static MIG layouts: an administrator's file says how cards are partitioned, the plugin makes them so.
//!
//! ```text
//! file, name or node label ─> LayoutConfig ─┐
//! card's facts ─────────────────────────────┴─> Desired ─┐
//! driver: mode, instances, clients ──────────────────────┼─> decide ─> journal intent ─> carry out ─> complete
//! claims on the card, under its lock ────────────────────┘     └─> what is in the way: Event, metric, taint
//! ```
//! A card is changed only while no claim holds anything of it and no program uses it. Until then it takes no new claims.
//! Only what this driver made for a layout is ever destroyed. What a layout makes is published as partitions that exist,
//! as an administrator's own are.

mod announce;
mod carry_out;
mod decide;
mod desired;
mod keeper;
mod look;
mod metrics;
mod record;
mod source;
mod status;

pub use keeper::{CardHold, CardHolder, LayoutKeeper, LayoutPace};
pub use metrics::LayoutMetrics;
pub use source::LayoutOptions;
pub use status::{CardStatus, LayoutState, LayoutStatus};
