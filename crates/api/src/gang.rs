//! Names by which pods say that they start together or not at all.

/// Key of the label of Pods with the name of their gang. Pods of one owner with the same name are one gang.
pub const GROUP_LABEL: &str = "gpu.tessera.dev/group";

/// Key of the label of Pods with the number of pods of their gang, 1 to [`MAX_SIZE`].
pub const GROUP_SIZE_LABEL: &str = "gpu.tessera.dev/group-size";

/// Key of the label of Pods with the number of pods with which their gang can work, 1 to its size. Without it: all of them.
pub const GROUP_MIN_LABEL: &str = "gpu.tessera.dev/group-min";

/// Key of the label of Pods that says what becomes of the pods of their gang that run, when others find no room for too long:
/// [`WHEN_PARTIAL_EVICT`], as without it, or [`WHEN_PARTIAL_KEEP`].
pub const WHEN_PARTIAL_LABEL: &str = "gpu.tessera.dev/group-when-partial";

/// See [`WHEN_PARTIAL_LABEL`]: they are evicted, so that all of the gang waits.
pub const WHEN_PARTIAL_EVICT: &str = "Evict";

/// See [`WHEN_PARTIAL_LABEL`]: they go on.
pub const WHEN_PARTIAL_KEEP: &str = "Keep";

/// Key of the annotation of Pods, or of the Job, JobSet, LeaderWorkerSet or PodGroup that they belong to, with the seconds for which some
/// pods of a gang may run while the others find no room, 1 to [`MAX_PARTIAL_TIMEOUT`]. Without it the controller's setting counts.
pub const PARTIAL_TIMEOUT_ANNOTATION: &str = "gpu.tessera.dev/group-partial-timeout-seconds";

/// See [`PARTIAL_TIMEOUT_ANNOTATION`]: a week.
pub const MAX_PARTIAL_TIMEOUT: u32 = 7 * 24 * 3_600;

/// Key of the label by which the pods of a Job, JobSet or LeaderWorkerSet are gangs without naming one: on their template, or
/// on the object itself. The value is [`OPT_IN_VALUE`].
pub const OPT_IN_LABEL: &str = "gpu.tessera.dev/gang";

/// See [`OPT_IN_LABEL`].
pub const OPT_IN_VALUE: &str = "enabled";

/// Key of the annotation of Pods with the number of pods that their gang started with. The controller writes the annotation when
/// it removes the gate: a gang that grows later is not partial while so many of its pods run.
pub const FORMED_ANNOTATION: &str = "gpu.tessera.dev/gang-formed";

/// Most pods of a gang.
pub const MAX_SIZE: u32 = 4_096;
