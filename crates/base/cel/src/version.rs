//! Semantic versions as parsed and ordered by the library `blang/semver` v4, stricter than most.

use std::cmp::Ordering;
use std::fmt;

/// One dot-separated part of a pre-release.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Identifier {
    Number(u64),
    Text(Box<str>),
}

/// A semantic version.
#[derive(Debug, Clone)]
pub struct Version {
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
    /// Patch number.
    pub patch: u64,
    pre_release: Box<[Identifier]>,
}

/// Why a text is not a version; upstream's error text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VersionError(String);

fn error<T>(message: impl Into<String>) -> Result<T, VersionError> {
    Err(VersionError(message.into()))
}

impl Version {
    /// Parses `major.minor.patch[-pre][+build]`.
    ///
    /// # Errors
    /// The text is not a version; the message names the invalid part.
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        if text.is_empty() {
            return error("Version string empty");
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(mut patch)) = (parts.next(), parts.next(), parts.next()) else {
            return error("No Major.Minor.Patch elements found");
        };
        let major = number(major, "major")?;
        let minor = number(minor, "minor")?;
        let mut build = None;
        if let Some((before, after)) = patch.split_once('+') {
            (patch, build) = (before, Some(after));
        }
        let mut pre_release = None;
        if let Some((before, after)) = patch.split_once('-') {
            (patch, pre_release) = (before, Some(after));
        }
        let patch = number(patch, "patch")?;
        let pre_release = match pre_release {
            Some(text) => text.split('.').map(identifier).collect::<Result<_, _>>()?,
            None => Box::default(),
        };
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return error("Build meta data is empty");
            }
            if !part.bytes().all(is_alphanumeric) {
                return error(format!("Invalid character(s) found in build meta data {part:?}"));
            }
        }
        Ok(Version { major, minor, patch, pre_release })
    }

    /// Parses leniently, as `semver(text, true)` does: a leading `v`, missing minor and patch numbers and leading zeros
    /// are accepted.
    ///
    /// # Errors
    /// The text is not a version even so.
    pub fn parse_normalized(text: &str) -> Result<Self, VersionError> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_leading_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return error("short version cannot contain PreRelease/Build meta data");
            }
            parts.resize(3, "0".to_owned());
        }
        Version::parse(&parts.join("."))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version { major, minor, patch, pre_release } = self;
        write!(formatter, "{major}.{minor}.{patch}")?;
        for (number, identifier) in pre_release.iter().enumerate() {
            formatter.write_str(if number == 0 { "-" } else { "." })?;
            match identifier {
                Identifier::Number(value) => write!(formatter, "{value}")?,
                Identifier::Text(text) => formatter.write_str(text)?,
            }
        }
        Ok(())
    }
}

impl Ord for Version {
    /// Ignores build metadata.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch)).then_with(
            || match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre_release.cmp(&other.pre_release),
            },
        )
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl Ord for Identifier {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Identifier::Number(one), Identifier::Number(two)) => one.cmp(two),
            (Identifier::Number(_), Identifier::Text(_)) => Ordering::Less,
            (Identifier::Text(_), Identifier::Number(_)) => Ordering::Greater,
            (Identifier::Text(one), Identifier::Text(two)) => one.cmp(two),
        }
    }
}

impl PartialOrd for Identifier {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn has_leading_zero(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

fn number(text: &str, part: &str) -> Result<u64, VersionError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return error(format!("Invalid character(s) found in {part} number {text:?}"));
    }
    if has_leading_zero(text) {
        let part = format!("{}{}", part[..1].to_uppercase(), &part[1..]);
        return error(format!("{part} number must not contain leading zeroes {text:?}"));
    }
    unsigned(text)
}

fn unsigned(text: &str) -> Result<u64, VersionError> {
    text.parse().map_err(|_| {
        let reason = if text.is_empty() { "invalid syntax" } else { "value out of range" };
        VersionError(format!("strconv.ParseUint: parsing {text:?}: {reason}"))
    })
}

fn identifier(text: &str) -> Result<Identifier, VersionError> {
    if text.is_empty() {
        return error("Prerelease is empty");
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if has_leading_zero(text) {
            return error(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
        }
        return unsigned(text).map(Identifier::Number);
    }
    if text.bytes().all(is_alphanumeric) {
        return Ok(Identifier::Text(text.into()));
    }
    error(format!("Invalid character(s) found in prerelease {text:?}"))
}

fn without_leading_zeros(text: &str) -> String {
    if text.len() <= 1 {
        return text.to_owned();
    }
    let stripped = text.trim_start_matches('0');
    if stripped.starts_with(|first: char| first.is_ascii_digit()) {
        stripped.to_owned()
    } else {
        format!("0{stripped}")
    }
}
