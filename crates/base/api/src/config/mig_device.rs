use serde::Deserialize;

use super::form::{Field, Form};
use super::{Sharing, sharing_form};

/// Settings of a MIG partition held by a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct MigDeviceConfig {
    /// Width of the compute instance, in compute slices: the number before the `c` of `1c.3g.40gb`. From 1 to the
    /// number before the `g` of the profile, as far as the card offers the width. By default, all of the GPU
    /// instance; otherwise the remaining compute slices stay unused. Ignored for existing partitions,
    /// which are used unchanged.
    pub compute_slices: Option<u32>,
    /// Fate of the card's MIG mode after its last partition is destroyed, if MIG mode was switched on for this partition.
    pub mig_mode_after_use: MigModeAfterUse,
    /// How the pods and containers of the claim share the partition: by MPS, or by time, which needs no setting.
    #[serde(deserialize_with = "sharing_form::decode")]
    pub sharing: Option<Sharing>,
}

/// Fate of a MIG mode switched on for a partition, after the card's last partition is destroyed. A
/// mode switched on earlier is never switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub enum MigModeAfterUse {
    /// MIG mode is switched off again.
    #[default]
    Restore,
    /// MIG mode stays on, which saves the next partition the switch. A claim for the whole card switches MIG mode off. One claim
    /// with this value is enough.
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
