//! From syntax tree to types: which functions exist, which overloads fit, what the expression evaluates to.

pub(crate) mod checker;
pub(crate) mod declarations;
pub(crate) mod estimate;
pub(crate) mod messages;
pub(crate) mod types;
pub(crate) mod unify;
pub(crate) mod validators;
