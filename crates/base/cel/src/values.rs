//! Values other than numbers, texts and collections: reads, writes and compares them without a machine.

pub(crate) mod format_clause;
pub(crate) mod named_format;
pub(crate) mod pattern;
pub(crate) mod time;
pub(crate) mod url;
