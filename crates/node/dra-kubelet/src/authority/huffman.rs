//! The part of HPACK's Huffman code (RFC 7541, appendix B) used by clients for `:authority`.

use super::host_name::allowed;

/// The symbols of each code length, in the order of their codes; the code is canonical. Longer codes belong to
/// characters never put into an authority by clients.
const SYMBOLS: [(u32, &[u8]); 8] = [
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b"!\"()?"),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\0$@[]~"),
];

/// For each length of a character not allowed in an authority: an allowed one of the same length.
const HARMLESS: [(u32, u8); 4] = [(6, b'-'), (7, b'B'), (10, b'!'), (13, b'~')];

/// Replaces each character not allowed in an authority by an allowed one whose code has the same length, in a
/// Huffman-coded string. Stops at the padding and at a code missing in [`SYMBOLS`]: HTTP/2 judges the rest.
pub(super) fn replace(coded: &mut [u8]) {
    let bits = coded.len() * 8;
    let mut at = 0;
    while let Some((length, symbol)) = symbol_at(coded, at) {
        if !allowed(symbol)
            && let Some(harmless) = code_of_harmless(length)
        {
            for bit in 0..length {
                set_bit(coded, at + bit as usize, harmless >> (length - 1 - bit) & 1 == 1);
            }
        }
        at += length as usize;
        if at >= bits {
            break;
        }
    }
}

/// Length and symbol of the code starting at bit `at`.
fn symbol_at(coded: &[u8], at: usize) -> Option<(u32, u8)> {
    let (mut code, mut length) = (0, 0);
    for (of_length, first, symbols) in codes() {
        while length < of_length {
            code = code << 1 | u32::from(bit(coded, at + length as usize)?);
            length += 1;
        }
        if let Some(symbol) = symbols.get(code.wrapping_sub(first) as usize) {
            return Some((length, *symbol));
        }
    }
    None
}

fn code_of_harmless(length: u32) -> Option<u32> {
    let (_, symbol) = HARMLESS.iter().find(|(of, _)| *of == length)?;
    let (_, first, symbols) = codes().find(|(of, ..)| *of == length)?;
    let place = symbols.iter().position(|s| s == symbol)?;
    Some(first + place as u32)
}

/// Each code length, the first code of that length, and its symbols.
fn codes() -> impl Iterator<Item = (u32, u32, &'static [u8])> {
    let (mut next, mut last) = (0, SYMBOLS[0].0);
    SYMBOLS.iter().map(move |(length, symbols)| {
        let first = next << (length - last);
        (next, last) = (first + symbols.len() as u32, *length);
        (*length, first, *symbols)
    })
}

fn bit(coded: &[u8], at: usize) -> Option<bool> {
    Some(coded.get(at / 8)? >> (7 - at % 8) & 1 == 1)
}

fn set_bit(coded: &mut [u8], at: usize, value: bool) {
    let mask = 0x80 >> (at % 8);
    if value {
        coded[at / 8] |= mask;
    } else {
        coded[at / 8] &= !mask;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Codes from RFC 7541, at both ends of each length.
    #[test]
    fn the_codes_are_those_of_the_rfc() {
        let listed = [
            (b'0', 5, 0x0),
            (b't', 5, 0x9),
            (b' ', 6, 0x14),
            (b'%', 6, 0x15),
            (b'u', 6, 0x2d),
            (b':', 7, 0x5c),
            (b'z', 7, 0x7b),
            (b'&', 8, 0xf8),
            (b'Z', 8, 0xfd),
            (b'!', 10, 0x3f8),
            (b'?', 10, 0x3fc),
            (b'\'', 11, 0x7fa),
            (b'|', 11, 0x7fc),
            (b'#', 12, 0xffa),
            (b'>', 12, 0xffb),
            (b'$', 13, 0x1ff9),
            (b'~', 13, 0x1ffd),
        ];
        for (symbol, length, code) in listed {
            let (_, first, symbols) = codes().find(|(of, ..)| *of == length).unwrap();
            let place = symbols.iter().position(|s| *s == symbol).unwrap();
            assert_eq!(first + place as u32, code, "{}", symbol as char);
        }
    }

    fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for byte in text {
            let (length, first, symbols) = codes().find(|(.., s)| s.contains(byte)).unwrap();
            let code = first + symbols.iter().position(|s| s == byte).unwrap() as u32;
            bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
        }
        bits.resize(bits.len().next_multiple_of(8), true);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |b, bit| b << 1 | u8::from(*bit))).collect()
    }

    fn decode(coded: &[u8]) -> Vec<u8> {
        let mut at = 0;
        let next = || {
            let (length, symbol) = symbol_at(coded, at)?;
            at += length as usize;
            Some(symbol)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_percent_encoded_path_becomes_a_host_name() {
        let mut coded = encode(b"%2Fvar%2Flib%2Fgpu.tessera.dev-reg.sock");
        replace(&mut coded);
        assert_eq!(decode(&coded), b"-2Fvar-2Flib-2Fgpu.tessera.dev-reg.sock");
    }

    proptest! {
        #[test]
        fn every_character_a_client_may_send_comes_out_allowed(text in "[A-Za-z0-9._~!$&'()*+,;=%@:\\[\\]/?-]{0,200}") {
            let before = encode(text.as_bytes());
            let mut after = before.clone();
            replace(&mut after);
            prop_assert_eq!(after.len(), before.len());
            let decoded = decode(&after);
            prop_assert_eq!(decoded.len(), text.len());
            prop_assert!(decoded.iter().all(|byte| allowed(*byte)));
            for (before, after) in text.bytes().zip(&decoded) {
                prop_assert!(before == *after || !allowed(before));
            }
        }

        #[test]
        fn any_bytes_end(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            replace(&mut bytes);
        }
    }
}
