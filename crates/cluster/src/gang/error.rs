use tessera_api::gang::{
    GROUP_LABEL, GROUP_MIN_LABEL, GROUP_SIZE_LABEL, MAX_SIZE, OPT_IN_LABEL, WHEN_PARTIAL_EVICT,
    WHEN_PARTIAL_KEEP, WHEN_PARTIAL_LABEL,
};

/// Why what pods say of their gang cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GangError {
    /// The pod names a gang and not its size.
    #[error("it has the label {GROUP_LABEL} but not {GROUP_SIZE_LABEL}: how many pods start together?")]
    NoSize,
    /// A label is no number in its range.
    #[error("its label {label} is \"{text}\", and must be a number from 1 to {most}")]
    Number {
        /// The label.
        label: &'static str,
        /// What it says.
        text: String,
        /// The most it may say.
        most: u32,
    },
    /// More pods are needed than there will be.
    #[error("its gang needs {min} pods to work (group-min) and has only {size} (group-size)")]
    MinAboveSize {
        /// `group-min`.
        min: u32,
        /// `group-size`.
        size: u32,
    },
    /// What made the pod says how many there are, and these are too few or too many.
    #[error("what made it says that its gang has {pods} pods: a gang has 1 to {MAX_SIZE}")]
    Size {
        /// Pods.
        pods: u64,
    },
    /// What makes the pods never makes enough of them for a group that their labels name.
    #[error(
        "its group starts with {min} pods, and its {kind} makes only {pods} at once: raise them, or lower {GROUP_MIN_LABEL}"
    )]
    TooFewAtOnce {
        /// The kind of what makes them.
        kind: &'static str,
        /// `group-min`.
        min: u32,
        /// Pods that it makes at once.
        pods: u64,
    },
    /// What made the pod is not known, at least not yet.
    #[error("its gang is that of the {kind} {name}, which does not exist or was not seen yet")]
    NotYet {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Objects of the kind cannot be listed.
    #[error(
        "whether it is of a gang says the {kind} {name}, and the controller cannot list objects of that kind: see its log"
    )]
    NotListed {
        /// The kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The pods of the Job do not run at once.
    #[error(
        "its Job has the label {OPT_IN_LABEL} and is no gang: that needs completionMode Indexed, and as many completions \
         as parallelism"
    )]
    NotIndexed,
    /// The workers of a LeaderWorkerSet come only when their leader is ready, which waits for them.
    #[error(
        "its LeaderWorkerSet has startupPolicy LeaderReady, so that the workers would wait for the leader and the leader \
         for them: a gang needs LeaderCreated"
    )]
    LeaderReady,
    /// The label says neither.
    #[error(
        "its label {WHEN_PARTIAL_LABEL} is \"{0}\", and must be {WHEN_PARTIAL_EVICT} or {WHEN_PARTIAL_KEEP}"
    )]
    WhenPartial(String),
    /// Pods of one gang name different sizes.
    #[error(
        "the pods of its gang say different things: {} says size {} and least {}, {} says {} and {}",
        .pods[0], .sizes[0], .mins[0], .pods[1], .sizes[1], .mins[1]
    )]
    Differ {
        /// Names of two that differ.
        pods: [String; 2],
        /// Their sizes.
        sizes: [u32; 2],
        /// Their least numbers.
        mins: [u32; 2],
    },
    /// A gang has more pods than it says.
    #[error("{count} pods say that they belong to its gang, which has {size}")]
    TooMany {
        /// Pods.
        count: u32,
        /// The size that they say.
        size: u32,
    },
}
