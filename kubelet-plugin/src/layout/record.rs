//! The journal's record of a card's layout.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tessera_api::{DeviceName, PciBusId};
use tessera_inventory::layout::PlannedInstance;
use tessera_nvml::GpuInstance;

use super::look::Seen;
use tessera_journal::{BootId, HardwareRecord, Stage};

/// The journal's record of a card's layout: the GPU instances this driver had made for the layout, or was making or
/// destroying, when the record was written. At that time nobody else's instances were at these placements, so all
/// instances there since belong to the layout.
///
/// The record is a [`HardwareRecord`] of the kind `migLayout`, named `layout-<card>`. No claim refers to the record, and the code
/// for claims does not find it by the names of hardware made for claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LayoutRecord {
    /// Always [`LayoutRecord::KIND`].
    kind: String,
    /// Name of the configuration.
    pub(super) layout: String,
    /// The instances.
    pub(super) instances: Vec<RecordedInstance>,
    /// Whether MIG mode was off before.
    pub(super) mode_switched: bool,
}

/// An instance in a [`LayoutRecord`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedInstance {
    profile: String,
    profile_id: u32,
    start: u32,
    size: u32,
}

impl LayoutRecord {
    const KIND: &'static str = "migLayout";

    pub(super) fn new(layout: &str, instances: Vec<RecordedInstance>, mode_switched: bool) -> Self {
        LayoutRecord { kind: Self::KIND.to_owned(), layout: layout.to_owned(), instances, mode_switched }
    }

    /// Id of a card's record.
    pub(super) fn id(card: PciBusId) -> String {
        format!("layout-{}", DeviceName::Card(card))
    }

    /// Reads a record if it is of this card and this boot. Instances of an earlier boot are gone. The mode stays on
    /// a card whose mode switches only with a reset, over reboots too.
    pub(super) fn read(record: &HardwareRecord, seen: &Seen, boot: &BootId) -> Option<Self> {
        let is_of_boot = record.boot_id == *boot;
        if record.card_uuid != seen.uuid || !(is_of_boot || seen.switch_needs_reset) {
            return None;
        }
        let mut read: Self = serde_json::from_value(Value::Object(record.change.clone())).ok()?;
        if !is_of_boot {
            read.instances.clear();
        }
        Some(read).filter(|read| read.kind == Self::KIND)
    }

    pub(super) fn to_hardware(
        &self,
        card: PciBusId,
        uuid: &str,
        boot: &BootId,
        stage: Stage,
    ) -> HardwareRecord {
        let change = match serde_json::to_value(self) {
            Ok(Value::Object(change)) => change,
            // Never happens: texts, numbers and booleans under names always make an object.
            _ => Map::new(),
        };
        HardwareRecord {
            version: HardwareRecord::VERSION,
            id: Self::id(card),
            card,
            card_uuid: uuid.to_owned(),
            boot_id: boot.clone(),
            stage,
            change,
            other: Map::new(),
        }
    }

    /// Whether the instance was made for the layout.
    pub(super) fn made(&self, instance: &GpuInstance) -> bool {
        self.instances.iter().any(|recorded| {
            (recorded.profile_id, recorded.start, recorded.size)
                == (instance.profile_id, instance.placement.start, instance.placement.size)
        })
    }
}

impl From<&PlannedInstance> for RecordedInstance {
    fn from(planned: &PlannedInstance) -> Self {
        RecordedInstance {
            profile: planned.profile.clone(),
            profile_id: planned.profile_id,
            start: planned.placement.start,
            size: planned.placement.size,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use tessera_inventory::machine::Placement;
    use tessera_nvml::MigMode;

    use super::*;

    /// The format on the disks of today's nodes.
    #[test]
    fn form_of_version_1() {
        let planned = PlannedInstance {
            placement: Placement { start: 4, size: 4 },
            profile_id: 9,
            profile: "3g.40gb".into(),
        };
        let record = LayoutRecord::new("all-balanced", vec![(&planned).into()], true);
        let card: PciBusId = "0000:3b:00.0".parse().unwrap();
        let boot: BootId = serde_json::from_value(json!("boot")).unwrap();
        let stored = record.to_hardware(card, "GPU-1", &boot, Stage::Complete);
        assert_eq!(stored.id, "layout-gpu-3b-00");
        assert_eq!(
            Value::Object(stored.change.clone()),
            json!({
                "kind": "migLayout", "layout": "all-balanced", "modeSwitched": true,
                "instances": [{"profile": "3g.40gb", "profileId": 9, "start": 4, "size": 4}],
            })
        );
        let seen = |uuid: &str| Seen {
            uuid: uuid.to_owned(),
            mode: MigMode { current: true, pending: true },
            switch_needs_reset: false,
            instances: Vec::new(),
            clients: BTreeSet::new(),
        };
        assert_eq!(LayoutRecord::read(&stored, &seen("GPU-1"), &boot), Some(record));
        assert_eq!(
            LayoutRecord::read(&stored, &seen("GPU-2"), &boot),
            None,
            "another card in the same place"
        );
        let later: BootId = serde_json::from_value(json!("later")).unwrap();
        assert_eq!(LayoutRecord::read(&stored, &seen("GPU-1"), &later), None);
        // An Ampere card keeps its mode, not its partitions, over a reboot.
        let ampere = Seen { switch_needs_reset: true, ..seen("GPU-1") };
        let kept = LayoutRecord::new("all-balanced", Vec::new(), true);
        assert_eq!(LayoutRecord::read(&stored, &ampere, &later), Some(kept));
    }
}
