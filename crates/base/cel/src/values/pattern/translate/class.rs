//! Classes of characters: `[a-z]`, `\\pL`.

use std::fmt::Write;

use super::{Translator, clip};

impl<'p> Translator<'p> {
    /// `\pL`, `\p{Greek}`, `\P…`, as a class.
    pub(super) fn unicode_class(&mut self) -> Result<String, String> {
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

    pub(super) fn class(&mut self) -> Result<(), String> {
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

    pub(super) fn class_character(&mut self, whole: &str) -> Result<char, String> {
        match self.rest.chars().next() {
            None => Err(format!("missing closing ]: `{whole}`")),
            Some('\\') => {
                // Inside a class these are not characters, so a range cannot end with one.
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
