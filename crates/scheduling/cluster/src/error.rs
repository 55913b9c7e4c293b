//! Errors about unusable objects.

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use tessera_allocator::convert::ConvertError;

use crate::objects::reference;

/// An object contains a value the API server would not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name}: {source}")]
pub struct ObjectError {
    kind: &'static str,
    name: String,
    source: ConvertError,
}

impl ObjectError {
    pub(crate) fn of_claim(claim: &ResourceClaim, source: ConvertError) -> Self {
        ObjectError { kind: "ResourceClaim", name: reference(claim), source }
    }

    pub(crate) fn of_slice(slice: &ResourceSlice, source: ConvertError) -> Self {
        let name = slice.metadata.name.clone().unwrap_or_default();
        ObjectError { kind: "ResourceSlice", name, source }
    }
}
