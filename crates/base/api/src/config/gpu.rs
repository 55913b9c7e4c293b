use serde::Deserialize;

use super::form::{Field, Form};
use super::{Sharing, sharing_form};

/// Settings of a whole card held by a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct GpuConfig {
    /// How the pods and containers of the claim share the card. If absent, nothing is set: any number of processes
    /// take turns, as far as the card's compute mode allows.
    #[serde(deserialize_with = "sharing_form::decode")]
    pub sharing: Option<Sharing>,
}

impl GpuConfig {
    /// `kind` of the object.
    pub const KIND: &str = "GpuConfig";

    pub(super) const FORM: Form = Form::Object(&[Field::optional("sharing", sharing_form::OF_CARD)], &[]);
}
