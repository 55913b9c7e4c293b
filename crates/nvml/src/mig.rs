//! MIG (Multi-Instance GPU): the types that only calls of the driver need. Profiles and instances are in
//! [`facts`](tessera_api::facts).

mod mode;
mod profile;

pub use mode::{MigMode, MigModeSwitch};
pub use profile::ComputeInstanceProfile;
