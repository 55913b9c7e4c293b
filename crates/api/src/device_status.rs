//! What the kubelet plugin says of a claim's devices in `status.devices` (KEP-4817).

/// Type of the condition of an allocated device that tells whether it can be prepared. `False` from the first failure that
/// does not pass by itself; `lastTransitionTime` is that of this failure, `reason` and `message` are of the last one. `True`
/// once the claim is prepared after that ([`PREPARED`]). A claim that was prepared without such a failure has no condition.
pub const READY: &str = "Ready";

/// `reason` of [`READY`] where the claim is prepared after it could not be.
pub const PREPARED: &str = "Prepared";

/// `reason` of [`READY`] where the claim's own configuration is wrong, so that no other device would help.
pub const INVALID_CONFIG: &str = "InvalidConfig";

/// `reason` of [`READY`] where another claim holds the device: another device would help, and nothing is wrong with this one.
pub const HELD: &str = "Held";

/// Key of the annotation of Pods with how many pods of the same owner the controller evicted, because a device could not be
/// prepared for them: a number.
pub const EVICTIONS_ANNOTATION: &str = "gpu.tessera.dev/evictions";
