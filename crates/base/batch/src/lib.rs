//! Batch jobs in Slurm's words: the options of `sbatch` and a script in, Kubernetes objects out.
//!
//! Without I/O: the caller reads the script and the site's [`Defaults`], and applies the [`Objects`]. Options mean the
//! same as in sbatch(1) of Slurm 24.05, where Kubernetes has a counterpart.
#![forbid(unsafe_code)]

mod array;
mod command_line;
mod constraint;
mod defaults;
mod error;
mod gres;
mod job;
mod memory;
mod mount;
mod name;
mod objects;
mod options;
mod script;
mod time_limit;
mod unsupported;

pub use array::Array;
pub use command_line::CommandLine;
pub use constraint::Constraint;
pub use defaults::{DEFAULTS_CONFIG_MAP, Defaults};
pub use error::BatchError;
pub use gres::{Amount, Device, Gpus, Gres};
pub use job::{Job, Program};
pub use memory::Memory;
pub use mount::Mount;
pub use objects::{MANAGED_BY, MANAGED_BY_LABEL, Objects, STEP_KEY};
pub use options::Options;
pub use script::Script;
pub use time_limit::TimeLimit;
