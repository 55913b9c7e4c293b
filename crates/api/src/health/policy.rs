use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{HealthClass, HealthEffect, HealthFault};

/// XIDs that programs cause by their own faults: graphics engine exception, memory page fault, stopped processing,
/// preemptive clean-up, video processor exception, context switch timeout. NVIDIA's DRA driver and device plugin ignore
/// the same ones.
const OF_PROGRAMS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// XIDs that tell of what the card has dealt with, and whose consequences have classes of their own: a page was retired or
/// a row remapped, corrected errors are frequent, an error was contained to its program. Source: NVIDIA, XID errors, and GPU
/// memory error management, user visible statistics.
const DEALT_WITH: [u64; 3] = [63, 92, 94];

/// Which fault means what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthPolicy {
    classes: BTreeMap<HealthClass, HealthEffect>,
    xids: BTreeMap<u64, HealthEffect>,
}

/// A text is no [`HealthPolicy`]: it is not JSON, or has something in it that is not known.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}; classes are {classes}, effects are Off, Informational, NoSchedule and NoExecute",
    classes = HealthClass::ALL.map(HealthClass::name).join(", ")
)]
pub struct HealthPolicyError(serde_json::Error);

/// The text of a [`HealthPolicy`].
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Text {
    classes: BTreeMap<HealthClass, HealthEffect>,
    xids: BTreeMap<u64, HealthEffect>,
}

impl HealthPolicy {
    /// What this fault means.
    #[must_use]
    pub fn effect(&self, fault: &HealthFault) -> HealthEffect {
        match fault.xid {
            Some(xid) => self.effect_of_xid(xid),
            None => self.classes[&fault.class],
        }
    }

    /// What this XID means: what is said of it alone, else what is said of all.
    #[must_use]
    pub fn effect_of_xid(&self, xid: u64) -> HealthEffect {
        // All classes are in the map, see `default`.
        self.xids.get(&xid).copied().unwrap_or_else(|| self.classes[&HealthClass::Xid])
    }

    /// Sets what a class means.
    #[must_use]
    pub fn with(mut self, class: HealthClass, effect: HealthEffect) -> Self {
        self.classes.insert(class, effect);
        self
    }
}

impl Default for HealthPolicy {
    fn default() -> Self {
        let effect = |class| match class {
            HealthClass::Thermal | HealthClass::PowerBrake => HealthEffect::Informational,
            _ => HealthEffect::NoSchedule,
        };
        let xids = OF_PROGRAMS.map(|xid| (xid, HealthEffect::Off)).into_iter();
        Self {
            classes: HealthClass::ALL.map(|class| (class, effect(class))).into(),
            xids: xids.chain(DEALT_WITH.map(|xid| (xid, HealthEffect::Informational))).collect(),
        }
    }
}

impl FromStr for HealthPolicy {
    type Err = HealthPolicyError;

    /// Reads what differs from the default: `{"classes":{"nvlink-down":"Off"},"xids":{"79":"NoExecute"}}`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read: Text = serde_json::from_str(text).map_err(HealthPolicyError)?;
        let mut policy = Self::default();
        policy.classes.extend(read.classes);
        policy.xids.extend(read.xids);
        Ok(policy)
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
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            (r#"{"classes":{"xyz":"Off"}}"#, "nvlink-down"),
            (r#"{"classes":{"lost":"Evict"}}"#, "unknown variant `Evict`"),
            (r#"{"xids":{"seventy":"Off"}}"#, "expected key to be a number in quotes at line 1 column 10"),
            (r#"{"xid":{}}"#, "unknown field `xid`"),
            (r#"{} {}"#, "trailing"),
            ("", "EOF"),
        ] {
            let error = text.parse::<HealthPolicy>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("NoExecute"), "{text}: {error}");
        }
    }
}
