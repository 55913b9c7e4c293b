//! Splits an expression into tokens by the lexer rules of cel-go's `CEL.g4`.

use super::source::Issue;

/// The kind of a token; its text is a span of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Identifier,
    EscapedIdentifier,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    True,
    False,
    Null,
    In,
    Equals,
    NotEquals,
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParenthesis,
    RightParenthesis,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    End,
}

/// One token; `start..end` is its span in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub start: u32,
    pub end: u32,
}

/// All tokens of `source`, the last one being [`TokenKind::End`].
pub(crate) fn tokenize(source: &str) -> Result<Vec<Token>, Issue> {
    let bytes = source.as_bytes();
    let mut tokens = Vec::with_capacity(bytes.len() / 4 + 1);
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\t' | b' ' | b'\r' | b'\n' | 0x0c => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            _ => {
                let (kind, length) = token_at(&bytes[at..]).ok_or_else(|| {
                    let shown: String = source.get(at..).unwrap_or("").chars().take(20).collect();
                    Issue::at(at as u32, format!("Syntax error: token recognition error at: '{shown}'"))
                })?;
                tokens.push(Token { kind, start: at as u32, end: (at + length) as u32 });
                at += length;
            }
        }
    }
    tokens.push(Token { kind: TokenKind::End, start: at as u32, end: at as u32 });
    Ok(tokens)
}

/// The longest token at the start of `rest`, and its length.
fn token_at(rest: &[u8]) -> Option<(TokenKind, usize)> {
    let next = rest.get(1).copied();
    let pair = |second: u8, two: TokenKind, one: Option<TokenKind>| {
        if next == Some(second) { Some((two, 2)) } else { one.map(|kind| (kind, 1)) }
    };
    match rest[0] {
        b'=' => pair(b'=', TokenKind::Equals, None),
        b'!' => pair(b'=', TokenKind::NotEquals, Some(TokenKind::Not)),
        b'<' => pair(b'=', TokenKind::LessEquals, Some(TokenKind::Less)),
        b'>' => pair(b'=', TokenKind::GreaterEquals, Some(TokenKind::Greater)),
        b'&' => pair(b'&', TokenKind::And, None),
        b'|' => pair(b'|', TokenKind::Or, None),
        b'[' => Some((TokenKind::LeftBracket, 1)),
        b']' => Some((TokenKind::RightBracket, 1)),
        b'{' => Some((TokenKind::LeftBrace, 1)),
        b'}' => Some((TokenKind::RightBrace, 1)),
        b'(' => Some((TokenKind::LeftParenthesis, 1)),
        b')' => Some((TokenKind::RightParenthesis, 1)),
        b',' => Some((TokenKind::Comma, 1)),
        b'-' => Some((TokenKind::Minus, 1)),
        b'?' => Some((TokenKind::Question, 1)),
        b':' => Some((TokenKind::Colon, 1)),
        b'+' => Some((TokenKind::Plus, 1)),
        b'*' => Some((TokenKind::Star, 1)),
        b'/' => Some((TokenKind::Slash, 1)),
        b'%' => Some((TokenKind::Percent, 1)),
        b'.' if next.is_some_and(|byte| byte.is_ascii_digit()) => Some(number(rest)),
        b'.' => Some((TokenKind::Dot, 1)),
        b'0'..=b'9' => Some(number(rest)),
        b'"' | b'\'' => string(rest).map(|length| (TokenKind::String, length)),
        b'`' => escaped_identifier(rest).map(|length| (TokenKind::EscapedIdentifier, length)),
        b'_' | b'a'..=b'z' | b'A'..=b'Z' => Some(word(rest)),
        _ => None,
    }
}

fn digits(rest: &[u8], from: usize) -> usize {
    rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Length of an exponent at `from`, 0 if there is none.
fn exponent(rest: &[u8], from: usize) -> usize {
    if !matches!(rest.get(from), Some(b'e' | b'E')) {
        return 0;
    }
    let sign = usize::from(matches!(rest.get(from + 1), Some(b'+' | b'-')));
    match digits(rest, (from + 1 + sign).min(rest.len())) {
        0 => 0,
        count => 1 + sign + count,
    }
}

fn number(rest: &[u8]) -> (TokenKind, usize) {
    let is_unsigned = |end: usize| matches!(rest.get(end), Some(b'u' | b'U'));
    if rest[0] == b'0' && rest.get(1) == Some(&b'x') {
        let count = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if count > 0 {
            let end = 2 + count;
            return if is_unsigned(end) { (TokenKind::Uint, end + 1) } else { (TokenKind::Int, end) };
        }
    }
    let whole = digits(rest, 0);
    if rest.get(whole) == Some(&b'.') {
        let fraction = digits(rest, whole + 1);
        if fraction > 0 {
            let end = whole + 1 + fraction;
            return (TokenKind::Float, end + exponent(rest, end));
        }
    }
    match exponent(rest, whole) {
        0 if is_unsigned(whole) => (TokenKind::Uint, whole + 1),
        0 => (TokenKind::Int, whole),
        length => (TokenKind::Float, whole + length),
    }
}

fn word(rest: &[u8]) -> (TokenKind, usize) {
    let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    let is_raw = |at: usize| matches!(rest.get(at), Some(b'r' | b'R'));
    let quote_at = |at: usize| matches!(rest.get(at), Some(b'"' | b'\''));
    // The longest match wins, so a prefix counts only where the quote follows the word directly.
    let prefixed = match rest[0] {
        b'b' | b'B' if length == 1 && quote_at(1) => {
            string(&rest[1..]).map(|end| (TokenKind::Bytes, 1 + end))
        }
        b'b' | b'B' if length == 2 && is_raw(1) && quote_at(2) => {
            raw_string(&rest[2..]).map(|end| (TokenKind::Bytes, 2 + end))
        }
        b'r' | b'R' if length == 1 && quote_at(1) => {
            raw_string(&rest[1..]).map(|end| (TokenKind::String, 1 + end))
        }
        _ => None,
    };
    if let Some(token) = prefixed {
        return token;
    }
    let kind = match &rest[..length] {
        b"true" => TokenKind::True,
        b"false" => TokenKind::False,
        b"null" => TokenKind::Null,
        b"in" => TokenKind::In,
        _ => TokenKind::Identifier,
    };
    (kind, length)
}

fn escaped_identifier(rest: &[u8]) -> Option<usize> {
    let inside = rest[1..]
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(**byte, b'_' | b'.' | b'-' | b'/' | b' '))
        .count();
    (inside > 0 && rest.get(1 + inside) == Some(&b'`')).then_some(inside + 2)
}

fn is_triple(rest: &[u8]) -> bool {
    rest.len() >= 3 && rest[1] == rest[0] && rest[2] == rest[0]
}

/// Length of the quoted string at the start of `rest`, quotes included.
fn string(rest: &[u8]) -> Option<usize> {
    let quote = rest[0];
    if is_triple(rest) {
        let mut at = 3;
        while at < rest.len() {
            if rest[at..].starts_with(&[quote; 3]) {
                return Some(at + 3);
            }
            match rest[at] {
                b'\\' => match escape(&rest[at..]) {
                    Some(length) => at += length,
                    None => break,
                },
                _ => at += 1,
            }
        }
    }
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            byte if byte == quote => return Some(at + 1),
            b'\n' | b'\r' => return None,
            b'\\' => at += escape(&rest[at..])?,
            _ => at += 1,
        }
    }
    None
}

fn raw_string(rest: &[u8]) -> Option<usize> {
    let quote = rest[0];
    if is_triple(rest) {
        let end = rest[3..].windows(3).position(|window| window == [quote; 3]);
        if let Some(end) = end {
            return Some(3 + end + 3);
        }
    }
    for (at, byte) in rest.iter().enumerate().skip(1) {
        if *byte == quote {
            return Some(at + 1);
        }
        if matches!(byte, b'\n' | b'\r') {
            return None;
        }
    }
    None
}

/// Length of the escape sequence at the start of `rest`, beginning with a backslash.
fn escape(rest: &[u8]) -> Option<usize> {
    let hexadecimal = |count: usize| {
        let part = rest.get(2..2 + count)?;
        part.iter().all(u8::is_ascii_hexdigit).then_some(2 + count)
    };
    match *rest.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(2),
        b'x' | b'X' => hexadecimal(2),
        b'u' => hexadecimal(4),
        b'U' => hexadecimal(8),
        b'0'..=b'3' => {
            let part = rest.get(2..4)?;
            part.iter().all(|byte| matches!(byte, b'0'..=b'7')).then_some(4)
        }
        _ => None,
    }
}
