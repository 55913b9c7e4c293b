//! Labels and annotations set by the JobSet and LeaderWorkerSet controllers on their pods.

/// Name of the JobSet (`jobset.sigs.k8s.io`).
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// Uid of the JobSet.
pub const JOBSET_UID: &str = "jobset.sigs.k8s.io/jobset-uid";
/// Restart count of the JobSet.
pub const JOBSET_ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
/// Name of the ReplicatedJob: a set of Jobs with the same template.
pub const JOBSET_REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
/// Index of the Job among all Jobs of the JobSet.
pub const JOBSET_JOB: &str = "jobset.sigs.k8s.io/job-global-index";

/// Name of the LeaderWorkerSet (`leaderworkerset.x-k8s.io`).
pub const LWS_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// Index of the replica.
pub const LWS_REPLICA: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// Index of the pod in its replica.
pub const LWS_WORKER: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// Annotation with the number of pods of one replica.
pub const LWS_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
/// Hash of the pod's template, different for the groups before and after a rolling update.
pub const LWS_REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
