//! Names for pods that start together or not at all.

/// Key of the label of Pods with the name of their gang. Pods of one owner with the same name are one gang.
pub const GROUP_LABEL: &str = "gpu.tessera.dev/group";

/// Key of the label of Pods with the number of pods of their gang, 1 to [`MAX_SIZE`].
pub const GROUP_SIZE_LABEL: &str = "gpu.tessera.dev/group-size";

/// Key of the label of Pods with the smallest useful number of pods of their gang, 1 to its size. The default is all of them.
pub const GROUP_MIN_LABEL: &str = "gpu.tessera.dev/group-min";

/// Key of the label of Pods with the action for the running pods of their gang when others find no room for too long:
/// [`WHEN_PARTIAL_EVICT`] (the default) or [`WHEN_PARTIAL_KEEP`].
pub const WHEN_PARTIAL_LABEL: &str = "gpu.tessera.dev/group-when-partial";

/// See [`WHEN_PARTIAL_LABEL`]: running pods are evicted, so that all of the gang waits.
pub const WHEN_PARTIAL_EVICT: &str = "Evict";

/// See [`WHEN_PARTIAL_LABEL`]: running pods go on.
pub const WHEN_PARTIAL_KEEP: &str = "Keep";

/// Key of the annotation of Pods, or of their Job, JobSet, LeaderWorkerSet or PodGroup, with the seconds for which some
/// pods of a gang may run while the others find no room, 1 to [`MAX_PARTIAL_TIMEOUT`]. The default is the controller's setting.
pub const PARTIAL_TIMEOUT_ANNOTATION: &str = "gpu.tessera.dev/group-partial-timeout-seconds";

/// See [`PARTIAL_TIMEOUT_ANNOTATION`]: a week.
pub const MAX_PARTIAL_TIMEOUT: u32 = 7 * 24 * 3_600;

/// Key of the label that makes the pods of a Job, JobSet or LeaderWorkerSet gangs without naming one: on their template, or
/// on the object itself. The value is [`OPT_IN_VALUE`].
pub const OPT_IN_LABEL: &str = "gpu.tessera.dev/gang";

/// See [`OPT_IN_LABEL`].
pub const OPT_IN_VALUE: &str = "enabled";

/// Key of the annotation of Pods with the number of pods at the start of their gang. The controller writes the annotation when
/// removing the gate, and lowers the number when the gang shrinks. A gang that grows later is not partial while this many of its pods
/// run.
pub const FORMED_ANNOTATION: &str = "gpu.tessera.dev/gang-formed";

/// Most pods of a gang.
pub const MAX_SIZE: u32 = 4_096;
