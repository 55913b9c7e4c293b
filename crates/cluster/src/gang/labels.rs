//! What the controllers of JobSets and LeaderWorkerSets write on the pods that they make.

/// Of a JobSet (`jobset.sigs.k8s.io`): its name.
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// Its uid.
pub const JOBSET_UID: &str = "jobset.sigs.k8s.io/jobset-uid";
/// How often it began anew.
pub const JOBSET_ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
/// Which of its Jobs are alike.
pub const JOBSET_REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
/// The number of the Job among all of the JobSet.
pub const JOBSET_JOB: &str = "jobset.sigs.k8s.io/job-global-index";

/// Of a LeaderWorkerSet (`leaderworkerset.x-k8s.io`): its name.
pub const LWS_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// The number of the replica.
pub const LWS_REPLICA: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// The number of the pod in its replica.
pub const LWS_WORKER: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// An annotation: how many there are of one replica.
pub const LWS_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
/// A hash of the template that the pod was made from: it differs between the groups before and after a rolling update.
pub const LWS_REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
