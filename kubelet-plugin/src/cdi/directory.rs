//! The directories of CDI specs, and of the metadata mounted by them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::metadata::{self, MetadataClaim, RequestMetadata};
use super::{CdiError, Spec, Vendor};
use tessera_journal::{FileSystem, Listed, replace_by};

/// The directory from which the container runtime reads specs. On most nodes the directory is in memory and empty after a
/// reboot, so nothing is synced.
pub struct Directory {
    path: PathBuf,
    /// Where the files of claims' metadata lie, named by claim and request.
    metadata: PathBuf,
    vendor: Vendor,
    file_system: Arc<dyn FileSystem>,
}

/// A file in the directory written by this driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecFile {
    /// UID of the claim, from the file's name.
    pub uid: String,
}

impl Directory {
    /// The directory `path`, created when the first spec is written. The files of claims' metadata go to
    /// `metadata`, a directory with the same path for the container runtime.
    #[must_use]
    pub fn new(file_system: Arc<dyn FileSystem>, path: PathBuf, metadata: PathBuf, vendor: Vendor) -> Self {
        Self { path, metadata, vendor, file_system }
    }

    /// The driver's name as a CDI vendor.
    #[must_use]
    pub const fn vendor(&self) -> &Vendor {
        &self.vendor
    }

    /// Writes a claim's spec, replacing an existing one. The container runtime reads either the old or the new one,
    /// complete. Blocks for some file operations.
    ///
    /// # Errors
    /// [`CdiError::Io`]; the old spec is then unchanged.
    pub fn write(&self, uid: &str, spec: &Spec) -> Result<(), CdiError> {
        self.write_spec(&self.vendor.file_name(uid), spec)
    }

    /// Writes the metadata of the claim's devices: a file for each request, and then the spec that mounts
    /// them. A container with a mounted file keeps the old content. Blocks for some file operations.
    ///
    /// # Errors
    /// [`CdiError::Io`]; [`Directory::remove`] removes the files written so far.
    pub fn write_metadata(
        &self,
        claim: MetadataClaim<'_>,
        requests: &[RequestMetadata<'_>],
    ) -> Result<(), CdiError> {
        for request in requests {
            let name = metadata::file_name(claim.uid, request.request);
            self.replace(&self.metadata, &name, &request.contents(&self.vendor, claim))?;
        }
        let spec = metadata::metadata_spec(&self.vendor, &self.metadata, claim, requests);
        self.write_spec(&self.vendor.metadata_file_name(claim.uid), &spec)
    }

    /// Whether all metadata files of these requests exist for a claim. Blocks for file reads.
    ///
    /// # Errors
    /// [`CdiError::Io`] if a file exists and can't be read.
    pub fn has_metadata<'a>(
        &self,
        uid: &str,
        requests: impl IntoIterator<Item = &'a str>,
    ) -> Result<bool, CdiError> {
        let spec = self.path.join(self.vendor.metadata_file_name(uid));
        let files = requests.into_iter().map(|request| self.metadata.join(metadata::file_name(uid, request)));
        for path in std::iter::once(spec).chain(files) {
            match self.file_system.read(&path) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(CdiError::io("read", path, error)),
            }
        }
        Ok(true)
    }

    fn write_spec(&self, name: &str, spec: &Spec) -> Result<(), CdiError> {
        let error = |error| CdiError::io("write", self.path.join(name), io::Error::other(error));
        let mut content = serde_json::to_vec_pretty(spec).map_err(error)?;
        content.push(b'\n');
        self.replace(&self.path, name, &content)
    }

    /// Replaces a file of a claim, whose lock is held: each file has a single temporary name.
    fn replace(&self, directory: &Path, name: &str, content: &[u8]) -> Result<(), CdiError> {
        let (temporary, path) = (directory.join(temporary(name)), directory.join(name));
        let replace = || replace_by(&*self.file_system, &temporary, &path, content);
        match replace() {
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => {
                self.file_system.create_directory(directory).and_then(|()| replace())
            }
            written => written,
        }
        .map_err(|error| CdiError::io("write", &path, error))
    }

    /// Reads a claim's spec; `None` if missing or not understood. Blocks for a file read.
    ///
    /// # Errors
    /// [`CdiError::Io`] if the spec exists and can't be read.
    pub fn read(&self, uid: &str) -> Result<Option<Spec>, CdiError> {
        let path = self.path.join(self.vendor.file_name(uid));
        match self.file_system.read(&path) {
            Ok(content) => Ok(serde_json::from_slice(&content).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CdiError::io("read", path, error)),
        }
    }

    /// The specs of claims prepared by other installations of Tessera on this node, each with its driver's
    /// name and the claim's UID. Unreadable files and files other than specs are skipped: they give nothing to a
    /// container. Blocks for file reads.
    ///
    /// # Errors
    /// [`CdiError::Io`] if the directory exists and can't be listed.
    pub fn of_other_drivers(&self) -> Result<Vec<(String, String, Spec)>, CdiError> {
        let files = self.list(&self.path)?;
        let others = files.iter().filter_map(|file| {
            let (driver, uid) = self.vendor.other(&file.name)?;
            let content = self.file_system.read(&self.path.join(&file.name)).ok()?;
            Some((driver.to_owned(), uid.to_owned(), serde_json::from_slice(&content).ok()?))
        });
        Ok(others.collect())
    }

    /// Removes a claim's specs and metadata, and half-written ones left by a crash, if they exist. Blocks for some file
    /// operations.
    ///
    /// # Errors
    /// [`CdiError::Io`].
    pub fn remove(&self, uid: &str) -> Result<(), CdiError> {
        self.remove_unfinished(uid)?;
        for name in [self.vendor.file_name(uid), self.vendor.metadata_file_name(uid)] {
            self.remove_file(&self.path.join(name))?;
        }
        self.remove_metadata(uid, |_| true)
    }

    /// Removes a claim's half-written files left by a crash. Blocks for some file operations.
    ///
    /// # Errors
    /// [`CdiError::Io`].
    pub fn remove_unfinished(&self, uid: &str) -> Result<(), CdiError> {
        for name in [self.vendor.file_name(uid), self.vendor.metadata_file_name(uid)] {
            self.remove_file(&self.path.join(temporary(&name)))?;
        }
        self.remove_metadata(uid, |name| finished(name) != name)
    }

    /// Removes the files of a claim's metadata whose names are `chosen`.
    fn remove_metadata(&self, uid: &str, chosen: impl Fn(&str) -> bool) -> Result<(), CdiError> {
        for file in self.list(&self.metadata)? {
            let of_claim = finished(&file.name).split_once('_').is_some_and(|(of, _)| of == uid);
            if of_claim && chosen(&file.name) {
                self.remove_file(&self.metadata.join(&file.name))?;
            }
        }
        Ok(())
    }

    /// The claims with a spec or metadata of this driver here, complete or half-written. Files of others are not read.
    ///
    /// # Errors
    /// [`CdiError::Io`] if the directory exists and can't be listed.
    pub fn claims(&self) -> Result<Vec<SpecFile>, CdiError> {
        let (specs, metadata) = (self.list(&self.path)?, self.list(&self.metadata)?);
        let specs = specs.iter().filter_map(|file| self.vendor.uid(finished(&file.name)));
        let metadata = metadata
            .iter()
            .filter_map(|file| Some(finished(&file.name).strip_suffix(".json")?.split_once('_')?.0));
        let claims: BTreeSet<&str> = specs.chain(metadata).collect();
        Ok(claims.into_iter().map(|uid| SpecFile { uid: uid.to_owned() }).collect())
    }

    fn list(&self, directory: &Path) -> Result<Vec<Listed>, CdiError> {
        match self.file_system.list(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(|error| CdiError::io("list", directory, error)),
        }
    }

    fn remove_file(&self, path: &Path) -> Result<(), CdiError> {
        match self.file_system.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CdiError::io("remove", path, error)),
            _ => Ok(()),
        }
    }
}

/// The name of a file while being written. Runtimes read `.json` and `.yaml` only.
fn temporary(name: &str) -> String {
    format!(".{name}.new")
}

/// The final name of a half-written file; of a finished one its own.
fn finished(name: &str) -> &str {
    name.strip_prefix('.').and_then(|name| name.strip_suffix(".new")).unwrap_or(name)
}
