/// An error of a layout file. Messages name the configuration and its entry, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutFileError {
    /// The file is not YAML, or has a key twice.
    #[error("not YAML: {0}")]
    Yaml(String),
    /// The file has several YAML documents.
    #[error("several YAML documents, separated by `---`, where one is wanted")]
    Documents,
    /// The file is of another version of the format.
    #[error("version {0}: only version v1 of mig-parted's format is known; write `version: v1`")]
    Version(String),
    /// A field is missing.
    #[error("{at}: the field {field} is missing")]
    Missing {
        /// Where.
        at: String,
        /// Its name.
        field: &'static str,
    },
    /// A field unknown to the format.
    #[error("{at}: there is no field {field:?}; the fields are {known}")]
    UnknownField {
        /// Where.
        at: String,
        /// The field in the file.
        field: String,
        /// The known fields.
        known: String,
    },
    /// A value of the wrong form.
    #[error("{at}: {found} where {wanted} is wanted")]
    Value {
        /// Where.
        at: String,
        /// The value in the file, shortened.
        found: String,
        /// Valid values.
        wanted: &'static str,
    },
    /// Partitions are asked for with the mode off.
    #[error("{at}: mig-devices are listed while mig-enabled is false; remove them, or enable MIG")]
    DevicesWhileDisabled {
        /// Where.
        at: String,
    },
    /// A compute instance that is only part of its GPU instance.
    #[error(
        "{at}: {profile}: a layout is of whole GPU instances; write the profile without the part before its `g`"
    )]
    Width {
        /// Where.
        at: String,
        /// The value in the file.
        profile: String,
    },
}
