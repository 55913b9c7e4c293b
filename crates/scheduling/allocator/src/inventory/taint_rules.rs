//! Taints added to devices by DeviceTaintRules.

use k8s_openapi::api::resource::v1::DeviceTaintRule;

use super::{DeviceRef, Inventory, Taint};

/// A taint, and a filter of devices. A part with `None` fits all.
#[derive(Debug, Clone)]
pub(crate) struct TaintRule {
    driver: Option<String>,
    pool: Option<String>,
    device: Option<String>,
    taint: Taint,
}

impl Inventory {
    /// Replaces the DeviceTaintRules. A rule without a selector taints no device.
    pub fn set_taint_rules<'r>(&mut self, rules: impl IntoIterator<Item = &'r DeviceTaintRule>) {
        let rule = |rule: &DeviceTaintRule| {
            let selector = rule.spec.device_selector.as_ref()?;
            Some(TaintRule {
                driver: selector.driver.clone(),
                pool: selector.pool.clone(),
                device: selector.device.clone(),
                taint: Taint::from(&rule.spec.taint),
            })
        };
        self.taint_rules = rules.into_iter().filter_map(rule).collect();
    }
}

impl<'i> DeviceRef<'i> {
    /// Published taints of the device, then taints from rules.
    pub(crate) fn taints(self) -> impl Iterator<Item = &'i Taint> {
        let own = self.extra().into_iter().flat_map(|extra| &extra.taints);
        let rules = self.inventory.taint_rules.iter().filter(move |rule| rule.is_about(self));
        own.chain(rules.map(|rule| &rule.taint))
    }
}

impl TaintRule {
    fn is_about(&self, device: DeviceRef<'_>) -> bool {
        let fits =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        fits(&self.device, device.name())
            && fits(&self.pool, device.pool())
            && fits(&self.driver, device.driver_name())
    }
}
