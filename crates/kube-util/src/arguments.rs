//! Command line values that several programs take.

use std::path::PathBuf;

/// An absolute path without `..`, for clap.
///
/// # Errors
/// What is wrong with it.
pub fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if !path.is_absolute() {
        return Err("not an absolute path".to_owned());
    }
    if path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err("'..' is not allowed".to_owned());
    }
    Ok(path)
}
