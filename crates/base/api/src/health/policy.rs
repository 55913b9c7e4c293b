use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::xid_catalog::XidEntry;
use super::{HealthClass, HealthEffect, HealthFault};

/// Effects of faults: an administrator's settings over the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthPolicy {
    classes: BTreeMap<HealthClass, HealthEffect>,
    xids: BTreeMap<u64, HealthEffect>,
    recovery: OwnRecovery,
}

/// Recovery by the plugin itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnRecovery {
    /// Nothing.
    #[default]
    None,
    /// Reset a card whose faults end with a reset, when no claim holds any part of the card.
    Reset,
}

/// A text is no [`HealthPolicy`]: invalid JSON, or with unknown content.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}; classes are {classes}, effects are Off, Informational, NoSchedule and NoExecute, recovery is None or Reset",
    classes = HealthClass::ALL.map(HealthClass::name).join(", ")
)]
pub struct HealthPolicyError(serde_json::Error);

/// The text of a [`HealthPolicy`].
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Text {
    classes: BTreeMap<HealthClass, HealthEffect>,
    xids: BTreeMap<u64, HealthEffect>,
    recovery: OwnRecovery,
}

impl HealthPolicy {
    /// The plugin's own recovery, besides reporting faults.
    #[must_use]
    pub const fn recovery(&self) -> OwnRecovery {
        self.recovery
    }

    /// The effect of this fault. A fault not considered one by the driver keeps no claims away, unless an administrator set
    /// the effect of exactly this XID or class.
    #[must_use]
    pub fn effect(&self, fault: &HealthFault) -> HealthEffect {
        let (own, default) = match fault.xid {
            Some(xid) => (self.xids.get(&xid).copied(), self.effect_of_xid(xid)),
            None => (self.classes.get(&fault.class).copied(), self.of_class(fault.class)),
        };
        own.unwrap_or_else(|| {
            if fault.is_no_fault_to_driver() { default.min(HealthEffect::Informational) } else { default }
        })
    }

    /// The effect of this XID where the driver recommends a recovery or gives no recommendations: an administrator's setting for the
    /// XID alone, else NVIDIA's catalog, else the setting for all XIDs.
    #[must_use]
    pub fn effect_of_xid(&self, xid: u64) -> HealthEffect {
        let own = self.xids.get(&xid).copied();
        let of_catalog = || XidEntry::of(xid).and_then(|entry| entry.effect);
        own.or_else(of_catalog).unwrap_or_else(|| self.of_class(HealthClass::Xid))
    }

    fn of_class(&self, class: HealthClass) -> HealthEffect {
        self.classes.get(&class).copied().unwrap_or(match class {
            HealthClass::Thermal | HealthClass::PowerBrake => HealthEffect::Informational,
            _ => HealthEffect::NoSchedule,
        })
    }

    /// Sets the effect of a class.
    #[must_use]
    pub fn with(mut self, class: HealthClass, effect: HealthEffect) -> Self {
        self.classes.insert(class, effect);
        self
    }
}

impl FromStr for HealthPolicy {
    type Err = HealthPolicyError;

    /// Reads differences from the default: `{"classes":{"nvlink-down":"Off"},"xids":{"79":"NoExecute"},"recovery":"Reset"}`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Text { classes, xids, recovery } = serde_json::from_str(text).map_err(HealthPolicyError)?;
        Ok(Self { classes, xids, recovery })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_xid_wins_over_the_class() {
        let text = r#"{"classes":{"xid":"Informational","lost":"NoExecute"},"xids":{"79":"NoExecute","31":"NoSchedule"}}"#;
        let policy: HealthPolicy = text.parse().unwrap();
        assert_eq!(policy.effect(&HealthFault::xid(79, None)), HealthEffect::NoExecute);
        assert_eq!(policy.effect(&HealthFault::xid(48, None)), HealthEffect::Informational);
        assert_eq!(policy.effect(&HealthFault::xid(31, None)), HealthEffect::NoSchedule);
        assert_eq!(policy.effect(&HealthFault::xid(13, None)), HealthEffect::Off);
        assert_eq!(policy.effect(&HealthFault::new(HealthClass::Lost)), HealthEffect::NoExecute);
        assert_eq!(policy.effect(&HealthFault::new(HealthClass::Fabric)), HealthEffect::NoSchedule);
        assert_eq!("{}".parse::<HealthPolicy>().unwrap(), HealthPolicy::default());
        assert_eq!(policy.recovery(), OwnRecovery::None);
        let resets: HealthPolicy = r#"{"classes":{},"xids":{},"recovery":"Reset"}"#.parse().unwrap();
        assert_eq!(resets.recovery(), OwnRecovery::Reset);
    }

    #[test]
    fn only_what_needs_a_reset_by_nvidias_catalog_keeps_claims_away() {
        let effect = |xid| HealthPolicy::default().effect(&HealthFault::xid(xid, None));
        for (xid, expected) in [
            (69, HealthEffect::Off),
            (8, HealthEffect::Off),
            (137, HealthEffect::Off),
            (154, HealthEffect::Off),
            (32, HealthEffect::Informational),
            (94, HealthEffect::Informational),
            (121, HealthEffect::Informational),
            (163, HealthEffect::Informational),
            (48, HealthEffect::NoSchedule),
            (79, HealthEffect::NoSchedule),
            (109, HealthEffect::NoSchedule),
            (145, HealthEffect::NoSchedule),
            (9999, HealthEffect::NoSchedule),
        ] {
            assert_eq!(effect(xid), expected, "{xid}");
        }
    }

    #[test]
    fn what_the_driver_calls_none_keeps_claims_away_only_where_an_administrator_names_it() {
        use super::super::Recovery;
        let said = |text: &str, fault: HealthFault, recommended| {
            let policy: HealthPolicy = text.parse().unwrap();
            policy.effect(&fault.with_recommendation(recommended))
        };
        let xid = || HealthFault::xid(48, None);
        let memory = || HealthFault::new(HealthClass::EccUncorrectable);
        for fault in [xid(), memory(), HealthFault::new(HealthClass::RowRemapPending)] {
            assert_eq!(said("{}", fault.clone(), Some(Recovery::None)), HealthEffect::Informational);
            assert_eq!(said("{}", fault.clone(), Some(Recovery::Reset)), HealthEffect::NoSchedule);
            assert_eq!(said("{}", fault, None), HealthEffect::NoSchedule, "a driver without recommendations");
        }
        assert_eq!(
            said("{}", HealthFault::new(HealthClass::Fabric), Some(Recovery::None)),
            HealthEffect::NoSchedule
        );
        let none = Some(Recovery::None);
        assert_eq!(said(r#"{"xids":{"48":"NoSchedule"}}"#, xid(), none), HealthEffect::NoSchedule);
        assert_eq!(said(r#"{"classes":{"xid":"NoExecute"}}"#, xid(), none), HealthEffect::Informational);
        let classes = r#"{"classes":{"ecc-uncorrectable":"NoExecute"}}"#;
        assert_eq!(said(classes, memory(), none), HealthEffect::NoExecute);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            (r#"{"classes":{"xyz":"Off"}}"#, "nvlink-down"),
            (r#"{"classes":{"lost":"Evict"}}"#, "unknown variant `Evict`"),
            (r#"{"xids":{"seventy":"Off"}}"#, "expected key to be a number in quotes at line 1 column 10"),
            (r#"{"xid":{}}"#, "unknown field `xid`"),
            (r#"{"recovery":"Reboot"}"#, "recovery is None or Reset"),
            (r#"{} {}"#, "trailing"),
            ("", "EOF"),
        ] {
            let error = text.parse::<HealthPolicy>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("NoExecute"), "{text}: {error}");
        }
    }
}
