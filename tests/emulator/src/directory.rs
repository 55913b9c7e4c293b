//! The directory of a machine, with the files of a node with the real driver at the same places.

pub mod capabilities;
pub mod create;
pub mod dev;
pub mod driver_files;
pub mod elf;
mod error;
mod files;
pub mod functions;
mod pci_files;
pub mod proc;
pub mod reset;
pub mod sys;

pub use self::create::create;
pub use self::dev::Nodes;
pub use self::error::CreateError;
