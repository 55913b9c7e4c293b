//! The value of a quoted string or bytes literal.

/// Why a literal has no value; upstream's error texts.
type Failure = &'static str;

/// The value of a string literal, prefix and quotes included.
pub(crate) fn string_value(literal: &str) -> Result<String, Failure> {
    let (content, raw) = content(literal);
    if raw || !content.contains('\\') {
        return Ok(content);
    }
    let mut value = String::with_capacity(content.len());
    let mut rest = content.as_str();
    while let Some(at) = rest.find('\\') {
        value.push_str(&rest[..at]);
        let (code, length) = escape(&rest[at..])?;
        value.push(char::from_u32(code).ok_or("invalid unicode code point")?);
        rest = &rest[at + length..];
    }
    value.push_str(rest);
    Ok(value)
}

/// The value of a bytes literal, prefixes and quotes included.
pub(crate) fn bytes_value(literal: &str) -> Result<Vec<u8>, Failure> {
    let (content, raw) = content(&literal[1..]);
    if raw || !content.contains('\\') {
        return Ok(content.into_bytes());
    }
    let mut value = Vec::with_capacity(content.len());
    let mut rest = content.as_str();
    while let Some(at) = rest.find('\\') {
        value.extend_from_slice(&rest.as_bytes()[..at]);
        if matches!(rest.as_bytes().get(at + 1), Some(b'u' | b'U')) {
            return Err("unable to unescape string");
        }
        let (code, length) = escape(&rest[at..])?;
        // Fits: an escape in bytes is at most \xff or \377.
        value.push(code as u8);
        rest = &rest[at + length..];
    }
    value.extend_from_slice(rest.as_bytes());
    Ok(value)
}

/// The text between the quotes, with normalised line ends, and whether the literal is raw.
fn content(literal: &str) -> (String, bool) {
    let raw = literal.starts_with(['r', 'R']);
    let quoted = if raw { &literal[1..] } else { literal };
    let width =
        if quoted.len() >= 6 && (quoted.starts_with("\"\"\"") || quoted.starts_with("'''")) { 3 } else { 1 };
    let inside = quoted.get(width..quoted.len() - width).unwrap_or("");
    (inside.replace("\r\n", "\n").replace('\r', "\n"), raw)
}

/// The code point of the escape at the start of `rest`, and the escape's length.
fn escape(rest: &str) -> Result<(u32, usize), Failure> {
    let number = |from: usize, to: usize, radix: u32| {
        rest.get(from..to)
            .and_then(|digits| u32::from_str_radix(digits, radix).ok())
            .map(|code| (code, to))
            .ok_or("unable to unescape string")
    };
    match rest.as_bytes().get(1) {
        Some(b'a') => Ok((7, 2)),
        Some(b'b') => Ok((8, 2)),
        Some(b'f') => Ok((12, 2)),
        Some(b'n') => Ok((10, 2)),
        Some(b'r') => Ok((13, 2)),
        Some(b't') => Ok((9, 2)),
        Some(b'v') => Ok((11, 2)),
        Some(byte @ (b'\\' | b'\'' | b'"' | b'`' | b'?')) => Ok((u32::from(*byte), 2)),
        Some(b'x' | b'X') => number(2, 4, 16),
        Some(b'u') => number(2, 6, 16),
        Some(b'U') => number(2, 10, 16),
        Some(b'0'..=b'3') => number(1, 4, 8),
        _ => Err("unable to unescape string"),
    }
}
