//! An error as one line for people.

use std::{error::Error, fmt::Write as _};

/// The error with its causes, separated by colons. A cause whose text is already part of the line is left out: many
/// libraries repeat their causes' texts in their own.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            // Writing to a string does not fail.
            let _ = write!(text, ": {message}");
        }
        source = cause.source();
    }
    text
}

/// The beginning of a text, at most `longest` bytes.
#[must_use]
pub fn shorten(text: &str, longest: usize) -> &str {
    let mut end = longest.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read {0}")]
    struct Outer(&'static str, #[source] io::Error);

    #[test]
    fn each_cause_is_said_once() {
        let cause = || io::Error::other("disk full");
        assert_eq!(with_causes(&Outer("a", cause())), "cannot read a: disk full");
        assert_eq!(with_causes(&Outer("a: disk full", cause())), "cannot read a: disk full");
    }

    #[test]
    fn shortening_cuts_no_character() {
        assert_eq!(shorten("aüb", 2), "a");
        assert_eq!(shorten("aüb", 3), "aü");
        assert_eq!(shorten("aüb", 10), "aüb");
    }
}
