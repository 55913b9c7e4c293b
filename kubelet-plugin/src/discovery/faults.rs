//! Faults of a card, from its driver's answers.

use std::collections::BTreeSet;

use tessera_api::PciBusId;
use tessera_api::health::{HealthClass, HealthFault, Recovery};
use tessera_inventory::machine::{Card, FabricState};
use tessera_nvml::{HealthReadings, NvmlError, Reading};

use super::own_partitions::OwnPartitions;
use super::problem::Problems;
use super::resets::Counted;

/// Updates `card` with the driver's health readings. Unreadable values stay unchanged. Returns the driver's
/// counters.
pub(super) fn read(
    card: &mut Card,
    answer: Result<HealthReadings, NvmlError>,
    problems: &mut Problems,
) -> Counted {
    let pci = card.pci;
    let readings = match answer {
        Ok(readings) => readings,
        Err(error) => {
            if !error.is_unsupported() {
                problems.add(Some(pci), "health", error);
            }
            return Counted::default();
        }
    };
    let HealthReadings {
        uncorrected_errors,
        remapped_rows,
        retired_pages_pending,
        clocks_events,
        fabric,
        recovery,
        energy_millijoules,
        persistence_mode,
    } = readings;
    let registration = card.fabric.as_ref().map(|fabric| fabric.state);
    // MIG mode keeps its NVLinks down, and its partitions need no fabric.
    let is_divided = card.mig.as_ref().is_some_and(|mig| mig.mode);
    let mut found = Found { pci, faults: &mut card.faults, problems };
    found.take(&uncorrected_errors, &[(HealthClass::EccUncorrectable, |errors| *errors > 0)]);
    found.take(
        &remapped_rows,
        &[
            (HealthClass::RowRemapPending, |rows| rows.pending),
            (HealthClass::RowRemapFailed, |rows| rows.failed),
        ],
    );
    found.take(&retired_pages_pending, &[(HealthClass::RetiredPagesPending, |pending| *pending)]);
    found.take(
        &clocks_events,
        &[
            (HealthClass::Thermal, |events| events.is_hot()),
            (HealthClass::PowerBrake, |events| events.is_power_braked()),
        ],
    );
    found.take(&fabric, &[(HealthClass::Fabric, |fabric| fabric.is_faulty())]);
    if registration == Some(FabricState::Failed) {
        found.set(HealthClass::Fabric, true);
    }
    let is_registering =
        matches!(registration, Some(FabricState::NotStarted | FabricState::InProgress)) && !is_divided;
    found.set(HealthClass::FabricNotReady, is_registering);
    found.take(&recovery, &[(HealthClass::RecoveryAction, |recovery| *recovery != Recovery::None)]);
    if let Ok(recovery) = recovery {
        card.recovery = recovery;
    }
    Counted::new(energy_millijoules.ok().flatten(), persistence_mode.ok().flatten().unwrap_or_default())
}

/// Takes the partitions of ended claims that the driver fails to destroy from the journal.
pub(super) fn read_own(card: &mut Card, own: Option<&dyn OwnPartitions>, problems: &mut Problems) {
    let Some(own) = own else { return };
    match own.of_card(card.pci, card.uuid.as_deref().unwrap_or_default()) {
        Ok(partitions) => {
            card.faults.retain(|fault| fault.class != HealthClass::PartitionNotReleased);
            let held = partitions.iter().filter(|partition| partition.not_released);
            card.faults
                .extend(held.map(|partition| HealthFault::partition_not_released(partition.placement)));
        }
        Err(error) => problems.add(Some(card.pci), "health", error),
    }
}

/// A class of faults, and the condition for it in a reading.
type Shows<T> = (HealthClass, fn(&T) -> bool);

/// The faults and problems of a card.
struct Found<'a> {
    pci: PciBusId,
    faults: &'a mut BTreeSet<HealthFault>,
    problems: &'a mut Problems,
}

impl Found<'_> {
    fn take<T>(&mut self, reading: &Reading<T>, shows: &[Shows<T>]) {
        match reading {
            Ok(value) => {
                for (class, is_shown) in shows {
                    self.set(*class, value.as_ref().is_some_and(is_shown));
                }
            }
            Err(error) => self.problems.add(Some(self.pci), "health", error),
        }
    }

    fn set(&mut self, class: HealthClass, is_there: bool) {
        set(self.faults, class, is_there);
    }
}

/// Adds or removes the fault of this class.
pub(super) fn set(faults: &mut BTreeSet<HealthFault>, class: HealthClass, is_there: bool) {
    faults.retain(|fault| fault.class != class);
    if is_there {
        faults.insert(HealthFault::new(class));
    }
}

/// Adds the card's XIDs and a down NVLink to its faults. If the driver recommends a recovery, the recommendation is for all faults.
pub(super) fn complete(card: &mut Card, xids: impl Iterator<Item = HealthFault>, nvlink_down: bool) {
    card.faults.retain(|fault| !matches!(fault.class, HealthClass::Xid | HealthClass::NvlinkDown));
    card.faults.extend(xids);
    if nvlink_down {
        card.faults.insert(HealthFault::new(HealthClass::NvlinkDown));
    }
    let recommended = card.recovery;
    let faults = std::mem::take(&mut card.faults).into_iter();
    card.faults = faults.map(|fault| fault.with_recommendation(recommended)).collect();
}

#[cfg(test)]
mod tests {
    use tessera_inventory::machine::{ClusterUuid, Fabric, Mig};
    use tessera_nvml::{ClocksEvents, FabricHealth, RemappedRows};

    use super::*;

    fn healthy() -> HealthReadings {
        HealthReadings {
            uncorrected_errors: Ok(Some(0)),
            remapped_rows: Ok(Some(RemappedRows { pending: false, failed: false })),
            retired_pages_pending: Ok(None),
            clocks_events: Ok(Some(ClocksEvents(4))),
            fabric: Ok(Some(FabricHealth(0))),
            recovery: Ok(Some(Recovery::None)),
            energy_millijoules: Ok(Some(7)),
            persistence_mode: Ok(Some(true)),
        }
    }

    fn unreadable<T>() -> Reading<T> {
        Err(NvmlError::NoThread { reason: "test".to_owned() })
    }

    fn names(card: &Card) -> Vec<String> {
        card.faults.iter().map(HealthFault::name).collect()
    }

    #[test]
    fn only_a_registered_card_is_ready_for_its_fabric() {
        let mut card = Card::new("0000:3b:00.0".parse().unwrap());
        let mut told = |state: FabricState, is_divided: bool| {
            card.fabric = Some(Fabric { state, cluster: ClusterUuid::default(), clique: 0 });
            card.mig = Some(Mig { mode: is_divided, ..Mig::default() });
            read(&mut card, Ok(healthy()), &mut Problems::default());
            names(&card)
        };
        for state in [FabricState::NotStarted, FabricState::InProgress] {
            assert_eq!(told(state, false), ["fabric-not-ready"]);
            assert_eq!(told(state, true), [""; 0], "partitions need none");
        }
        assert_eq!(told(FabricState::Failed, false), ["fabric"]);
        assert_eq!(told(FabricState::Completed, false), [""; 0]);
    }

    #[test]
    fn faults_come_and_go_with_their_causes() {
        let mut card = Card::new("0000:3b:00.0".parse().unwrap());
        let mut problems = Problems::default();
        read(&mut card, Ok(healthy()), &mut problems);
        assert_eq!(names(&card), [""; 0]);
        let all = HealthReadings {
            uncorrected_errors: Ok(Some(2)),
            remapped_rows: Ok(Some(RemappedRows { pending: true, failed: true })),
            retired_pages_pending: Ok(Some(true)),
            clocks_events: Ok(Some(ClocksEvents(0x40 | 0x80))),
            fabric: Ok(Some(FabricHealth(1))),
            recovery: Ok(Some(Recovery::Reboot)),
            ..healthy()
        };
        read(&mut card, Ok(all), &mut problems);
        let every = [
            "recovery-action",
            "row-remap-failed",
            "ecc-uncorrectable",
            "row-remap-pending",
            "retired-pages-pending",
            "fabric",
            "thermal",
            "power-brake",
        ];
        assert_eq!(names(&card), every);
        complete(&mut card, std::iter::empty(), true);
        let recovery = |card: &Card, class| {
            card.faults.iter().find(|fault| fault.class == class).map(|fault| fault.recovery)
        };
        assert_eq!(recovery(&card, HealthClass::EccUncorrectable), Some(Recovery::Reboot));
        assert_eq!(recovery(&card, HealthClass::RowRemapFailed), Some(Recovery::Replace));
        assert_eq!(recovery(&card, HealthClass::Thermal), Some(Recovery::None));

        let newer = HealthReadings { recovery: Ok(Some(Recovery::Unknown(23))), ..healthy() };
        read(&mut card, Ok(newer), &mut problems);
        complete(&mut card, std::iter::empty(), false);
        assert_eq!(recovery(&card, HealthClass::RecoveryAction), Some(Recovery::Unknown(23)), "not the last");

        let all = HealthReadings { uncorrected_errors: Ok(Some(2)), ..healthy() };
        read(&mut card, Ok(all), &mut problems);
        let unknown = HealthReadings { uncorrected_errors: unreadable(), ..healthy() };
        read(&mut card, Ok(unknown), &mut problems);
        complete(&mut card, std::iter::empty(), false);
        assert_eq!(names(&card), ["ecc-uncorrectable"], "what can't be read stays");
        read(&mut card, Ok(healthy()), &mut problems);
        assert_eq!(names(&card), [""; 0]);
    }
}
