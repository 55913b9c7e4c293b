use std::{io, path::PathBuf};

use thiserror::Error;

/// Why an image could not be made.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A file for the image cannot be read.
    #[error("failed to read {} for an image: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The image cannot be written.
    #[error("failed to write the image {}: {source}", .path.display())]
    Write {
        /// The archive or the directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The directory for a layout has other files in it.
    #[error("{} is neither empty nor an OCI layout: name another directory, or empty it", .0.display())]
    Occupied(PathBuf),
    /// A program is not an ELF file for an architecture of images.
    #[error("{} is not a program for amd64 or arm64: {message}", .path.display())]
    Program {
        /// The file.
        path: PathBuf,
        /// The problem.
        message: String,
    },
    /// A library needed by a program is not on this machine.
    #[error("{} needs {library}, which is not found on this machine", .path.display())]
    Library {
        /// The program.
        path: PathBuf,
        /// Name of the library.
        library: String,
    },
}
