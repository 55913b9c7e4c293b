//! Translates Go's syntax of regular expressions to the `regex` crate's.
//!
//! The differences matter: `\d`, `\s`, `\w` and `\b` are ASCII in Go, `[a&&b]` and `[[a]]` have no special
//! meaning there, and each accepts syntax refused by the other.

mod class;
mod escape;

use std::fmt::Write;

/// Largest number of repetitions, of one operator and of nested ones together.
const MOST_REPETITIONS: u64 = 1_000;

/// The translated pattern, or Go's error.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut translator = Translator {
        pattern,
        rest: pattern,
        text: String::with_capacity(pattern.len() * 2),
        groups: vec![Group { start: 0, heaviest: 1 }],
        names: Vec::new(),
        atom: None,
        repeated: false,
    };
    translator.run()?;
    Ok(translator.text)
}

/// An open group.
struct Group {
    /// Where its text begins in the result.
    start: usize,
    /// The largest number of repetitions of any part.
    heaviest: u64,
}

/// The operand of a possible repetition operator.
struct Atom {
    start: usize,
    repetitions: u64,
}

struct Translator<'p> {
    pattern: &'p str,
    rest: &'p str,
    text: String,
    groups: Vec<Group>,
    names: Vec<&'p str>,
    atom: Option<Atom>,
    /// Whether the last thing read was a repetition operator.
    repeated: bool,
}

impl<'p> Translator<'p> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(first) = self.rest.chars().next() {
            let was_repeated = std::mem::take(&mut self.repeated);
            match first {
                '(' => self.open_group()?,
                ')' => self.close_group()?,
                '|' => {
                    self.advance(1);
                    self.text.push('|');
                    self.atom = None;
                }
                '^' | '$' | '.' => {
                    self.begin_atom();
                    self.advance(1);
                    self.text.push(first);
                }
                '[' => {
                    self.begin_atom();
                    self.class()?;
                }
                '*' | '+' | '?' => {
                    let before = self.rest;
                    self.advance(1);
                    self.repeat(&first.to_string(), 1, before, was_repeated)?;
                }
                '{' => self.braces(was_repeated)?,
                '\\' => self.escape()?,
                _ => {
                    self.begin_atom();
                    self.advance(first.len_utf8());
                    push_literal(&mut self.text, first);
                }
            }
        }
        if self.groups.len() > 1 {
            return Err(format!("missing closing ): `{}`", self.pattern));
        }
        Ok(())
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn begin_atom(&mut self) {
        self.atom = Some(Atom { start: self.text.len(), repetitions: 1 });
    }

    fn open_group(&mut self) -> Result<(), String> {
        let start = self.text.len();
        let whole = self.rest;
        self.advance(1);
        if let Some(after) = self.rest.strip_prefix('?') {
            let name = after.strip_prefix("P<").or_else(|| after.strip_prefix('<'));
            if let Some(named) = name {
                let Some((name, rest)) = named.split_once('>') else {
                    return Err(format!("invalid named capture: `{whole}`"));
                };
                let is_name =
                    !name.is_empty() && name.chars().all(|part| part == '_' || part.is_ascii_alphanumeric());
                if !is_name || self.names.contains(&name) {
                    return Err(format!("invalid named capture: `(?P<{name}>`"));
                }
                self.names.push(name);
                self.rest = rest;
            } else {
                return self.flags(after, whole);
            }
        }
        self.text.push_str("(?:");
        self.groups.push(Group { start, heaviest: 1 });
        self.atom = None;
        Ok(())
    }

    /// `(?i)` or `(?i:`
    fn flags(&mut self, after: &'p str, whole: &'p str) -> Result<(), String> {
        let end = after
            .find([':', ')'])
            .ok_or_else(|| format!("missing argument to repetition operator: `{whole}`"));
        let Ok(end) = end else {
            return Err(format!("invalid or unsupported Perl syntax: `{}`", clip(whole, 3)));
        };
        let flags = &after[..end];
        let negations = flags.matches('-').count();
        let is_known = flags.chars().all(|flag| "imsU-".contains(flag));
        if !is_known || negations > 1 || flags.ends_with('-') {
            return Err(format!("invalid or unsupported Perl syntax: `{}`", clip(whole, end + 3)));
        }
        let opens = after[end..].starts_with(':');
        self.rest = &after[end + 1..];
        if opens {
            let start = self.text.len();
            let _ = write!(self.text, "(?{flags}:");
            self.groups.push(Group { start, heaviest: 1 });
        } else if !flags.is_empty() {
            let _ = write!(self.text, "(?{flags})");
        }
        self.atom = None;
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), String> {
        if self.groups.len() == 1 {
            return Err(format!("unexpected ): `{}`", self.pattern));
        }
        self.advance(1);
        self.text.push(')');
        if let Some(group) = self.groups.pop() {
            if let Some(outer) = self.groups.last_mut() {
                outer.heaviest = outer.heaviest.max(group.heaviest);
            }
            self.atom = Some(Atom { start: group.start, repetitions: group.heaviest });
        }
        Ok(())
    }

    /// Writes a repetition operator; a question mark after it makes it lazy.
    fn repeat(
        &mut self,
        operator: &str,
        most: u64,
        before: &'p str,
        was_repeated: bool,
    ) -> Result<(), String> {
        let lazy = self.rest.starts_with('?');
        self.advance(usize::from(lazy));
        let shown = &before[..before.len() - self.rest.len()];
        if was_repeated {
            return Err(format!("invalid nested repetition operator: `{shown}`"));
        }
        let Some(atom) = &mut self.atom else {
            return Err(format!("missing argument to repetition operator: `{shown}`"));
        };
        atom.repetitions = atom.repetitions.saturating_mul(most.max(1));
        if atom.repetitions > MOST_REPETITIONS {
            return Err(format!("invalid repeat count: `{shown}`"));
        }
        let (start, heaviest) = (atom.start, atom.repetitions);
        if let Some(group) = self.groups.last_mut() {
            group.heaviest = group.heaviest.max(heaviest);
        }
        // Grouped, so the operator applies to all of the atom's text.
        self.text.insert_str(start, "(?:");
        self.text.push(')');
        self.text.push_str(operator);
        if lazy {
            self.text.push('?');
        }
        self.repeated = true;
        Ok(())
    }

    /// `{n}`, `{n,}` or `{n,m}`; anything else is a literal brace.
    fn braces(&mut self, was_repeated: bool) -> Result<(), String> {
        let before = self.rest;
        let counts = before[1..].split_once('}').and_then(|(inside, _)| {
            let (least, most) = match inside.split_once(',') {
                None => (number(inside)?, Some(number(inside)?)),
                Some((least, "")) => (number(least)?, None),
                Some((least, most)) => (number(least)?, Some(number(most)?)),
            };
            Some((inside.len() + 2, least, most))
        });
        let Some((length, least, most)) = counts else {
            self.begin_atom();
            self.advance(1);
            push_literal(&mut self.text, '{');
            return Ok(());
        };
        let shown = &before[..length];
        let largest = most.unwrap_or(least);
        if largest > MOST_REPETITIONS || least > largest {
            return Err(format!("invalid repeat count: `{shown}`"));
        }
        self.advance(length);
        let operator = match most {
            None => format!("{{{least},}}"),
            Some(most) => format!("{{{least},{most}}}"),
        };
        self.repeat(&operator, largest, before, was_repeated)
    }
}

/// A count without leading zeros.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    // Saturates: too large a count is refused anyway.
    Some(text.parse().unwrap_or(u64::MAX))
}

fn clip(text: &str, length: usize) -> &str {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn push_literal(text: &mut String, character: char) {
    if character.is_ascii_alphanumeric() || !character.is_ascii() {
        text.push(character);
    } else {
        let _ = write!(text, "\\x{{{:x}}}", character as u32);
    }
}
