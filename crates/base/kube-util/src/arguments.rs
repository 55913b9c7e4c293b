//! Command line values common to several programs.

use std::path::PathBuf;

/// An absolute path without `..`, for clap.
///
/// # Errors
/// Describes the problem of the path.
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

/// A directory below another: a path without `..`, for clap. A slash before it does not count.
///
/// # Errors
/// Describes the problem of the path.
pub fn below_root(text: &str) -> Result<PathBuf, String> {
    let path = absolute(&format!("/{text}"))?;
    let below = path.strip_prefix("/").map_or_else(|_| PathBuf::new(), |below| below.to_owned());
    if below.as_os_str().is_empty() { Err("names no directory".to_owned()) } else { Ok(below) }
}

/// The name of a DRA driver, for clap: a DNS subdomain of at most 63 characters.
///
/// # Errors
/// Describes the problem of the name.
pub fn driver_name(text: &str) -> Result<String, String> {
    subdomain(text, 63)
}

/// The name of a Kubernetes object, for clap: a DNS subdomain of at most 253 characters.
///
/// # Errors
/// Describes the problem of the name.
pub fn object_name(text: &str) -> Result<String, String> {
    subdomain(text, 253)
}

/// Checks a DNS subdomain of RFC 1123, as Kubernetes validates names.
fn subdomain(text: &str, longest: usize) -> Result<String, String> {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if text.len() > longest {
        return Err(format!("{} characters, at most {longest} are allowed", text.len()));
    }
    if !text.split('.').all(label) {
        return Err("not a DNS subdomain: lower-case letters, digits, '-' and '.', each part beginning and ending with \
                    a letter or digit"
            .to_owned());
    }
    Ok(text.to_owned())
}
