use serde::Deserialize;

use super::form::{Field, Form};
use super::{Sharing, sharing_form};

/// Settings of a MIG partition that is held by a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct MigDeviceConfig {
    /// Width of the compute instance, in compute slices: the number before the `c` of `1c.3g.40gb`. From 1 to the
    /// number before the `g` of the profile, as far as the card offers that width. By default, all of the GPU
    /// instance; otherwise the rest of its compute slices stays unused. Ignored for a partition that exists already,
    /// which is used as it is.
    pub compute_slices: Option<u32>,
    /// What happens to the card's MIG mode after its last partition is destroyed, if it was switched on for this one.
    pub mig_mode_after_use: MigModeAfterUse,
    /// How the pods and containers of the claim share the partition: by MPS, or by time, which needs no setting.
    #[serde(deserialize_with = "sharing_form::decode")]
    pub sharing: Option<Sharing>,
}

/// What happens to a MIG mode that was switched on for a partition, after the card's last partition is destroyed. A
/// mode that was on before is never switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub enum MigModeAfterUse {
    /// It is switched off again.
    #[default]
    Restore,
    /// It stays on, which saves the next partition the switch; a claim for the whole card switches it off. One claim that
    /// asks for it is enough.
    Keep,
}

impl MigDeviceConfig {
    /// `kind` of the object.
    pub const KIND: &str = "MigDeviceConfig";

    pub(super) const FORM: Form = Form::Object(
        &[
            Field::optional(
                "computeSlices",
                Form::Whole(1, u32::MAX as i64, "a number of slices: 1 or more"),
            ),
            Field::optional("migModeAfterUse", Form::OneOf(&["Restore", "Keep"])),
            Field::optional("sharing", sharing_form::OF_PARTITION),
        ],
        &[],
    );
}
