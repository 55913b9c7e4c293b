//! The directory, outside the clone, where builds are kept for later runs.

use std::{env, path::PathBuf};

use thiserror::Error;

/// Environment variable with the cache directory.
pub const CACHE_VARIABLE: &str = "TESSERA_CACHE";

/// Why there is no cache directory.
#[derive(Debug, Error)]
pub enum CacheError {
    /// Neither the variable nor a home directory is set.
    #[error("no place for the cache: set {CACHE_VARIABLE}, XDG_CACHE_HOME or HOME to a directory")]
    NoPlace,
    /// The directory cannot be created.
    #[error("cannot make the cache directory {}: {source}", .path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// `$TESSERA_CACHE`, else `$XDG_CACHE_HOME/tessera`, else `~/.cache/tessera`; created if missing.
///
/// # Errors
/// See [`CacheError`].
pub fn cache_directory() -> Result<PathBuf, CacheError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = set(CACHE_VARIABLE)
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("tessera")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/tessera")))
        .ok_or(CacheError::NoPlace)?;
    let create = |source| CacheError::Create { path: path.clone(), source };
    std::fs::create_dir_all(&path).map_err(create)?;
    path.canonicalize().map_err(create)
}
