//! What values are beyond numbers, texts and collections: read, written and compared without a machine.

pub(crate) mod format_clause;
pub(crate) mod named_format;
pub(crate) mod pattern;
pub(crate) mod time;
pub(crate) mod url;
