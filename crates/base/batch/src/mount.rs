use std::str::FromStr;

/// An entry of `--mount` or `--container-mounts`: `SOURCE:PATH[:ro|rw]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// A PersistentVolumeClaim, or an absolute path: of the site's volumes, else of the node.
    pub source: String,
    /// Where, in the container.
    pub path: String,
    /// Whether nothing can be written there.
    pub read_only: bool,
}

impl FromStr for Mount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected CLAIM:/PATH or /PATH:/PATH, with :ro where nothing is written";
        let mut parts = text.split(':');
        let (source, path) = (parts.next().unwrap_or_default(), parts.next());
        let flags = parts.next().unwrap_or("rw");
        // As in pyxis a path alone is mounted where it is.
        let path = path.unwrap_or(source);
        if source.is_empty() || !path.starts_with('/') || parts.next().is_some() {
            return Err(FORM.to_owned());
        }
        let read_only = match flags {
            "ro" => true,
            "rw" => false,
            other => return Err(format!("{other:?} is unknown: ro and rw are possible")),
        };
        Ok(Mount { source: source.to_owned(), path: path.to_owned(), read_only })
    }
}
