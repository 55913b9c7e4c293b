//! The text of an expression, and error messages pointing into it like upstream's.

/// Longest line repeated in an error message, in characters. Upstream's `maxSnippetLength` is 16 Ki; ours fits into an
/// event or a status condition.
const LONGEST_SNIPPET: usize = 400;

/// Longest message about one expression, in bytes.
pub(crate) const LONGEST_MESSAGE: usize = 4096;

/// An error at a position in the source; `offset` is in bytes, `None` means "no location".
#[derive(Debug, Clone)]
pub(crate) struct Issue {
    pub offset: Option<u32>,
    pub message: String,
}

impl Issue {
    pub(crate) fn at(offset: u32, message: impl Into<String>) -> Self {
        Issue { offset: Some(offset), message: message.into() }
    }

    pub(crate) fn nowhere(message: impl Into<String>) -> Self {
        Issue { offset: None, message: message.into() }
    }
}

/// Renders issues in order of their position, each with its line and a mark below.
pub(crate) fn render(source: &str, issues: &[Issue]) -> String {
    let mut sorted: Vec<&Issue> = issues.iter().collect();
    sorted.sort_by_key(|issue| issue.offset);
    let mut text = String::new();
    for issue in sorted {
        if !text.is_empty() {
            text.push('\n');
        }
        if text.len() > LONGEST_MESSAGE {
            text.push_str("more errors were truncated");
            break;
        }
        render_one(source, issue, &mut text);
    }
    truncate(&mut text);
    text
}

fn render_one(source: &str, issue: &Issue, text: &mut String) {
    use std::fmt::Write as _;
    let Some(offset) = issue.offset else {
        // Writing to a String cannot fail.
        let _ = write!(text, "ERROR: <input>:-1:0: {}", issue.message);
        return;
    };
    let offset = (offset as usize).min(source.len());
    let before = source.get(..offset).unwrap_or(source);
    let line_number = before.matches('\n').count() + 1;
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = source[line_start..].lines().next().unwrap_or("");
    let column = source.get(line_start..offset).map_or(0, |part| part.chars().count());
    let _ = write!(text, "ERROR: <input>:{line_number}:{}: {}", column + 1, issue.message);
    if line.chars().count() > LONGEST_SNIPPET {
        return;
    }
    let _ = write!(text, "\n | {}\n | ", line.replace('\t', " "));
    let mut rest = line.chars();
    for _ in 0..column {
        match rest.next() {
            Some(character) if character.len_utf8() > 1 => text.push('\u{ff0e}'),
            Some(_) => text.push('.'),
            None => break,
        }
    }
    text.push(if rest.next().is_some_and(|character| character.len_utf8() > 1) { '\u{ff3e}' } else { '^' });
}

/// Truncates a message to [`LONGEST_MESSAGE`] bytes at a character boundary.
pub(crate) fn truncate(text: &mut String) {
    if text.len() <= LONGEST_MESSAGE {
        return;
    }
    let mut end = LONGEST_MESSAGE;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push('…');
}
