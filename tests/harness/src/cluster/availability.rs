use std::process::Command;

use thiserror::Error;

use super::Cluster;
use crate::host::host_executable;

/// Why the node tier cannot run on this machine.
#[derive(Debug, Error)]
#[error("the node tier of the test cluster cannot run here: {0}")]
pub struct Unavailable(String);

impl Cluster {
    /// Whether the node tier can run here: actually tries namespaces, mounts, overlayfs and links, in a separate
    /// process. With `CI=true` callers treat the reason as a failure, never as a skip.
    ///
    /// # Errors
    /// [`Unavailable`] with the missing part.
    pub fn node_tier_available() -> Result<(), Unavailable> {
        let program = host_executable().map_err(|error| Unavailable(error.to_string()))?;
        let output = Command::new(&program)
            .arg("probe")
            .arg(super::prepare::base_directory())
            .output()
            .map_err(|error| Unavailable(format!("cannot start {}: {error}", program.display())))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(Unavailable(format!("{} {}", text.trim(), errors.trim()).trim().to_owned()))
    }
}
