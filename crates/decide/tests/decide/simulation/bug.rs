//! Mistakes that a controller could make, to see that the simulation finds them.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceSlice;
use tessera_api::steering::GATE;
use tessera_cluster::workloads::JobStatus;
use tessera_cluster::{Kind, Object};
use tessera_decide::Observation;

/// A mistake around the loop: in what it is told, or in how its intents are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// What became of an intent is never said.
    ResultNotReported,
    /// A write that failed is said to be done.
    FailureReportedAsDone,
    /// 409, which also means that the pod changed meanwhile, is taken for a pod that is gone.
    ConflictTakenForGone,
    /// The loop is not called when it wants to be: pauses after failures never end.
    WakeIgnored,
    /// Before each decision the loop forgets which pods it sent on their way.
    SteersNotCounted,
    /// After a restart, pods that were sent by the process before are not seen as such.
    NominationNotObserved,
    /// After a restart, a pod that was nominated but still has its gate counts as done.
    HalfSteeredSkipped,
    /// It decides before it has seen all that exists.
    DecidesBeforeTheListIsComplete,
    /// Events lost between two watches are made good for what exists, but not for what is gone.
    RelistWithoutDeletions,
    /// The deletion of pods is not observed.
    PodDeletionNotObserved,
    /// The deletion of claims is not observed.
    ClaimDeletionNotObserved,
    /// That a claim gave its devices back is not observed.
    DeallocationNotObserved,
    /// That slices are gone is not observed.
    SliceDeletionNotObserved,
    /// What a node's plugin reports is read once: a pool that turns Native or Steered is not observed.
    ReportReadOnce,
    /// Nodes are read once: cordons are not observed.
    NodeReadOnce,
    /// kube-scheduler's refusal is not observed.
    RefusalNotObserved,
    /// The binding is not observed.
    BindingNotObserved,
    /// Gates of others are not observed.
    OtherGatesNotObserved,
    /// The gate is lifted first, then the node is proposed.
    GateLiftedFirst,
    /// The gate is lifted although the proposal failed.
    NominationFailureIgnored,
    /// Writes do not say which uid they mean: a new pod of the same name is lifted.
    UidNotChecked,
    /// Releases are not carried out.
    ReleaseDropped,
    /// A replica that led once goes on writing.
    LeadershipNotChecked,
    /// Writes to claims do not say which version they mean.
    VersionNotChecked,
    /// What an earlier leader prepared is not fenced off, nor what this one is unsure of.
    FenceSkipped,
    /// What got no answer counts as settled without a write that makes sure of it.
    SettleSkipped,
    /// Where the allocation failed, the version after the write before it is reported as the claim's with devices.
    MarkTakenForAllocation,
    /// Cards are given out as soon as they are managed.
    HandoverSkipped,
    /// A fresh list of claims is said to be read, and is not.
    ListNotFresh,
    /// The gate of a pod of a gang is lifted when it has its own devices.
    GateOfGangLiftedAtOnce,
    /// Evictions are not carried out.
    EvictionDropped,
    /// That pods belong to a gang is not observed.
    GangNotObserved,
    /// What is nominated is seen as soon as it is decided on, whatever becomes of the write.
    NominationTakenAsSeen,
    /// That the queue of a pool is strict is not observed.
    StrictNotObserved,
    /// After how long nodes are kept for a gang is not observed.
    ReservationNotObserved,
    /// Pods count as ones that end at once.
    DeadlineTakenForShort,
    /// Disruption budgets are not observed.
    BudgetNotObserved,
    /// That a write to a claim was refused for good is said of it as of any other that failed.
    RefusalNotTold,
    /// That kube-scheduler could not bind a pod is not observed.
    SchedulerErrorNotObserved,
    /// For which scheduler pods are is not observed.
    SchedulerNameNotObserved,
    /// Which pods of a Job are done is not observed.
    JobStatusNotObserved,
}

impl Bug {
    /// All of them.
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

    /// Those that pairs of faults find.
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

    /// Those that cases find, each with its name.
    pub const OF_CASES: [(Bug, &str); 4] = [
        (Bug::RefusalNotTold, "a claim refuses every write"),
        (Bug::SchedulerErrorNotObserved, "a pod is never bound"),
        (Bug::SchedulerNameNotObserved, "a foreign scheduler"),
        (Bug::JobStatusNotObserved, "a finished pod is deleted"),
    ];

    /// What the loop is told instead of what happened. `before` is the object as it was told last.
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
            (Bug::BudgetNotObserved, Object::DisruptionBudget(_)) => return None,
            (Bug::NodeReadOnce, Object::Node(_)) if before.is_some() => return None,
            _ => {}
        }
        Some(Observation::Applied(Box::new(object)))
    }

    /// Whether the loop is not told that an object of this kind is gone.
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
