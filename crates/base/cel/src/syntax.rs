//! Parses text into a syntax tree.

pub(crate) mod ast;
pub(crate) mod lexer;
pub(crate) mod macros;
pub(crate) mod parser;
pub(crate) mod source;
pub(crate) mod unescape;
