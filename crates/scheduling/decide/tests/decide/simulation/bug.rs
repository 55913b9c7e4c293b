//! Mistakes a controller could make, planted to check the simulation.

mod teams;

use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceSlice;
use tessera_api::gpu_pool::IDLE_ANNOTATION;
use tessera_api::steering::GATE;
use tessera_cluster::workloads::JobStatus;
use tessera_cluster::{Kind, Object};
use tessera_decide::Observation;

/// A mistake around the loop: in its observations, or in carrying out its intents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The outcome of an intent is never reported.
    ResultNotReported,
    /// A failed write is reported as done.
    FailureReportedAsDone,
    /// 409, also the answer for a pod changed in between, is taken for a deleted pod.
    ConflictTakenForGone,
    /// Wake-up times of the loop are ignored: back-off after failures never ends.
    WakeIgnored,
    /// Before each decision the loop forgets the pods on their way.
    SteersNotCounted,
    /// After a restart, pods sent by the previous process are not recognized.
    NominationNotObserved,
    /// After a restart, a nominated pod whose gate is still in place counts as done.
    HalfSteeredSkipped,
    /// Decisions are made before the initial lists are complete.
    DecidesBeforeTheListIsComplete,
    /// A relist after lost events restores existing objects, but not deletions.
    RelistWithoutDeletions,
    /// Pod deletions are not observed.
    PodDeletionNotObserved,
    /// Claim deletions are not observed.
    ClaimDeletionNotObserved,
    /// Deallocations of claims are not observed.
    DeallocationNotObserved,
    /// Slice deletions are not observed.
    SliceDeletionNotObserved,
    /// Node reports are read once: a pool turning Native or Steered is not observed.
    ReportReadOnce,
    /// Nodes are read once: cordons are not observed.
    NodeReadOnce,
    /// kube-scheduler's refusal is not observed.
    RefusalNotObserved,
    /// The binding is not observed.
    BindingNotObserved,
    /// Gates of others are not observed.
    OtherGatesNotObserved,
    /// The gate is lifted before the node is nominated.
    GateLiftedFirst,
    /// The gate is lifted although the nomination failed.
    NominationFailureIgnored,
    /// Writes carry no uid: the gate of a new pod of the same name is lifted.
    UidNotChecked,
    /// Releases are not carried out.
    ReleaseDropped,
    /// A former leader goes on writing.
    LeadershipNotChecked,
    /// Writes to claims carry no resource version.
    VersionNotChecked,
    /// Claims prepared by an earlier leader, or with an uncertain write of this one, are not fenced.
    FenceSkipped,
    /// A write without an answer counts as settled, without another write to make sure.
    SettleSkipped,
    /// After a failed allocation, the version from the preceding mark is reported as the version with devices.
    MarkTakenForAllocation,
    /// Cards are allocated as soon as they are managed.
    HandoverSkipped,
    /// A fresh list of claims is reported, but not made.
    ListNotFresh,
    /// The gate of a gang's pod is lifted as soon as its own devices are allocated.
    GateOfGangLiftedAtOnce,
    /// Evictions are not carried out.
    EvictionDropped,
    /// Gang membership of pods is not observed.
    GangNotObserved,
    /// A nomination is observed as soon as decided, whatever the outcome of the write.
    NominationTakenAsSeen,
    /// Strict queueing of a pool is not observed.
    StrictNotObserved,
    /// The delay before nodes are reserved for a gang is not observed.
    ReservationNotObserved,
    /// Unbound pods count as ending at once.
    DeadlineTakenForShort,
    /// Disruption budgets are not observed.
    BudgetNotObserved,
    /// A permanent refusal of a write to a claim or pod is reported like any other failure.
    RefusalNotTold,
    /// kube-scheduler's failure to bind a pod is not observed.
    SchedulerErrorNotObserved,
    /// The scheduler name of pods is not observed.
    SchedulerNameNotObserved,
    /// Completed indexes of a Job are not observed.
    JobStatusNotObserved,
    /// A claim that is gone is still charged.
    ChargeNotReleased,
    /// A claim with devices is charged for one card more.
    ChargedTwice,
    /// Limits of quotas are not observed.
    LimitNotChecked,
    /// Of `firstAvailable` only the first choice is looked at.
    LimitBeforeChoice,
    /// One quota's guarantee is not observed: its devices count as borrowed.
    GuaranteeNotObserved,
    /// Devices are taken back beyond the guarantee, without end where two teams do.
    GuaranteeOverrun,
    /// Parents of quotas are not observed.
    ParentNotObserved,
    /// Pods that do not borrow count as others.
    BorrowNotObserved,
    /// Budgets are not observed with which new pods wait.
    HoursNotObserved,
    /// Budgets are not observed after which a team only borrows.
    LentOnlyNotObserved,
    /// Devices are taken back at once when a quota changes.
    GraceSkipped,
    /// Devices of exempt pods are not charged.
    ExemptNotCharged,
    /// Gangs are taken to need a single pod once they run.
    MinimumNotObserved,
    /// Owners of pods are not observed.
    OwnerNotObserved,
    /// It is not observed that a pod uses its devices again.
    UseNotObserved,
    /// Annotations by which pods keep idle devices are not observed.
    KeepNotObserved,
    /// The weight of a team swings with each change of its quota: what it takes for its fair share others take back.
    PingPong,
}

impl Bug {
    /// Bugs found by random runs.
    pub const ALL: [Bug; 32] = [
        Bug::ResultNotReported,
        Bug::FailureReportedAsDone,
        Bug::ConflictTakenForGone,
        Bug::WakeIgnored,
        Bug::SteersNotCounted,
        Bug::NominationNotObserved,
        Bug::HalfSteeredSkipped,
        Bug::DecidesBeforeTheListIsComplete,
        Bug::RelistWithoutDeletions,
        Bug::PodDeletionNotObserved,
        Bug::ClaimDeletionNotObserved,
        Bug::DeallocationNotObserved,
        Bug::SliceDeletionNotObserved,
        Bug::ReportReadOnce,
        Bug::NodeReadOnce,
        Bug::RefusalNotObserved,
        Bug::BindingNotObserved,
        Bug::OtherGatesNotObserved,
        Bug::GateLiftedFirst,
        Bug::NominationFailureIgnored,
        Bug::UidNotChecked,
        Bug::ReleaseDropped,
        Bug::LeadershipNotChecked,
        Bug::VersionNotChecked,
        Bug::FenceSkipped,
        Bug::GateOfGangLiftedAtOnce,
        Bug::GangNotObserved,
        Bug::NominationTakenAsSeen,
        Bug::StrictNotObserved,
        Bug::ReservationNotObserved,
        Bug::DeadlineTakenForShort,
        Bug::BudgetNotObserved,
    ];

    /// Bugs found by random runs with quotas, each with what the check says that is to find it.
    pub const OF_TEAMS: [(Bug, &str); 14] = [
        (Bug::ChargeNotReleased, "is charged"),
        (Bug::ChargedTwice, "is charged"),
        (Bug::LimitNotChecked, "beyond"),
        (Bug::LimitBeforeChoice, "fits on"),
        (Bug::GuaranteeNotObserved, "its team is within its guarantee"),
        (Bug::GuaranteeOverrun, "which gets more than"),
        (Bug::ParentNotObserved, "beyond"),
        (Bug::BorrowNotObserved, "beyond"),
        (Bug::HoursNotObserved, "past the GPU hours"),
        (Bug::LentOnlyNotObserved, "nothing of cards"),
        (Bug::GraceSkipped, "gives back too soon"),
        (Bug::ExemptNotCharged, "is charged"),
        (Bug::MinimumNotObserved, "is torn"),
        (Bug::PingPong, "has as much afterwards"),
    ];

    /// Bugs found by random runs with idle pods, each with what the check says that is to find it.
    pub const OF_IDLE_PODS: [(Bug, &str); 4] = [
        (Bug::OwnerNotObserved, "takes its card back"),
        (Bug::UseNotObserved, "and computes"),
        (Bug::KeepNotObserved, "wants to keep"),
        (Bug::GangNotObserved, "is of a gang that computes"),
    ];

    /// Bugs found by pairs of faults.
    pub const OF_PAIRS: [Bug; 14] = [
        Bug::ResultNotReported,
        Bug::FailureReportedAsDone,
        Bug::WakeIgnored,
        Bug::BindingNotObserved,
        Bug::DeallocationNotObserved,
        Bug::LeadershipNotChecked,
        Bug::VersionNotChecked,
        Bug::FenceSkipped,
        Bug::SettleSkipped,
        Bug::MarkTakenForAllocation,
        Bug::HandoverSkipped,
        Bug::ListNotFresh,
        Bug::GateOfGangLiftedAtOnce,
        Bug::EvictionDropped,
    ];

    /// Bugs found by cases, each with the name of its case.
    pub const OF_CASES: [(Bug, &str); 5] = [
        (Bug::RefusalNotTold, "a claim refuses every write"),
        (Bug::RefusalNotTold, "a pod refuses every write"),
        (Bug::SchedulerErrorNotObserved, "a pod is never bound"),
        (Bug::SchedulerNameNotObserved, "a foreign scheduler"),
        (Bug::JobStatusNotObserved, "a finished pod is deleted"),
    ];

    /// The loop's observation in place of the true one. `before` is the object as last observed.
    pub fn observation(self, object: &Object, before: Option<&Arc<Object>>) -> Option<Observation> {
        let mut object = object.clone();
        match (self, &mut object) {
            (Bug::NominationNotObserved, Object::Pod(pod)) => {
                pod.status.get_or_insert_default().nominated_node_name = None;
            }
            (Bug::HalfSteeredSkipped, Object::Pod(pod))
                if pod.status.as_ref().is_some_and(|status| status.nominated_node_name.is_some()) =>
            {
                pod.spec.get_or_insert_default().scheduling_gates = None;
            }
            (Bug::RefusalNotObserved, Object::Pod(pod)) => {
                pod.status.get_or_insert_default().conditions = None;
            }
            (Bug::SchedulerErrorNotObserved, Object::Pod(pod)) => {
                let conditions = pod.status.iter_mut().filter_map(|status| status.conditions.as_mut());
                conditions.for_each(|all| all.retain(|one| one.reason.as_deref() != Some("SchedulerError")));
            }
            (Bug::SchedulerNameNotObserved, Object::Pod(pod)) => {
                pod.spec.get_or_insert_default().scheduler_name = None;
            }
            (Bug::JobStatusNotObserved, Object::Job(job)) => job.status = JobStatus::default(),
            (Bug::BindingNotObserved, Object::Pod(pod)) => {
                pod.spec.get_or_insert_default().node_name = None;
            }
            (Bug::GangNotObserved, Object::Pod(pod)) => pod.metadata.labels = None,
            (Bug::OtherGatesNotObserved, Object::Pod(pod)) => {
                let gates = &mut pod.spec.get_or_insert_default().scheduling_gates;
                gates.iter_mut().for_each(|gates| gates.retain(|gate| gate.name == GATE));
            }
            (Bug::DeallocationNotObserved, Object::ResourceClaim(claim)) => {
                let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
                if let Some(Object::ResourceClaim(before)) = before.map(Arc::as_ref)
                    && allocation.is_none()
                    && before.metadata.uid == claim.metadata.uid
                {
                    claim.status.clone_from(&before.status);
                }
            }
            (Bug::ReportReadOnce, Object::ResourceSlice(slice)) => {
                if let Some(Object::ResourceSlice(before)) = before.map(Arc::as_ref) {
                    slice.metadata.annotations.clone_from(&before.metadata.annotations);
                }
            }
            (Bug::StrictNotObserved, Object::ResourceSlice(slice)) => {
                replace_in_report(slice, r#""queue":"Strict""#, r#""queue":"BestEffort""#);
            }
            (Bug::ReservationNotObserved, Object::ResourceSlice(slice)) => {
                replace_in_report(slice, r#""reserveAfterSeconds":20"#, r#""reserveAfterSeconds":86400"#);
            }
            (Bug::DeadlineTakenForShort, Object::Pod(pod)) => {
                if let Some(spec) = pod.spec.as_mut().filter(|spec| spec.node_name.is_none()) {
                    spec.active_deadline_seconds = Some(1);
                }
            }
            (Bug::OwnerNotObserved, Object::Pod(pod)) => pod.metadata.owner_references = None,
            (Bug::UseNotObserved, Object::ResourceClaim(claim)) => {
                let devices = claim.status.iter_mut().flat_map(|status| status.devices.iter_mut().flatten());
                for condition in devices.flat_map(|device| device.conditions.iter_mut().flatten()) {
                    "True".clone_into(&mut condition.status);
                }
            }
            (Bug::KeepNotObserved, Object::Pod(pod)) => {
                pod.metadata.annotations.iter_mut().for_each(|all| drop(all.remove(IDLE_ANNOTATION)));
            }
            (Bug::BudgetNotObserved, Object::DisruptionBudget(_)) => return None,
            (Bug::NodeReadOnce, Object::Node(_)) if before.is_some() => return None,
            _ => self.change_for_teams(&mut object),
        }
        Some(Observation::Applied(Box::new(object)))
    }

    /// Whether deletions of this kind are hidden from the loop.
    pub fn hides_deletion(self, kind: Kind) -> bool {
        matches!(
            (self, kind),
            (Bug::PodDeletionNotObserved, Kind::Pod)
                | (Bug::ClaimDeletionNotObserved, Kind::ResourceClaim)
                | (Bug::SliceDeletionNotObserved, Kind::ResourceSlice)
        )
    }
}

fn replace_in_report(slice: &mut ResourceSlice, what: &str, by: &str) {
    for text in slice.metadata.annotations.iter_mut().flat_map(|all| all.values_mut()) {
        *text = text.replace(what, by);
    }
}
