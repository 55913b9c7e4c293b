//! The name of an object.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Namespace and name of an object, ordered by namespace first. Displayed as `namespace/name`, or the name alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for an object without a namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// An object in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// An object without a namespace.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self::new("", name)
    }

    /// Another object in the same namespace.
    #[must_use]
    pub fn with_name(&self, name: impl Into<String>) -> Self {
        Self::new(self.namespace.as_str(), name)
    }
}

impl From<&ObjectMeta> for Key {
    fn from(metadata: &ObjectMeta) -> Self {
        Self::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        )
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}
