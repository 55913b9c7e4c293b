//! Checks a syntax tree: existing functions, matching overloads, and the expression's type.

pub(crate) mod checker;
pub(crate) mod declarations;
pub(crate) mod estimate;
pub(crate) mod messages;
pub(crate) mod types;
pub(crate) mod unify;
pub(crate) mod validators;
