//! The conjuncts of a selector.

/// The operands of the outermost `&&`, or the whole expression.
pub fn split(expression: &str) -> Vec<&str> {
    let bytes = expression.as_bytes();
    let mut parts = Vec::new();
    let (mut start, mut at, mut depth) = (0, 0, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => at = end_of_string(bytes, at, quote),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            // With one of these outside, the conjunction is not the outermost operation.
            b'|' | b'?' if depth == 0 && bytes.get(at.wrapping_sub(1)) != Some(&b'.') => {
                return vec![expression.trim()];
            }
            b'&' if depth == 0 && bytes.get(at + 1) == Some(&b'&') => {
                parts.push(expression[start..at].trim());
                at += 1;
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(expression[start..].trim());
    parts.into_iter().flat_map(|part| inside_parentheses(part).map_or(vec![part], split)).collect()
}

/// Position of the closing quote of the string starting at `at`.
fn end_of_string(bytes: &[u8], at: usize, quote: u8) -> usize {
    let is_raw = at > 0 && matches!(bytes[at - 1], b'r' | b'R');
    let is_triple = bytes.get(at + 1) == Some(&quote) && bytes.get(at + 2) == Some(&quote);
    let mut next = if is_triple { at + 3 } else { at + 1 };
    while next < bytes.len() {
        if bytes[next] == b'\\' && !is_raw {
            next += 2;
            continue;
        }
        let ends = bytes[next] == quote
            && (!is_triple || bytes.get(next + 1) == Some(&quote) && bytes.get(next + 2) == Some(&quote));
        if ends {
            return if is_triple { next + 2 } else { next };
        }
        next += 1;
    }
    bytes.len()
}

/// The inside of parentheses around the whole part.
fn inside_parentheses(part: &str) -> Option<&str> {
    let inside = part.strip_prefix('(')?.strip_suffix(')')?;
    let bytes = inside.as_bytes();
    let (mut at, mut depth) = (0, 0_i32);
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => at = end_of_string(bytes, at, quote),
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
        at += 1;
    }
    Some(inside)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn only_the_outermost_conjunction_is_split() {
        assert_eq!(split("a && b.c(x && y) && \"&&\" == d"), ["a", "b.c(x && y)", "\"&&\" == d"]);
        assert_eq!(split("a && b || c"), ["a && b || c"]);
        assert_eq!(split("(a && (b || c)) && d"), ["a", "b || c", "d"]);
        assert_eq!(split("(a) == (b)"), ["(a) == (b)"]);
        assert_eq!(split("a.?b.orValue(1) == 1 && c"), ["a.?b.orValue(1) == 1", "c"]);
        assert_eq!(split("r'\\' == x && '''a'b''' == y"), ["r'\\' == x", "'''a'b''' == y"]);
        assert_eq!(split(""), [""]);
    }

    #[test]
    fn broken_text_is_no_trouble() {
        for text in ["'", "\"\\", "((", "))", "&&", "&& &&", "a &&", "'''", "r'", "//", "ä && ö"] {
            split(text);
        }
    }
}
