//! The claims holding devices of this node, by their records, or by their CDI specs if a record is damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use tessera_api::{DeviceName, PciBusId};

use super::conflict::Use;
use super::record_ids::{mode_id, own_share_id};
use super::worker::Worker;
use crate::cdi;
use crate::prepare::claim::reference;
use crate::prepare::{ClaimReference, PrepareError};
use tessera_journal::{BootId, ClaimRecord, Entry, Journal, JournalError};

/// A claim holding devices on this node.
#[derive(Clone, Debug)]
pub(in crate::prepare) struct Holder {
    pub uid: String,
    /// The claim's record; `None` if unreadable or owned by another installation. Then only the CDI spec is known.
    pub record: Option<Arc<ClaimRecord>>,
    /// Driver name of the other installation of Tessera, if another one prepared the claim.
    pub other_driver: Option<String>,
    from_spec: Vec<InSpec>,
}

/// A device in the CDI spec of a claim.
#[derive(Clone, Debug)]
struct InSpec {
    card: PciBusId,
    device: String,
    cdi_name: String,
}

/// All claims of this driver holding devices on this node. Blocks for file reads.
///
/// A claim with an unreadable record keeps the devices in its CDI spec: a damaged file must not let a second claim onto a card.
pub(in crate::prepare) fn holders(
    journal: &Journal,
    cdi: &cdi::Directory,
) -> Result<Vec<Holder>, JournalError> {
    let holder = |entry: Entry<Arc<ClaimRecord>>| match entry.record {
        Ok(record) => {
            Holder { uid: entry.id, record: Some(record), other_driver: None, from_spec: Vec::new() }
        }
        Err(_) => Holder::of_spec(cdi, &entry.id),
    };
    Ok(journal.shared_claims()?.into_iter().map(holder).collect())
}

/// [`holders`] and [`holders_of_other_drivers`]: every possible holder of a card.
pub(in crate::prepare) fn all_holders(
    journal: &Journal,
    cdi: &cdi::Directory,
) -> Result<Vec<Holder>, PrepareError> {
    let mut all = holders(journal, cdi)?;
    all.extend(holders_of_other_drivers(cdi)?);
    Ok(all)
}

/// The claims prepared by other installations of Tessera on this node, under other driver names, by their CDI specs: all
/// installations share the CDI directory, but each driver has its own journal. Blocks for file reads.
fn holders_of_other_drivers(cdi: &cdi::Directory) -> Result<Vec<Holder>, cdi::CdiError> {
    let holder = |(driver, uid, spec): (String, String, cdi::Spec)| Holder {
        from_spec: devices_in(&spec, &uid),
        uid,
        record: None,
        other_driver: Some(driver),
    };
    Ok(cdi.of_other_drivers()?.into_iter().map(holder).collect())
}

/// Ids of the hardware records referenced by claims, except those of the claim `except`.
pub(in crate::prepare) fn references(
    holders: &[Holder],
    boot: &BootId,
    except: Option<&str>,
) -> BTreeSet<String> {
    let mut references = BTreeSet::new();
    for holder in holders.iter().filter(|holder| Some(&*holder.uid) != except) {
        holder.add_references(boot, &mut references);
    }
    references
}

fn devices_in(spec: &cdi::Spec, uid: &str) -> Vec<InSpec> {
    let names = spec.devices.iter().map(|device| device.name.as_str());
    let device = |name: &str| {
        let (card, device) = device_of(name, uid)?;
        Some(InSpec { card, device, cdi_name: name.to_owned() })
    };
    names.filter_map(device).collect()
}

/// The device behind a claim's CDI device name. A share id may follow the device.
fn device_of(name: &str, uid: &str) -> Option<(PciBusId, String)> {
    let mut device = name.strip_prefix(uid)?.strip_prefix('-')?;
    loop {
        if let Ok(parsed) = device.parse::<DeviceName>() {
            return Some((parsed.card(), device.to_owned()));
        }
        (device, _) = device.rsplit_once('-')?;
    }
}

impl Worker {
    /// A claim whose record can't be read, by its CDI spec.
    pub async fn holder_of_spec(&self, claim: &ClaimReference) -> Result<Holder, PrepareError> {
        let uid = claim.uid.clone();
        self.disk(move |_, cdi| Ok::<_, PrepareError>(Holder::of_spec(cdi, &uid))).await
    }
}

impl Holder {
    /// A claim of this driver, by its CDI spec alone. Blocks for a file read.
    pub fn of_spec(cdi: &cdi::Directory, uid: &str) -> Self {
        let spec = cdi.read(uid).ok().flatten();
        let from_spec = spec.map(|spec| devices_in(&spec, uid)).unwrap_or_default();
        Self { uid: uid.to_owned(), record: None, other_driver: None, from_spec }
    }

    /// The CDI names of the devices in the spec.
    pub fn cdi_names(&self) -> BTreeSet<&str> {
        self.from_spec.iter().map(|device| &*device.cdi_name).collect()
    }

    /// The ids of the hardware records possibly referenced by the spec's devices, by card.
    pub fn hardware_by_card(&self) -> BTreeMap<PciBusId, BTreeSet<String>> {
        let mut cards = BTreeMap::<_, BTreeSet<String>>::new();
        for InSpec { card, device, .. } in &self.from_spec {
            let ids = cards.entry(*card).or_default();
            ids.extend([mode_id(*card), device.clone(), own_share_id(device)]);
            let name = device.parse().ok();
            let partition = name.as_ref().and_then(DeviceName::partition);
            ids.extend(partition.map(ToString::to_string));
        }
        cards
    }

    /// The claim, if its record can be read.
    pub fn claim(&self) -> Option<ClaimReference> {
        self.record.as_deref().map(reference::of_record)
    }

    /// Adds the hardware records referenced by this claim. A claim with an unreadable record counts for all possible needs of its
    /// devices; one of another boot for nothing, because nothing made in another boot exists any more.
    fn add_references(&self, boot: &BootId, references: &mut BTreeSet<String>) {
        match &self.record {
            Some(record) if record.boot_id == *boot => {
                references.extend(record.devices.iter().flat_map(|device| &device.hardware).cloned());
            }
            Some(_) => {}
            None => references.extend(self.hardware_by_card().into_values().flatten()),
        }
    }

    /// Whether any of its uses excludes `other`.
    pub fn conflicts_with(&self, other: Use<'_>) -> bool {
        let recorded = self.record.iter().flat_map(|record| &record.devices).map(Use::of_record);
        let from_spec = self.from_spec.iter().map(|device| Use::of_whole_card(device.card, &device.device));
        recorded.chain(from_spec).any(|mine| mine.conflicts_with(other))
    }
}

/// The claim's name in messages.
impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.claim(), &self.other_driver) {
            (Some(claim), _) => claim.fmt(formatter),
            (None, Some(driver)) => write!(formatter, "with uid {} of driver {driver}", self.uid),
            (None, None) => write!(formatter, "with uid {}, whose journal record can't be read", self.uid),
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
