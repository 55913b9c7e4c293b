//! The clauses of a format string, such as `%.2f`.

/// A part of a format string.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(Option<usize>),
    Scientific(Option<usize>),
    Binary,
    Hexadecimal { upper: bool },
    Octal,
}

/// Parses the clause after a percent sign. Returns the clause with its length, without the sign.
pub(crate) fn clause(text: &str) -> Result<(Clause, usize), String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut precision = None;
    if bytes.first() == Some(&b'.') {
        let digits = bytes[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        at = 1 + digits;
        if at >= bytes.len() {
            return Err(
                "could not parse formatting clause: error while parsing precision: could not find end of \
                        precision specifier"
                    .to_owned(),
            );
        }
        let parsed: usize = text[1..at].parse().map_err(|_| {
            format!(
                "could not parse formatting clause: error while parsing precision: error while converting precision \
                 to integer: strconv.Atoi: parsing {:?}: invalid syntax",
                &text[1..at]
            )
        })?;
        precision = Some(parsed);
    }
    let clause = match bytes.get(at) {
        Some(b's') => Clause::String,
        Some(b'd') => Clause::Decimal,
        Some(b'f') => Clause::Fixed(precision),
        Some(b'e') => Clause::Scientific(precision),
        Some(b'b') => Clause::Binary,
        Some(b'x') => Clause::Hexadecimal { upper: false },
        Some(b'X') => Clause::Hexadecimal { upper: true },
        Some(b'o') => Clause::Octal,
        other => {
            let shown = other.map_or('?', |byte| char::from(*byte));
            return Err(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{shown}\""
            ));
        }
    };
    Ok((clause, at + 1))
}
