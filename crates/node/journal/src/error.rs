use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// An error of reading or writing the journal. The previous content is untouched.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// An error of the operating system: a full or read-only disk, missing rights, a failing disk.
    #[error("cannot {action} {path}: {source}{}", hint(.source))]
    Io {
        /// The attempted action, as a verb: `write`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// A record is not JSON of the expected form: truncated by a power failure, damaged by a failing disk, or edited.
    #[error(
        "journal record {path} cannot be read: {reason}. It is left as it is. Its claim's containers keep running, and \
         their devices are kept from other claims; the record is made again when another pod with the claim starts, and \
         removed when the pods that use the claim have ended"
    )]
    Corrupt {
        /// The record's file.
        path: PathBuf,
        /// The record's defect.
        reason: String,
    },
    /// A record was written by a newer Tessera, in a newer form.
    #[error(
        "journal record {path} has version {version}, this Tessera knows versions up to {known}. It is left as it is: \
         run the newer Tessera again, or drain the node before going back"
    )]
    Newer {
        /// The record's file.
        path: PathBuf,
        /// The record's version.
        version: u64,
        /// The newest version this build reads.
        known: u64,
    },
    /// The boot id could not be read.
    #[error("cannot tell this boot from others by {path}: {reason}. Check --proc-root")]
    BootId {
        /// The file with the boot id.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// The thread of the journal's writer has ended, which happens only when it panics.
    #[error("the journal's writer is gone; restart the plugin (this is a bug in Tessera)")]
    WriterGone,
}

impl JournalError {
    /// An error of using a file of the journal or beside it.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { action, path: path.into(), source: Arc::new(source) }
    }

    /// Whether the record itself is bad, not the disk or this build: its content is lost, so the record may be replaced.
    #[must_use]
    pub const fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }
}

/// An admin's remedy for an operating system error.
#[must_use]
pub fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space (or inodes) there, everything recorded so far is intact"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; the file system is read-only, often after a disk error: see the kernel log, repair it and mount it \
             writable; everything recorded so far is intact"
        }
        io::ErrorKind::PermissionDenied => {
            "; the plugin must run as root with this directory mounted writable"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_admin_can_do_is_said() {
        for (kind, part) in [
            (io::ErrorKind::StorageFull, "; free space (or inodes) there"),
            (io::ErrorKind::QuotaExceeded, "; free space (or inodes) there"),
            (io::ErrorKind::ReadOnlyFilesystem, "; the file system is read-only"),
            (io::ErrorKind::PermissionDenied, "; the plugin must run as root"),
        ] {
            let error = JournalError::io("write", "/state/claims/u.json", kind.into()).to_string();
            assert!(
                error.starts_with("cannot write /state/claims/u.json: ") && error.contains(part),
                "{error}"
            );
        }
        let error = JournalError::io("write", "/x", io::ErrorKind::Interrupted.into()).to_string();
        assert!(!error.contains(';'), "{error}");
    }
}
