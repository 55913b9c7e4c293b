//! From Go's syntax of regular expressions to that of the `regex` crate.
//!
//! The two differ where it matters: `\d`, `\s`, `\w` and `\b` are ASCII in Go, `[a&&b]` and `[[a]]` have no special
//! meaning there, and each accepts things the other refuses.

use std::fmt::Write as _;

/// Most repetitions, of one operator and of nested ones together.
const MOST_REPETITIONS: u64 = 1_000;

/// The translated pattern, or Go's reason to refuse it.
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

/// A group that is open.
struct Group {
    /// Where its text begins in the result.
    start: usize,
    /// The most repetitions of anything in it.
    heaviest: u64,
}

/// What a repetition operator would apply to.
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
    /// Whether what was just read is a repetition operator.
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
        // Grouped, so that the operator applies to all of the atom's text.
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

    fn escape(&mut self) -> Result<(), String> {
        let after = &self.rest[1..];
        if let Some(quoted) = after.strip_prefix('Q') {
            let (literal, rest) = match quoted.split_once("\\E") {
                Some(parts) => parts,
                None => (quoted, ""),
            };
            for character in literal.chars() {
                self.begin_atom();
                push_literal(&mut self.text, character);
            }
            self.rest = rest;
            return Ok(());
        }
        self.begin_atom();
        let fixed = match after.chars().next() {
            Some('A') => Some("\\A"),
            Some('z') => Some("\\z"),
            Some('b') => Some("(?-u:\\b)"),
            Some('B') => Some("(?-u:\\B)"),
            Some('d') => Some("[0-9]"),
            Some('D') => Some("[^0-9]"),
            Some('s') => Some("[\\t\\n\\x0C\\r ]"),
            Some('S') => Some("[^\\t\\n\\x0C\\r ]"),
            Some('w') => Some("[0-9A-Za-z_]"),
            Some('W') => Some("[^0-9A-Za-z_]"),
            _ => None,
        };
        if let Some(fixed) = fixed {
            self.advance(2);
            self.text.push_str(fixed);
            return Ok(());
        }
        if after.starts_with(['p', 'P']) {
            let class = self.unicode_class()?;
            self.text.push_str(&class);
            return Ok(());
        }
        let literal = self.escaped_literal()?;
        push_literal(&mut self.text, literal);
        Ok(())
    }

    /// The character that an escape sequence stands for.
    fn escaped_literal(&mut self) -> Result<char, String> {
        let whole = self.rest;
        let after = &whole[1..];
        let Some(first) = after.chars().next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        let bad = || format!("invalid escape sequence: `{}`", clip(whole, 2));
        let (code, length) = match first {
            '0'..='7' => {
                let digits = after.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                // A single digit other than 0 would be a reference to a group.
                if first != '0' && digits < 2 {
                    return Err(bad());
                }
                (u32::from_str_radix(&after[..digits], 8).map_err(|_| bad())?, digits)
            }
            'x' => {
                let hexadecimal = &after[1..];
                match hexadecimal.strip_prefix('{') {
                    Some(inside) => {
                        let (digits, _) = inside.split_once('}').ok_or_else(bad)?;
                        (u32::from_str_radix(digits, 16).map_err(|_| bad())?, digits.len() + 3)
                    }
                    None => {
                        let digits = hexadecimal.get(..2).ok_or_else(bad)?;
                        (u32::from_str_radix(digits, 16).map_err(|_| bad())?, 3)
                    }
                }
            }
            'a' => (7, 1),
            'f' => (12, 1),
            'n' => (10, 1),
            'r' => (13, 1),
            't' => (9, 1),
            'v' => (11, 1),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => (other as u32, 1),
            _ => return Err(bad()),
        };
        self.advance(1 + length);
        char::from_u32(code).ok_or_else(bad)
    }

    /// `\pL`, `\p{Greek}`, `\P…`, as a class.
    fn unicode_class(&mut self) -> Result<String, String> {
        let whole = self.rest;
        let mut negated = whole[1..].starts_with('P');
        let after = &whole[2..];
        let bad = |length: usize| format!("invalid character class range: `{}`", clip(whole, length));
        let (mut name, length) = match after.strip_prefix('{') {
            Some(inside) => {
                let (name, _) = inside.split_once('}').ok_or_else(|| bad(whole.len()))?;
                (name, name.len() + 2)
            }
            None => {
                let first = after.chars().next().ok_or_else(|| bad(2))?;
                (&after[..first.len_utf8()], first.len_utf8())
            }
        };
        self.advance(2 + length);
        if let Some(positive) = name.strip_prefix('^') {
            (name, negated) = (positive, !negated);
        }
        if name == "Any" {
            return Ok(if negated { "[^\\x{0}-\\x{10FFFF}]" } else { "[\\x{0}-\\x{10FFFF}]" }.to_owned());
        }
        // Go knows categories and scripts, by their exact names.
        let is_plain =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        let is_category = name.len() <= 2;
        let is_script = name.len() > 2 && name.starts_with(|first: char| first.is_ascii_uppercase());
        let candidate = if is_category { format!("\\p{{gc={name}}}") } else { format!("\\p{{sc={name}}}") };
        if !is_plain || !(is_category || is_script) || regex::Regex::new(&candidate).is_err() {
            return Err(bad(2 + length));
        }
        Ok(if negated { format!("[^{candidate}]") } else { format!("[{candidate}]") })
    }

    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        self.advance(1);
        self.text.push('[');
        if self.rest.starts_with('^') {
            self.advance(1);
            self.text.push('^');
        }
        let mut first = true;
        loop {
            if self.rest.is_empty() {
                return Err(format!("missing closing ]: `{whole}`"));
            }
            if self.rest.starts_with(']') && !first {
                break;
            }
            first = false;
            if let Some(posix) = self.rest.strip_prefix("[:")
                && let Some((name, _)) = posix.split_once(":]")
            {
                let (negated, plain) = name.strip_prefix('^').map_or((false, name), |plain| (true, plain));
                let known = [
                    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
                    "space", "upper", "word", "xdigit",
                ];
                if !known.contains(&plain) {
                    return Err(format!("invalid character class range: `[:{name}:]`"));
                }
                let _ = write!(self.text, "[:{}{plain}:]", if negated { "^" } else { "" });
                self.advance(name.len() + 4);
                continue;
            }
            if let Some(after) = self.rest.strip_prefix('\\') {
                let fixed = match after.chars().next() {
                    Some('d') => Some("0-9"),
                    Some('D') => Some("[^0-9]"),
                    Some('s') => Some("\\t\\n\\x0C\\r "),
                    Some('S') => Some("[^\\t\\n\\x0C\\r ]"),
                    Some('w') => Some("0-9A-Za-z_"),
                    Some('W') => Some("[^0-9A-Za-z_]"),
                    _ => None,
                };
                if let Some(fixed) = fixed {
                    self.advance(2);
                    self.text.push_str(fixed);
                    continue;
                }
                if after.starts_with(['p', 'P']) {
                    let class = self.unicode_class()?;
                    self.text.push_str(&class);
                    continue;
                }
            }
            let before = self.rest;
            let low = self.class_character(whole)?;
            let mut high = low;
            if self.rest.starts_with('-') && self.rest.len() > 1 && !self.rest[1..].starts_with(']') {
                self.advance(1);
                high = self.class_character(whole)?;
                if high < low {
                    let shown = &before[..before.len() - self.rest.len()];
                    return Err(format!("invalid character class range: `{shown}`"));
                }
            }
            let _ = write!(self.text, "\\x{{{:x}}}-\\x{{{:x}}}", low as u32, high as u32);
        }
        self.advance(1);
        self.text.push(']');
        Ok(())
    }

    fn class_character(&mut self, whole: &str) -> Result<char, String> {
        match self.rest.chars().next() {
            None => Err(format!("missing closing ]: `{whole}`")),
            Some('\\') => {
                // Inside a class these are no characters, so no range can end in one.
                if self.rest[1..].starts_with(['d', 'D', 's', 'S', 'w', 'W', 'p', 'P']) {
                    return Err(format!("invalid escape sequence: `{}`", clip(self.rest, 2)));
                }
                self.escaped_literal()
            }
            Some(character) => {
                self.advance(character.len_utf8());
                Ok(character)
            }
        }
    }
}

/// A count without leading zeros.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    // Too large a count is one that is refused.
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
