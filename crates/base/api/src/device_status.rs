//! The kubelet plugin's conditions for a claim's devices in `status.devices` (KEP-4817).

/// Type of the condition of an allocated device stating whether the device can be prepared. `False` from the first permanent
/// failure on; `lastTransitionTime` is the time of this first failure, `reason` and `message` describe the last one. `True`
/// once the claim is prepared after a failure ([`PREPARED`]). A claim prepared without such a failure has no condition.
pub const READY: &str = "Ready";

/// `reason` of [`READY`] for a claim prepared after earlier failures.
pub const PREPARED: &str = "Prepared";

/// `reason` of [`READY`] for an invalid configuration in the claim itself, so that no other device would help.
pub const INVALID_CONFIG: &str = "InvalidConfig";

/// `reason` of [`READY`] for a healthy device held by another claim, so that another device would help.
pub const HELD: &str = "Held";

/// Key of the annotation of Pods with the number of pods of the same owner evicted by the controller because a device could not be
/// prepared for them.
pub const EVICTIONS_ANNOTATION: &str = "gpu.tessera.dev/evictions";

/// Type of the condition of all devices of a claim that their pods do not use, in pools with an
/// [`Idle`](crate::gpu_pool::Idle) action. `True` since the time without use was over ([`BELOW`], [`NOT_STARTED`]); `False`
/// after use, or when the use is not known any more. A claim that never was idle has no such condition.
pub const IDLE: &str = "Idle";

/// `reason` of a true [`IDLE`]: in every look the use was below the pool's limit.
pub const BELOW: &str = "BelowLimit";

/// `reason` of a true [`IDLE`]: no container of the claim's pods has started.
pub const NOT_STARTED: &str = "NotStarted";

/// Type of the condition of all devices of a claim whose programs hold more memory than the claim was promised of a device that limits
/// nobody: a time-slice. `True` with reason [`ABOVE_PART`] or [`ENDANGERS`], `False` once they hold less. A claim that never held more
/// has no such condition.
pub const MEMORY_OVERUSE: &str = "MemoryOveruse";

/// `reason` of a true [`MEMORY_OVERUSE`]: the neighbours can have what they were promised.
pub const ABOVE_PART: &str = "AboveItsPart";

/// `reason` of a true [`MEMORY_OVERUSE`]: a neighbour could not get what it was promised, and no other claim of the device holds more
/// beyond its own part. With [`OnOveruse::Evict`](crate::offer::OnOveruse) its pods are evicted.
pub const ENDANGERS: &str = "EndangersNeighbours";
