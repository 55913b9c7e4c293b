//! Names for pods held back until the controller has proposed a node.

/// Name of the scheduling gate, added by an admission policy and removed only by the controller or `kubectl gpu ungate`.
pub const GATE: &str = "gpu.tessera.dev/steering";

/// Key of the label by which a namespace or a pod opts in; the value is [`OPT_IN_VALUE`].
pub const OPT_IN_LABEL: &str = "gpu.tessera.dev/steering";

/// See [`OPT_IN_LABEL`].
pub const OPT_IN_VALUE: &str = "enabled";
