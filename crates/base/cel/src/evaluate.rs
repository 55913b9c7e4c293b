//! Runs programs.

pub(crate) mod compare;
mod compared;
pub(crate) mod cost;
pub(crate) mod list;
pub(crate) mod machine;
pub(crate) mod map;
pub(crate) mod native;
pub(crate) mod program;
pub(crate) mod qualify;
pub(crate) mod show;
pub(crate) mod value;
