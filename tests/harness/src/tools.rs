//! The programs of a cluster: pinned Go modules under `tests/tools/`, built once into the cache.

mod build;
mod module;

use std::path::{Path, PathBuf};

pub use build::ToolError;
pub(crate) use build::go;
pub use module::Module;

use crate::progress::Progress;

/// Paths of built programs.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Tools {
    directories: std::collections::BTreeMap<Module, PathBuf>,
}

impl Tools {
    /// Builds the missing programs of `modules`. Blocks, for minutes when nothing is built yet; several processes may
    /// do so at once.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub fn build(modules: &[Module], progress: &Progress) -> Result<Self, ToolError> {
        let mut directories = std::collections::BTreeMap::new();
        for module in modules {
            directories.insert(module.stands_for(), build::build(*module, progress)?);
        }
        Ok(Self { directories })
    }

    /// [`Tools::build`] on a thread of its own, for async code.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub async fn build_in_background(modules: &[Module], progress: &Progress) -> Result<Self, ToolError> {
        let (modules, progress) = (modules.to_vec(), progress.clone());
        tokio::task::spawn_blocking(move || Self::build(&modules, &progress))
            .await
            .map_err(|error| ToolError::Interrupted(error.to_string()))?
    }

    /// Folder with a module's programs; `None` if not requested.
    pub fn directory(&self, module: Module) -> Option<&Path> {
        self.directories.get(&module).map(PathBuf::as_path)
    }

    /// Path of one program.
    ///
    /// # Errors
    /// [`ToolError::NotBuilt`] if its module was not requested.
    pub fn path(&self, module: Module, program: &str) -> Result<PathBuf, ToolError> {
        let directory = self.directory(module).ok_or_else(|| ToolError::NotBuilt(program.to_owned()))?;
        Ok(directory.join(program))
    }

    /// Adds the programs of `other`.
    pub fn extend(&mut self, other: Self) {
        self.directories.extend(other.directories);
    }
}
