//! MIG (Multi-Instance GPU): types for calls of the driver only. Profiles and instances are in
//! [`facts`](tessera_api::facts).

mod mode;
mod profile;

pub use mode::{MigMode, MigModeSwitch};
pub use profile::ComputeInstanceProfile;
