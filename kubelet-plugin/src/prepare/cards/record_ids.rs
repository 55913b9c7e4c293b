//! Names of hardware records: partitions and shares are named after their device, a switch of a card's MIG mode
//! `<card>-mig-mode`.

use tessera_api::{DeviceName, PartitionName, PciBusId};

const OWN_SHARE: &str = "-sharing";

/// Id of the record of a partition.
pub(in crate::prepare) fn partition_id(partition: &PartitionName) -> String {
    partition.to_string()
}

/// Id of the record of the switch of a card's MIG mode.
pub(in crate::prepare) fn mode_id(card: PciBusId) -> String {
    format!("{}-mig-mode", DeviceName::Card(card))
}

/// Id of the record for a device shared by the pods of its one claim.
pub(in crate::prepare) fn own_share_id(device: &str) -> String {
    format!("{device}{OWN_SHARE}")
}

/// The device of a share's record.
pub(in crate::prepare) fn device_of_share(id: &str) -> &str {
    id.strip_suffix(OWN_SHARE).unwrap_or(id)
}
