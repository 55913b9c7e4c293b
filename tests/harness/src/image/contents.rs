use std::{collections::BTreeMap, fs, io, path::Path};

use tar::{EntryType, Header};

use super::{Architecture, ImageError};

/// Folders needed by every container, as mount points or by convention.
const FOLDERS: &[&str] = &["dev", "etc", "proc", "root", "run", "sys", "tmp", "var"];

enum Content {
    Bytes(Vec<u8>),
    Link(String),
    Folder,
}

/// An image to be written: files in one layer, and the container's configuration.
pub struct Image {
    reference: String,
    entries: BTreeMap<String, (u32, Content)>,
    /// The architecture of its programs; `None` where no program names one.
    pub(super) architecture: Option<Architecture>,
    pub(super) entrypoint: Vec<String>,
    pub(super) environment: Vec<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) compressed: bool,
}

impl Image {
    /// An empty image with this full reference, such as `example.test/name:tag`.
    pub fn new(reference: impl Into<String>) -> Self {
        let mut image = Self {
            reference: reference.into(),
            entries: BTreeMap::new(),
            architecture: None,
            entrypoint: Vec::new(),
            environment: vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
            labels: BTreeMap::new(),
            compressed: false,
        };
        for folder in FOLDERS {
            let mode = if *folder == "tmp" { 0o1777 } else { 0o755 };
            image.entries.insert((*folder).to_owned(), (mode, Content::Folder));
        }
        image
    }

    /// Its reference.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// Adds a file of this machine.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn file(self, place: &str, path: &Path, mode: u32) -> Result<Self, ImageError> {
        let bytes = fs::read(path).map_err(|source| ImageError::Read { path: path.to_owned(), source })?;
        Ok(self.bytes(place, bytes, mode))
    }

    /// Adds a file with this content.
    pub fn bytes(mut self, place: &str, bytes: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.insert(place, mode, Content::Bytes(bytes.into()));
        self
    }

    /// Adds a symbolic link.
    pub fn link(mut self, place: &str, target: &str) -> Self {
        self.insert(place, 0o777, Content::Link(target.to_owned()));
        self
    }

    /// Adds a folder.
    pub fn folder(mut self, place: &str) -> Self {
        self.insert(place, 0o755, Content::Folder);
        self
    }

    /// The command of a container, unless its pod has another.
    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets one variable of the environment of its containers.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Sets a label, for example one of the OCI image specification's annotations.
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Compresses its layer for a registry: smaller, and slower to make.
    pub fn compressed(mut self) -> Self {
        self.compressed = true;
        self
    }

    pub(super) fn contains(&self, place: &str) -> bool {
        self.entries.contains_key(place.trim_start_matches('/'))
    }

    fn insert(&mut self, place: &str, mode: u32, content: Content) {
        let place = place.trim_matches('/').to_owned();
        let folders: Vec<&Path> = Path::new(&place).ancestors().skip(1).collect();
        for folder in folders.into_iter().filter_map(Path::to_str).filter(|folder| !folder.is_empty()) {
            self.entries.entry(folder.to_owned()).or_insert((0o755, Content::Folder));
        }
        self.entries.insert(place, (mode, content));
    }

    pub(super) fn layer(&self) -> io::Result<Vec<u8>> {
        let mut layer = tar::Builder::new(Vec::new());
        // Sorted by name, so a folder comes before its content.
        for (place, (mode, content)) in &self.entries {
            match content {
                Content::Bytes(bytes) => append(&mut layer, place, *mode, bytes)?,
                Content::Folder | Content::Link(_) => {
                    let mut header = header(*mode, 0);
                    if let Content::Link(target) = content {
                        header.set_entry_type(EntryType::Symlink);
                        layer.append_link(&mut header, place, target)?;
                    } else {
                        header.set_entry_type(EntryType::Directory);
                        layer.append_data(&mut header, format!("{place}/"), io::empty())?;
                    }
                }
            }
        }
        layer.into_inner()
    }
}

/// Adds a file owned by root with the epoch as its time, so equal content makes equal archives.
pub(super) fn append<W: io::Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    mode: u32,
    bytes: &[u8],
) -> io::Result<()> {
    let mut header = header(mode, bytes.len() as u64);
    archive.append_data(&mut header, name, bytes)
}

fn header(mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}
