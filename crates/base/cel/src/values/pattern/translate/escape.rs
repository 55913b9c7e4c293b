//! Escape sequences.

use super::{Translator, clip, push_literal};

impl<'p> Translator<'p> {
    pub(super) fn escape(&mut self) -> Result<(), String> {
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

    /// The character of an escape sequence.
    pub(super) fn escaped_literal(&mut self) -> Result<char, String> {
        let whole = self.rest;
        let after = &whole[1..];
        let Some(first) = after.chars().next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        let bad = || format!("invalid escape sequence: `{}`", clip(whole, 2));
        let (code, length) = match first {
            '0'..='7' => {
                let digits = after.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                // A single digit other than 0 would be a back reference.
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
}
