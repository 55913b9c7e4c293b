use tessera_api::gang::{
    GROUP_LABEL, GROUP_MIN_LABEL, GROUP_SIZE_LABEL, MAX_SIZE, OPT_IN_LABEL, WHEN_PARTIAL_EVICT,
    WHEN_PARTIAL_KEEP, WHEN_PARTIAL_LABEL,
};

/// Why the gang declarations of pods are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GangError {
    /// The pod names a gang without a size.
    #[error("it has the label {GROUP_LABEL} but not {GROUP_SIZE_LABEL}: how many pods start together?")]
    NoSize,
    /// A label is not a number in its range.
    #[error("its label {label} is \"{text}\", and must be a number from 1 to {most}")]
    Number {
        /// The label.
        label: &'static str,
        /// Value of the label.
        text: String,
        /// Maximum value.
        most: u32,
    },
    /// The minimum is above the size.
    #[error("its gang needs {min} pods to work (group-min) and has only {size} (group-size)")]
    MinAboveSize {
        /// `group-min`.
        min: u32,
        /// `group-size`.
        size: u32,
    },
    /// The number of pods declared by the owner is outside the allowed range.
    #[error("what made it says that its gang has {pods} pods: a gang has 1 to {MAX_SIZE}")]
    Size {
        /// Pods.
        pods: u64,
    },
    /// The owner never makes enough pods at once for the group named by their labels.
    #[error(
        "its group starts with {min} pods, and its {kind} makes only {pods} at once: raise them, or lower {GROUP_MIN_LABEL}"
    )]
    TooFewAtOnce {
        /// Kind of the owner.
        kind: &'static str,
        /// `group-min`.
        min: u32,
        /// Pods the owner makes at once.
        pods: u64,
    },
    /// The owner of the pod is not known, at least not yet.
    #[error("its gang is that of the {kind} {name}, which does not exist or was not seen yet")]
    NotYet {
        /// Kind of the owner.
        kind: &'static str,
        /// Name of the owner.
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
    /// The pods of the Job do not all run at once.
    #[error(
        "its Job has the label {OPT_IN_LABEL} and is no gang: that needs completionMode Indexed, and as many completions \
         as parallelism"
    )]
    NotIndexed,
    /// The workers of a LeaderWorkerSet start only when their leader is ready, while the leader waits for them.
    #[error(
        "its LeaderWorkerSet has startupPolicy LeaderReady, so that the workers would wait for the leader and the leader \
         for them: a gang needs LeaderCreated"
    )]
    LeaderReady,
    /// The value is neither of the allowed ones.
    #[error(
        "its label {WHEN_PARTIAL_LABEL} is \"{0}\", and must be {WHEN_PARTIAL_EVICT} or {WHEN_PARTIAL_KEEP}"
    )]
    WhenPartial(String),
    /// Pods of one gang declare different sizes.
    #[error(
        "the pods of its gang say different things: {} says size {} and least {}, {} says {} and {}",
        .pods[0], .sizes[0], .mins[0], .pods[1], .sizes[1], .mins[1]
    )]
    Differ {
        /// Names of two differing pods.
        pods: [String; 2],
        /// Their sizes.
        sizes: [u32; 2],
        /// Their minimums.
        mins: [u32; 2],
    },
    /// A gang has more pods than its declared size.
    #[error("{count} pods say that they belong to its gang, which has {size}")]
    TooMany {
        /// Pods.
        count: u32,
        /// Declared size.
        size: u32,
    },
}
