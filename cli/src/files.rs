//! Objects from files: YAML and JSON, any number of documents, folders, standard input.

mod document;
mod manifests;
mod object;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Event;
use tessera_api::gpu_pool::GpuPool;
use tessera_api::gpu_quota::GpuQuota;
use tessera_cluster::{Key, Objects};

use crate::foreign::Foreign;
pub use manifests::Manifests;

/// Limit of a file's size in bytes: a wrong or hostile path ends in an error instead of exhausting memory.
const FILE_LIMIT: u64 = 1 << 30;

/// Why files could not be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file or folder could not be read.
    #[error("{file}: {source}")]
    Read {
        /// The path as given.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is too large.
    #[error("{file}: is larger than 1 GiB; split it")]
    TooLarge {
        /// The path as given.
        file: String,
    },
    /// A folder has no files to read.
    #[error("{file}: no file here ends in .yaml, .yml or .json{}", if *.recursive { "" } else { "; folders below are read with -R" })]
    EmptyFolder {
        /// The path as given.
        file: String,
        /// Whether subfolders were read too.
        recursive: bool,
    },
    /// The file has only comments and white space.
    #[error("{file}: has no Kubernetes object in it")]
    Empty {
        /// The path as given, or `standard input`.
        file: String,
    },
    /// A document is invalid.
    #[error("{file}, document {document}, line {line}: {reason}")]
    Document {
        /// The path as given, or `standard input`.
        file: String,
        /// Number of the document in the file, from 1.
        document: usize,
        /// Line in the file, from 1.
        line: usize,
        /// The problem and its remedy.
        reason: String,
    },
}

/// The content of files, with warnings.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The objects.
    pub objects: Objects,
    /// GpuPools.
    pub pools: BTreeMap<Key, GpuPool>,
    /// GpuQuotas.
    pub quotas: BTreeMap<Key, GpuQuota>,
    /// Events about objects.
    pub events: BTreeMap<Key, Event>,
    /// Objects of other drivers, if they are wanted.
    pub foreign: Option<Foreign>,
    /// Objects creating pods, if wanted; pods on no node are then here alone.
    pub manifests: Option<Manifests>,
    /// For standard error: fields unknown to Kubernetes, unused documents.
    pub warnings: Vec<String>,
}

/// Objects wanted from files besides the ones relevant to a pod's allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Besides {
    /// Nothing.
    Nothing,
    /// Objects of other drivers.
    Foreign,
    /// Objects creating pods.
    Manifests,
}

/// The text of a file, and its source.
#[derive(Debug)]
pub struct Text {
    file: String,
    text: String,
}

/// Reads the paths; `-` is standard input.
///
/// # Errors
/// See [`FileError`].
pub fn read(paths: &[PathBuf], recursive: bool) -> Result<Vec<Text>, FileError> {
    let mut texts = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let file = "standard input".to_owned();
            texts.push(Text { text: read_all(std::io::stdin().lock(), &file)?, file });
            continue;
        }
        for path in expand(path, recursive)? {
            let file = path.display().to_string();
            let opened =
                fs::File::open(&path).map_err(|source| FileError::Read { file: file.clone(), source })?;
            texts.push(Text { text: read_all(opened, &file)?, file });
        }
    }
    Ok(texts)
}

/// All objects of the texts. Objects without a namespace get `namespace`. A file without any object gives a warning, or
/// an error if there are no objects at all.
///
/// # Errors
/// See [`FileError`].
pub fn parse(texts: &[Text], namespace: &str, besides: Besides) -> Result<Loaded, FileError> {
    let mut loaded = Loaded {
        foreign: (besides == Besides::Foreign).then(Foreign::default),
        manifests: (besides == Besides::Manifests).then(Manifests::default),
        ..Loaded::default()
    };
    let mut unused = Vec::new();
    let mut empty = Vec::new();
    for Text { file, text } in texts {
        let documents = document::split(text, file)?;
        if documents.is_empty() {
            empty.push(FileError::Empty { file: file.clone() });
        }
        for document in documents {
            object::add(&document, namespace, &mut loaded, &mut unused)?;
        }
    }
    if empty.len() == texts.len()
        && let Some(first) = empty.drain(..).next()
    {
        return Err(first);
    }
    loaded.warnings.extend(empty.iter().map(FileError::to_string));
    if !unused.is_empty() {
        unused.sort();
        unused.dedup();
        loaded.warnings.push(format!("objects of these kinds are ignored: {}", unused.join(", ")));
    }
    Ok(loaded)
}

fn read_all(reader: impl Read, file: &str) -> Result<String, FileError> {
    let mut bytes = Vec::new();
    reader
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| FileError::Read { file: file.to_owned(), source })?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(FileError::TooLarge { file: file.to_owned() });
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        FileError::Document {
            file: file.to_owned(),
            document: 1,
            line: 1 + valid.iter().filter(|byte| **byte == b'\n').count(),
            reason: "not UTF-8 text".to_owned(),
        }
    })
}

/// The file itself, or the files of a folder by name.
fn expand(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, FileError> {
    let failed = |source| FileError::Read { file: path.display().to_string(), source };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let found = entry.path();
            let extension = found.extension().and_then(|extension| extension.to_str());
            // Links to folders are not followed: they may lead back up.
            if kind.is_dir() {
                if recursive {
                    folders.push(found);
                }
            } else if matches!(extension, Some("yaml" | "yml" | "json")) {
                files.push(found);
            }
        }
    }
    if files.is_empty() {
        return Err(FileError::EmptyFolder { file: path.display().to_string(), recursive });
    }
    files.sort();
    Ok(files)
}
