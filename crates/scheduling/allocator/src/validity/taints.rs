//! Device taints and tolerations.

use crate::claim::DeviceRequest;
use crate::inventory::{DeviceRef, Taint};

/// The first taint repelling the request from the device; taints with a key of `tolerated` are skipped.
pub(crate) fn untolerated<'i>(
    device: DeviceRef<'i>,
    ask: &DeviceRequest,
    tolerated: &[&str],
) -> Option<&'i Taint> {
    device.taints().find(|taint| !tolerated.contains(&taint.key.as_str()) && prevents(taint, ask))
}

/// Whether a taint repels the request from the device.
fn prevents(taint: &Taint, ask: &DeviceRequest) -> bool {
    if taint.effect != "NoSchedule" && taint.effect != "NoExecute" {
        return false;
    }
    let is_tolerated = ask.tolerations.iter().any(|toleration| {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().to_owned();
        let (effect, key) = (text(&toleration.effect), text(&toleration.key));
        (effect.is_empty() || effect == taint.effect)
            && (key.is_empty() || key == taint.key)
            && match toleration.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == taint.value,
                "Exists" => true,
                _ => false,
            }
    });
    !is_tolerated
}
