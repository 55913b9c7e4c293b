//! One HPACK header block (RFC 7541): finds `:authority` and makes its value valid, in place.

use super::host_name::allowed;
use super::huffman;

/// `:authority` as a literal name, plain and Huffman-coded, each with its length byte.
const NAME: &[u8] = b"\x0a:authority";
const NAME_HUFFMAN: &[u8] = &[0x88, 0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];

/// `:authority` in the static table.
const STATIC_INDEX: usize = 1;

/// Set in a Huffman-coded string's first byte.
const HUFFMAN: u8 = 0x80;

/// The block does not parse.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed HPACK header block")]
pub(super) struct Malformed;

/// Makes the value of each `:authority` valid without changing any length.
///
/// A name given by reference to an earlier field of the connection (index 62 and up) is not recognised: the whole
/// dynamic table would be needed, and no client does so for a name in the static table.
pub(super) fn make_authority_valid(block: &mut [u8]) -> Result<(), Malformed> {
    let mut at = 0;
    while let Some(first) = block.get(at).copied() {
        // Indexed field, literal with indexing, table size update, or literal without indexing.
        let (prefix, literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let (index, mut end) = integer(block, at, prefix)?;
        if literal {
            let mut authority = index == STATIC_INDEX;
            if index == 0 {
                let name = string(block, end)?;
                authority = [NAME, NAME_HUFFMAN].contains(&&block[end..name.end]);
                end = name.end;
            }
            let value = string(block, end)?;
            end = value.end;
            if authority && value.huffman {
                huffman::replace(&mut block[value.start..value.end]);
            } else if authority {
                block[value.start..value.end].iter_mut().filter(|b| !allowed(**b)).for_each(|b| *b = b'-');
            }
        }
        at = end;
    }
    Ok(())
}

/// Position of a string's content.
struct Literal {
    start: usize,
    end: usize,
    huffman: bool,
}

fn string(block: &[u8], at: usize) -> Result<Literal, Malformed> {
    let huffman = block.get(at).ok_or(Malformed)? & HUFFMAN != 0;
    let (length, start) = integer(block, at, 7)?;
    let end = start + length;
    if end > block.len() {
        return Err(Malformed);
    }
    Ok(Literal { start, end, huffman })
}

/// The integer with `prefix` bits at `at`, and the position after it.
fn integer(block: &[u8], at: usize, prefix: u32) -> Result<(usize, usize), Malformed> {
    /// Enough for any length or index in a block of our size, and too few to overflow.
    const MAX_CONTINUATIONS: usize = 4;
    let max = (1 << prefix) - 1;
    let mut value = usize::from(*block.get(at).ok_or(Malformed)?) & max;
    if value < max {
        return Ok((value, at + 1));
    }
    for (place, byte) in block[at + 1..].iter().take(MAX_CONTINUATIONS).enumerate() {
        value += usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok((value, at + 2 + place));
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(text: &str) -> Vec<u8> {
        assert!(text.len() < 127);
        [&[text.len() as u8], text.as_bytes()].concat()
    }

    fn authority(text: &str) -> Vec<u8> {
        [vec![0x41], plain(text)].concat()
    }

    #[track_caller]
    fn check(before: &[u8], after: &[u8]) {
        let mut block = before.to_vec();
        make_authority_valid(&mut block).unwrap();
        assert_eq!(block, after);
    }

    #[test]
    fn by_static_index_and_by_literal_name() {
        check(&authority("%2Fa%2Fb.sock"), &authority("-2Fa-2Fb.sock"));
        for name in [NAME, NAME_HUFFMAN] {
            for kind in [0x00, 0x10, 0x40] {
                let block = |value| [vec![kind], name.to_vec(), plain(value)].concat();
                check(&block("/a@b"), &block("-a-b"));
            }
        }
    }

    #[test]
    fn other_fields_and_valid_authorities_stay() {
        let fields =
            [vec![0x83, 0x86, 0x44], plain("/pkg.Service/Method%2F"), vec![0x40], plain("x"), plain("%")];
        let block = [fields.concat(), authority("localhost"), vec![0x3f, 0xe1, 0x1f]].concat();
        check(&block, &block);
    }

    #[test]
    fn cut_blocks_and_endless_integers_are_malformed() {
        let whole = authority("localhost");
        for length in 1..whole.len() {
            assert_eq!(make_authority_valid(&mut whole[..length].to_vec()), Err(Malformed), "{length}");
        }
        assert_eq!(make_authority_valid(&mut [0x41, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_handled(mut block in prop::collection::vec(any::<u8>(), 0..600)) {
            let before = block.len();
            let _ = make_authority_valid(&mut block);
            prop_assert_eq!(block.len(), before);
        }
    }
}
