use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};
use thiserror::Error;

/// Folders that every container needs, as mount points or by custom.
const FOLDERS: &[&str] = &["dev", "etc", "proc", "root", "run", "sys", "tmp", "var"];

/// Why an image could not be made.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A file that goes into the image cannot be read.
    #[error("cannot read {} for an image: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The archive cannot be written.
    #[error("cannot write the image {}: {source}", .path.display())]
    Write {
        /// The archive.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A program is no ELF file of this machine.
    #[error("{} is no program of this machine: {message}", .path.display())]
    Program {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A library that a program needs is not on this machine.
    #[error("{} needs {library}, which its loader does not find", .path.display())]
    Library {
        /// The program.
        path: PathBuf,
        /// Name of the library.
        library: String,
    },
}

enum Content {
    Bytes(Vec<u8>),
    Link(String),
    Folder,
}

/// An image to be: files in one layer, and how a container of it starts.
pub struct Image {
    reference: String,
    entries: BTreeMap<String, (u32, Content)>,
    entrypoint: Vec<String>,
    environment: Vec<String>,
}

impl Image {
    /// An empty image with this full reference, such as `example.test/name:tag`.
    pub fn new(reference: impl Into<String>) -> Self {
        let mut image = Self {
            reference: reference.into(),
            entries: BTreeMap::new(),
            entrypoint: Vec::new(),
            environment: vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
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
    /// It cannot be read.
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

    /// What a container runs unless its pod says otherwise.
    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets one variable of the environment of its containers.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
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

    /// Writes it as a docker archive (`docker save` form), which containerd imports.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ImageError> {
        let failed = |source| ImageError::Write { path: path.to_owned(), source };
        let layer = self.layer().map_err(failed)?;
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let configuration = json!({
            "architecture": architecture,
            "os": "linux",
            "config": { "Env": self.environment, "Entrypoint": self.entrypoint },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hex(&layer))] },
        })
        .to_string()
        .into_bytes();
        let configuration_name = format!("{}.json", hex(&configuration));
        let manifest =
            json!([{ "Config": configuration_name, "RepoTags": [self.reference], "Layers": ["layer.tar"] }])
                .to_string();
        let mut archive = tar::Builder::new(File::create(path).map_err(failed)?);
        let files: [(&str, &[u8]); 3] = [
            (&configuration_name, &configuration),
            ("layer.tar", &layer),
            ("manifest.json", manifest.as_bytes()),
        ];
        for (name, bytes) in files {
            append(&mut archive, name, 0o644, bytes).map_err(failed)?;
        }
        archive.into_inner().and_then(|file| file.sync_data()).map_err(failed)
    }

    fn layer(&self) -> io::Result<Vec<u8>> {
        let mut layer = tar::Builder::new(Vec::new());
        // A folder comes before what is in it, as its name is the shorter prefix.
        for (place, (mode, content)) in &self.entries {
            match content {
                Content::Bytes(bytes) => append(&mut layer, place, *mode, bytes)?,
                Content::Folder | Content::Link(_) => {
                    let mut header = Header::new_gnu();
                    header.set_mode(*mode);
                    header.set_size(0);
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

fn append<W: io::Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    mode: u32,
    bytes: &[u8],
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, name, bytes)
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io::Read};

    use super::*;

    #[test]
    fn the_archive_names_its_layer_by_digest_and_has_every_folder_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image.tar");
        Image::new("example.test/a:1")
            .bytes("/usr/bin/a", "program", 0o755)
            .bytes("usr/bin/b", "other", 0o755)
            .link("/bin/a", "../usr/bin/a")
            .entrypoint(["/usr/bin/a"])
            .write(&path)
            .unwrap();

        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(File::open(&path).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        let manifest: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        let configuration = &files[manifest[0]["Config"].as_str().unwrap()];
        let configuration: serde_json::Value = serde_json::from_slice(configuration).unwrap();
        assert_eq!(configuration["rootfs"]["diff_ids"][0], format!("sha256:{}", hex(&files["layer.tar"])));
        assert_eq!(configuration["config"]["Entrypoint"][0], "/usr/bin/a");

        let mut seen = BTreeSet::new();
        for entry in tar::Archive::new(files["layer.tar"].as_slice()).entries().unwrap() {
            assert!(seen.insert(entry.unwrap().path().unwrap().display().to_string()));
        }
        for expected in ["usr/", "usr/bin/", "usr/bin/a", "usr/bin/b", "bin/", "bin/a", "tmp/", "proc/"] {
            assert!(seen.contains(expected), "{expected} is not in {seen:?}");
        }
    }
}
