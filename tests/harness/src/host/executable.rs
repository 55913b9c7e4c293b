use std::path::PathBuf;

use thiserror::Error;

/// Environment variable with the path of `cluster-host`, if not beside the running program.
pub const EXECUTABLE_VARIABLE: &str = "TESSERA_CLUSTER_HOST";

/// Why the `cluster-host` program was not found.
#[derive(Debug, Error)]
pub enum HostExecutableError {
    /// The path of the running program is unknown.
    #[error("cannot find out the path of the running program: {0}")]
    Current(#[source] std::io::Error),
    /// The program is neither beside the running one nor in the folder above.
    #[error(
        "no program cluster-host in {}: build it with `cargo build -p tessera-harness --bin cluster-host`, or name it in {EXECUTABLE_VARIABLE}",
        .0.display()
    )]
    Missing(PathBuf),
}

/// Finds `cluster-host`: `$TESSERA_CLUSTER_HOST`, else beside the running program, else one folder up (Cargo puts test
/// programs into `deps/`).
///
/// # Errors
/// See [`HostExecutableError`].
pub fn host_executable() -> Result<PathBuf, HostExecutableError> {
    if let Some(path) = std::env::var_os(EXECUTABLE_VARIABLE) {
        let path = PathBuf::from(path);
        return if path.is_file() { Ok(path) } else { Err(HostExecutableError::Missing(path)) };
    }
    let current = std::env::current_exe().map_err(HostExecutableError::Current)?;
    current
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("cluster-host"))
        .find(|path| path.is_file())
        .ok_or_else(|| HostExecutableError::Missing(current.parent().unwrap_or(&current).to_owned()))
}
