//! Output: tables, JSON, YAML, colours.

use std::io::{IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::{Serialize, Serializer};
use tessera_api::fleet_view;

use crate::arguments::Format;

/// The answer in the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Success.
    Yes,
    /// Failure.
    No,
    /// The exit code of a job.
    Code(u8),
}

/// Why a command could not answer.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Files could not be used.
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    /// The cluster could not be read.
    #[error(transparent)]
    Cluster(#[from] crate::api_server::ClusterError),
    /// The fleet could not be asked for.
    #[error(transparent)]
    Forward(#[from] crate::api_server::ForwardError),
    /// Options make no batch job.
    #[error(transparent)]
    Batch(#[from] tessera_batch::BatchError),
    /// An object is not valid for an API server.
    #[error(transparent)]
    Object(#[from] tessera_cluster::ObjectError),
    /// Standard output or input failed.
    #[error("{0}")]
    Stream(#[from] std::io::Error),
    /// The answer could not be written in the requested format.
    #[error("could not be written: {0}")]
    Write(String),
    /// The request cannot be answered; the text has the reason and the remedy.
    #[error("{0}")]
    Asked(String),
}

impl CommandError {
    /// Whether the reader of standard output has gone away: not an error.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, CommandError::Stream(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// Prints as JSON or YAML.
///
/// # Errors
/// Standard output failed.
pub fn structured(format: Format, value: &impl Serialize) -> Result<(), CommandError> {
    let text = match format {
        Format::Json => {
            serde_json::to_string_pretty(value).map_err(|error| CommandError::Write(error.to_string()))?
                + "\n"
        }
        Format::Yaml => yaml(value)?,
    };
    print(&text)
}

/// The value as a document in YAML.
///
/// # Errors
/// The value is none of YAML.
pub fn yaml(value: &impl Serialize) -> Result<String, CommandError> {
    serde_saphyr::to_string(value).map_err(|error| CommandError::Write(error.to_string()))
}

/// Prints text.
///
/// # Errors
/// Standard output failed.
pub fn print(text: &str) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Warnings on standard error.
pub fn warn(warnings: &[String]) {
    let mut out = std::io::stderr().lock();
    for warning in warnings {
        // If standard error is closed, there is no reader to warn.
        let _ = writeln!(out, "warning: {}", printable(warning));
    }
}

/// An error on standard error, possibly of several lines.
pub fn error(error: &CommandError) {
    let text = without_numbers(&error.to_string());
    let lines: Vec<String> = text.lines().map(printable).collect();
    // If standard error is closed, there is no reader to warn.
    let _ = writeln!(std::io::stderr(), "error: {}", lines.join("\n"));
}

/// Without the numbers that Rust adds to the operating system's messages: `No such file or directory (os error 2)`.
fn without_numbers(text: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut parts = text.split(BEFORE);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => kept.push_str(rest),
            _ => kept.push_str(&[BEFORE, part].concat()),
        }
    }
    kept
}

/// A table as kubectl prints them: columns without lines.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row.into_iter().map(|cell| printable(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Whether the character invisibly changes the order or the width of text: zero-width characters, marks, overrides and isolates
/// of direction (Unicode, Bidirectional Algorithm). With one, a name could look like another.
fn is_hidden(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Cards' worth in JSON, to thousandths.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(fleet_view::rounded(*value))
}

/// As [`rounded`].
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub fn rounded_if_known<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(fleet_view::rounded).serialize(serializer)
}

/// The value for a table; `-` without one.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
}

/// The scope of a search, after "no pod waits": ` on node node-a in namespace team`; empty for everywhere.
pub fn there(node: Option<&str>, namespace: Option<&str>) -> String {
    let node = node.map(|node| format!(" on node {}", printable(node)));
    let namespace = namespace.map(|namespace| format!(" in namespace {}", printable(namespace)));
    [node, namespace].into_iter().flatten().collect()
}

/// `1 node`, `2 nodes`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Foreign text without characters able to control the terminal or break the lines of a table.
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|letter| {
            let escaped = (letter.is_control() || is_hidden(letter)).then(|| letter.escape_default());
            let plain = escaped.is_none().then_some(letter);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// Colours, only on a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// For standard output: colours on a terminal with support, unless `NO_COLOR` is set.
    pub fn standard_output() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Paint(std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb)
    }

    /// Bold.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Green: success.
    pub fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Red: failure, or an error.
    pub fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Yellow: a hint.
    pub fn hint(self, text: &str) -> String {
        self.with("33", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nä"), "a\\u{1b}[2Jb\\nä");
        // 8-bit CSI; a name displayed backwards; two names looking alike.
        assert_eq!(printable("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(printable("x\u{202e}dab"), "x\\u{202e}dab");
        assert_eq!(printable("a\u{200b}b"), "a\\u{200b}b");
    }

    #[test]
    fn errors_have_no_numbers_of_the_operating_system() {
        let text = "a: No such file or directory (os error 2); b";
        assert_eq!(without_numbers(text), "a: No such file or directory; b");
        assert_eq!(without_numbers("x (os error two) (os error 13)"), "x (os error two)");
    }

    #[test]
    fn tables_have_no_lines_and_no_trailing_space() {
        let text = table(&["NAME", "VALUE"], [vec!["a".to_owned(), "1".to_owned()]]);
        assert_eq!(text, "NAME   VALUE\na      1\n");
    }
}
