//! The file that keeps the last known pools and labels over a restart.

use std::io;
use std::path::{Path, PathBuf};

use super::Known;
use tessera_journal::{FileSystem as _, LocalFileSystem, replace_synced};

/// The file and its content.
#[derive(Debug)]
pub(super) struct KnownFile {
    path: PathBuf,
    written: Known,
}

impl KnownFile {
    /// Reads the file. A missing file, or one below something other than a directory, counts as empty.
    ///
    /// # Errors
    /// Why the file cannot be read, with its path. Writing replaces the file.
    pub(super) fn open(path: PathBuf) -> (Self, Result<Known, String>) {
        let known = match read(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(Known::default())
            }
            read => read.map_err(|error| format!("{}: {error}", path.display())),
        };
        let written = known.clone().unwrap_or_default();
        (Self { path, written }, known)
    }

    /// Whether the file holds this.
    pub(super) fn holds(&self, known: &Known) -> bool {
        self.written == *known
    }

    /// Replaces the file's content. Blocks until the new content is on the disk.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn write(&mut self, known: &Known) -> io::Result<()> {
        let text = serde_json::to_vec(known)?;
        if let Some(directory) = self.path.parent() {
            LocalFileSystem.create_directory(directory)?;
        }
        replace_synced(&LocalFileSystem, &self.path, &text)?;
        self.written = known.clone();
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Known> {
    let known: Known = serde_json::from_slice(&LocalFileSystem.read(path)?)?;
    for spec in known.pools.iter().flatten().filter_map(|(_, pool)| pool.spec.as_ref()) {
        spec.offer.check().map_err(io::Error::other)?;
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_was_written_is_read_again_and_garbage_is_no_knowledge() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plugin/gpu-pools.json");
        let (mut file, known) = KnownFile::open(path.clone());
        assert_eq!(known, Ok(Known::default()));
        let tainted = ["0000:3b:00.0".parse().unwrap()].into();
        let kubernetes = Some("v1.37.2".to_owned());
        let some = Known { labels: Some(BTreeMap::new()), pools: Some(BTreeMap::new()), kubernetes, tainted };
        file.write(&some).unwrap();
        assert!(file.holds(&some) && !file.holds(&Known::default()));
        assert_eq!(KnownFile::open(path.clone()).1, Ok(some.clone()));
        assert_eq!(KnownFile::open(path.join("below-a-file")).1, Ok(Known::default()));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        for garbage in [
            "",
            "{",
            "[]",
            r#"{"pools": {}, "more": 1}"#,
            r#"{"pools": {"a": {"uid": "1", "spec": {"x": 1}}}}"#,
        ] {
            std::fs::write(&path, garbage).unwrap();
            let (mut file, known) = KnownFile::open(path.clone());
            assert!(known.unwrap_err().contains("gpu-pools.json"), "{garbage}");
            file.write(&some).unwrap();
            assert_eq!(KnownFile::open(path.clone()).1, Ok(some.clone()));
        }
    }
}
