use serde::Deserialize;

use super::{Sharing, sharing_form};

/// Settings of a whole card that a claim holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct GpuConfig {
    /// How the pods and containers of the claim share the card. Nothing is set where it is absent: any number of processes
    /// take turns as the card's compute mode lets them.
    #[serde(deserialize_with = "sharing_form::of_card")]
    pub sharing: Option<Sharing>,
}

impl GpuConfig {
    /// `kind` of the object.
    pub const KIND: &str = "GpuConfig";
}
