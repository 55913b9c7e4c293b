//! Durable record of this node's claims and hardware changes: the only memory of Prepare and Unprepare.
//!
//! ```text
//! <state>/journal/claims/<claim uid>.json    one claim: what it holds
//! <state>/journal/hardware/<id>.json         one change of a card: may outlive the claims that refer to it
//! <state>/journal/locks                      byte-range locks, shared by the plugin's instances
//! ```
//!
//! One small file per record: a corrupt record affects its own claim only, an admin can read and remove one with
//! ordinary tools, and two instances of the plugin can work side by side without a shared offset. The advantage of a
//! single log, one sync for many records, [`Journal`] has too: records written at the same time are synced
//! together (group commit).
//!
//! Records are JSON with a version. Unknown fields are kept, and there is no checksum over the whole.
//!
//! In: records. Out: the same after a restart or crash, or an error for one file. May touch files of the state folder,
//! and has threads for writing; neither hardware nor the API server. Wing `node`: may use `base`, never `scheduling`.

mod boot_id;
mod change;
mod error;
mod file_system;
mod record;
mod store;
mod writer;

pub use boot_id::BootId;
pub use change::{
    HardwareChange, ModeChange, MpsDaemonChange, PartitionChange, PartitionInstances, TimeSliceChange,
};
pub use error::{JournalError, hint};
pub use file_system::{
    FileIdentity, FileSystem, Listed, LocalFileSystem, MAXIMUM_FILE, replace_by, replace_synced,
    replace_unsynced,
};
pub use record::{
    ClaimDevice, ClaimMetadata, ClaimMps, ClaimPartition, ClaimPod, ClaimRecord, ClaimSharing,
    HardwareRecord, Stage,
};
pub use store::{Entry, Journal};
