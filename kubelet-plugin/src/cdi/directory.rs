//! The directory of CDI specs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{CdiError, Spec, Vendor};
use tessera_journal::{FileSystem, Listed, replace_by};

/// The directory from which the container runtime reads specs. On most nodes it is in memory and empty after a
/// reboot, so nothing in it is synced.
pub struct Directory {
    path: PathBuf,
    vendor: Vendor,
    file_system: Arc<dyn FileSystem>,
}

/// A file in the directory that this driver wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecFile {
    /// UID of the claim, from the file's name.
    pub uid: String,
}

impl Directory {
    /// The directory `path`, which is created when the first spec is written.
    #[must_use]
    pub fn new(file_system: Arc<dyn FileSystem>, path: PathBuf, vendor: Vendor) -> Self {
        Self { path, vendor, file_system }
    }

    /// The driver's name as a CDI vendor.
    #[must_use]
    pub const fn vendor(&self) -> &Vendor {
        &self.vendor
    }

    /// Writes a claim's spec, replacing an existing one. The container runtime sees either the old or the new one,
    /// complete. Blocks for some file operations.
    ///
    /// # Errors
    /// [`CdiError::Io`]; the spec is then as it was before.
    pub fn write(&self, uid: &str, spec: &Spec) -> Result<(), CdiError> {
        let path = self.path.join(self.vendor.file_name(uid));
        let error = |error| CdiError::io("write", &path, error);
        let mut content = serde_json::to_vec_pretty(spec).map_err(|json| error(io::Error::other(json)))?;
        content.push(b'\n');
        let temporary = self.temporary(uid);
        let replace = || replace_by(&*self.file_system, &temporary, &path, &content);
        match replace() {
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => {
                self.file_system.create_directory(&self.path).and_then(|()| replace())
            }
            written => written,
        }
        .map_err(error)
    }

    /// Reads a claim's spec; `None` if there is none, or if it can't be understood. Blocks for a file read.
    ///
    /// # Errors
    /// [`CdiError::Io`] if it exists and can't be read.
    pub fn read(&self, uid: &str) -> Result<Option<Spec>, CdiError> {
        let path = self.path.join(self.vendor.file_name(uid));
        match self.file_system.read(&path) {
            Ok(content) => Ok(serde_json::from_slice(&content).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CdiError::io("read", path, error)),
        }
    }

    /// The specs of claims that other installations of Tessera on this node have prepared, each with its driver's
    /// name and the claim's UID. Files that can't be read or are no specs are skipped: they give nothing to a
    /// container. Blocks for file reads.
    ///
    /// # Errors
    /// [`CdiError::Io`] if the directory exists and can't be listed.
    pub fn of_other_drivers(&self) -> Result<Vec<(String, String, Spec)>, CdiError> {
        let files = self.list()?;
        let others = files.iter().filter_map(|file| {
            let (driver, uid) = self.vendor.other(&file.name)?;
            let content = self.file_system.read(&self.path.join(&file.name)).ok()?;
            Some((driver.to_owned(), uid.to_owned(), serde_json::from_slice(&content).ok()?))
        });
        Ok(others.collect())
    }

    /// Removes a claim's spec, and a half-written one left by a crash, if they exist. Blocks for some file
    /// operations.
    ///
    /// # Errors
    /// [`CdiError::Io`].
    pub fn remove(&self, uid: &str) -> Result<(), CdiError> {
        self.remove_unfinished(uid)?;
        self.remove_file(&self.path.join(self.vendor.file_name(uid)))
    }

    /// Removes a claim's half-written spec left by a crash. Blocks for a file operation.
    ///
    /// # Errors
    /// [`CdiError::Io`].
    pub fn remove_unfinished(&self, uid: &str) -> Result<(), CdiError> {
        self.remove_file(&self.temporary(uid))
    }

    /// The claims with a spec of this driver here, complete or half-written. Files of others are not read.
    ///
    /// # Errors
    /// [`CdiError::Io`] if the directory exists and can't be listed.
    pub fn claims(&self) -> Result<Vec<SpecFile>, CdiError> {
        let files = self.list()?;
        let mut claims: Vec<SpecFile> = files
            .iter()
            .filter_map(|file| {
                let half = file.name.strip_prefix('.').and_then(|name| name.strip_suffix(".new"));
                self.vendor.uid(half.unwrap_or(&file.name))
            })
            .map(|uid| SpecFile { uid: uid.to_owned() })
            .collect();
        claims.dedup();
        Ok(claims)
    }

    fn list(&self) -> Result<Vec<Listed>, CdiError> {
        match self.file_system.list(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(|error| CdiError::io("list", &self.path, error)),
        }
    }

    fn remove_file(&self, path: &Path) -> Result<(), CdiError> {
        match self.file_system.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CdiError::io("remove", path, error)),
            _ => Ok(()),
        }
    }

    /// One name per claim, used only under the claim's lock. Runtimes read `.json` and `.yaml` only.
    fn temporary(&self, uid: &str) -> PathBuf {
        self.path.join(format!(".{}.new", self.vendor.file_name(uid)))
    }
}
