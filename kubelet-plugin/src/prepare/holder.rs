use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tessera_api::{DeviceName, PciBusId};

use super::ClaimReference;
use super::conflict::Use;
use super::hardware::{mode_id, own_share_id};
use crate::cdi;
use crate::journal::{BootId, ClaimRecord, Entry, Journal, JournalError};

/// A claim that has something on this node.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub uid: String,
    /// Its record; `None` where that can't be read, and all that is known comes from its CDI spec.
    pub record: Option<Arc<ClaimRecord>>,
    /// Devices and their cards, by the CDI spec of a claim whose record can't be read.
    from_spec: Vec<(PciBusId, String)>,
}

/// All claims that have something on this node. Blocks for file reads.
///
/// A claim whose record can't be read keeps what its CDI spec gives to its containers: a damaged file must not let a
/// second claim onto a card.
pub(super) fn holders(journal: &Journal, cdi: &cdi::Directory) -> Result<Vec<Holder>, JournalError> {
    let holder = |entry: Entry<Arc<ClaimRecord>>| match entry.record {
        Ok(record) => Holder { uid: entry.id, record: Some(record), from_spec: Vec::new() },
        Err(_) => {
            let spec = cdi.read(&entry.id).ok().flatten();
            let names = spec.iter().flat_map(|spec| &spec.devices).map(|device| device.name.as_str());
            let from_spec = names.filter_map(|name| device_of(name, &entry.id)).collect();
            Holder { uid: entry.id, record: None, from_spec }
        }
    };
    Ok(journal.shared_claims()?.into_iter().map(holder).collect())
}

/// Ids of the hardware records that claims rest on, without those of one claim.
pub(super) fn references(holders: &[Holder], boot: &BootId, except: Option<&str>) -> BTreeSet<String> {
    let mut references = BTreeSet::new();
    for holder in holders.iter().filter(|holder| Some(&*holder.uid) != except) {
        holder.add_references(boot, &mut references);
    }
    references
}

/// The device that a CDI device name of a claim stands for. A share's id may follow it.
fn device_of(name: &str, uid: &str) -> Option<(PciBusId, String)> {
    let mut device = name.strip_prefix(uid)?.strip_prefix('-')?;
    loop {
        if let Ok(parsed) = device.parse::<DeviceName>() {
            return Some((parsed.card(), device.to_owned()));
        }
        (device, _) = device.rsplit_once('-')?;
    }
}

impl Holder {
    /// The claim, where its record can be read.
    pub(super) fn claim(&self) -> Option<ClaimReference> {
        let record = self.record.as_ref()?;
        Some(ClaimReference {
            namespace: record.namespace.clone(),
            name: record.name.clone(),
            uid: record.uid.clone(),
        })
    }

    /// Adds the hardware records that this claim rests on. One whose record can't be read rests on whatever its devices
    /// may need; one of another boot on nothing, for nothing made in another boot is there.
    fn add_references(&self, boot: &BootId, references: &mut BTreeSet<String>) {
        match &self.record {
            Some(record) if record.boot_id == *boot => {
                references.extend(record.devices.iter().flat_map(|device| &device.hardware).cloned());
            }
            Some(_) => {}
            None => {
                for (card, device) in &self.from_spec {
                    references.insert(mode_id(*card));
                    references.extend([device.clone(), own_share_id(device)]);
                    let name = device.parse().ok();
                    let partition = name.as_ref().and_then(DeviceName::partition);
                    references.extend(partition.map(ToString::to_string));
                }
            }
        }
    }

    /// Whether any of its uses excludes `other`.
    pub(super) fn conflicts_with(&self, other: Use<'_>) -> bool {
        let recorded = self.record.iter().flat_map(|record| &record.devices).map(Use::of_record);
        let from_spec = self.from_spec.iter().map(|(card, device)| Use::of_whole_card(*card, device));
        recorded.chain(from_spec).any(|mine| mine.conflicts_with(other))
    }
}

/// As messages name a claim.
impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.claim() {
            Some(claim) => claim.fmt(formatter),
            None => write!(formatter, "with uid {}, whose journal record can't be read", self.uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_in_cdi_names() {
        let uid = "0b4e-1";
        for (name, device) in [
            ("0b4e-1-gpu-3b-00", Some("gpu-3b-00")),
            ("0b4e-1-gpu-0008-01-00-9f61-3b1f", Some("gpu-0008-01-00")),
            ("0b4e-2-gpu-3b-00", None),
            ("0b4e-1-other", None),
        ] {
            assert_eq!(device_of(name, uid).map(|(_, device)| device).as_deref(), device, "{name}");
        }
    }
}
