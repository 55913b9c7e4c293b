//! Requests of pods in lists and wishes.

use serde_json::json;
use tessera_api::{DeviceType, ProfileSpelling};

use super::Shape;
use crate::fleet::Fleet;
use crate::fleet::objects::{class_name, read};

/// Namespace of the pods.
const SIMULATED: &str = "simulated";

/// The step of a share's memory in bytes, as in published slices.
const MEMORY_STEP: u64 = 128 << 20;

/// A pod's request for cards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::fleet) enum Ask {
    /// Whole cards of one node.
    Cards(u32),
    /// A MIG partition of this profile.
    Profile(String),
    /// A percentage of a card, by MPS.
    Share(u32),
}

impl Ask {
    /// `4`, `1g.10gb` or `15%`.
    pub(in crate::fleet) fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "gpu is {text:?}; it must be a number of cards (4), a MIG profile (1g.10gb) or a share of a card (15%)"
            )
        };
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.trim().parse().ok().filter(|percent| (1..=100).contains(percent));
            return percent
                .map(Ask::Share)
                .ok_or_else(|| format!("gpu is {text:?}; a share must be a whole number from 1% to 100%"));
        }
        if ProfileSpelling::of_profile(text).is_ok() {
            return Ok(Ask::Profile(text.to_owned()));
        }
        let cards = text.parse().map_err(|_| wrong())?;
        match cards {
            0 => Err("gpu is 0; leave out pods without cards".to_owned()),
            1..=32 => Ok(Ask::Cards(cards)),
            _ => Err(format!("gpu is {cards}; a claim has at most 32 cards")),
        }
    }

    /// The shape of a pod with this request.
    pub(in crate::fleet) fn shape(
        &self,
        fleet: &Fleet,
        gpu_memory: Option<u64>,
        (cpu_milli, memory_mib): (u64, u64),
    ) -> Shape {
        let driver = fleet.driver();
        let mut exactly = json!({ "allocationMode": "ExactCount", "count": 1 });
        let mut selector = None;
        match self {
            Ask::Cards(count) => {
                exactly["deviceClassName"] = json!(class_name(driver, DeviceType::Gpu));
                exactly["count"] = json!(count);
                selector = gpu_memory.map(|bytes| {
                    format!("device.capacity[\"{driver}\"].memory.compareTo(quantity(\"{bytes}\")) >= 0")
                });
            }
            Ask::Profile(profile) => {
                exactly["deviceClassName"] = json!(class_name(driver, DeviceType::Mig));
                selector = Some(format!("device.attributes[\"{driver}\"].profile == \"{profile}\""));
            }
            Ask::Share(percent) => {
                let of_card = || fleet.share_memory(*percent).map(|bytes| bytes / MEMORY_STEP * MEMORY_STEP);
                let memory = gpu_memory.or_else(of_card).unwrap_or(0).max(MEMORY_STEP);
                exactly["deviceClassName"] = json!(class_name(driver, DeviceType::Mps));
                exactly["capacity"] = json!({ "requests": {
                    "compute": percent.to_string(), "memory": memory.to_string() } });
            }
        }
        if let Some(expression) = selector {
            exactly["selectors"] = json!([{ "cel": { "expression": expression } }]);
        }
        let mut requests = serde_json::Map::new();
        if cpu_milli > 0 {
            requests.insert("cpu".to_owned(), json!(format!("{cpu_milli}m")));
        }
        if memory_mib > 0 {
            requests.insert("memory".to_owned(), json!(format!("{memory_mib}Mi")));
        }
        let pod = json!({ "metadata": {}, "spec": {
            "containers": [{ "name": "c", "resources": { "requests": requests, "claims": [{ "name": "gpu" }] } }],
            "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "gpu" }],
        } });
        let claim = json!({ "devices": { "requests": [{ "name": "gpu", "exactly": exactly }] } });
        let claims = vec![("gpu".to_owned(), read(claim))];
        Shape { namespace: SIMULATED.to_owned(), pod: read(pod), claims }
    }
}
