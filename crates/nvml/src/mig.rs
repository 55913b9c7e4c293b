//! MIG (Multi-Instance GPU) as only the driver's side needs it; what a card offers and has is in
//! [`facts`](tessera_api::facts).

mod mode;
mod profile;

pub use mode::{MigMode, MigModeSwitch};
pub use profile::ComputeInstanceProfile;
