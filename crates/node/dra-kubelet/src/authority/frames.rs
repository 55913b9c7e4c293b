//! Passes on the HTTP/2 frames of one client (RFC 9113).

use std::{fmt, ops::Range};

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;

use super::header_block::{Malformed, make_authority_valid};

/// The first bytes from a client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Largest frame accepted by a server if, like ours, it announces no other `SETTINGS_MAX_FRAME_SIZE`.
const MAX_FRAME: usize = 16_384;

/// Largest size of one request's headers with their frames, in bytes. The kubelet's take about 400.
const MAX_HEADERS: usize = 65_536;

/// Why a connection is closed before its bytes reach HTTP/2.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    /// The connection does not begin with the HTTP/2 preface.
    #[error("this is not HTTP/2 (a gRPC client without TLS is expected)")]
    NotHttp2,
    /// A header frame is larger than [`MAX_FRAME`], or a request's headers than [`MAX_HEADERS`].
    #[error("request headers of more than {MAX_HEADERS} bytes, or a header frame of more than {MAX_FRAME}")]
    HeadersTooLarge,
    /// The order or the lengths of frames violate HTTP/2.
    #[error("malformed HTTP/2 header frames")]
    MalformedFrames,
    /// The header block does not parse.
    #[error(transparent)]
    MalformedBlock(#[from] Malformed),
}

/// Buffers a client's bytes between the socket and HTTP/2.
///
/// Header blocks are held back until they are complete, so the buffer holds at most [`MAX_HEADERS`] and the bytes
/// pushed last; everything else passes through at once.
#[derive(Default)]
pub(super) struct Frames {
    buffer: BytesMut,
    /// Bytes at the front of `buffer` ready to be passed on.
    ready: usize,
    state: State,
}

/// The part beginning at `ready`.
enum State {
    /// The preface, and how many of its bytes have arrived.
    Preface { matched: usize },
    /// A frame's header.
    Frame,
    /// The rest of a frame passed on unchanged.
    Payload { remaining: usize },
    /// A header block: a HEADERS frame and any number of CONTINUATION frames.
    Block(Block),
}

/// An incomplete header block. Offsets count from its first frame.
#[derive(Default)]
struct Block {
    stream: [u8; 4],
    fragments: Vec<Range<usize>>,
    /// Where its next frame will start.
    next: usize,
}

/// The needed fields of a frame's nine-byte header.
struct FrameHeader {
    length: usize,
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

impl Default for State {
    fn default() -> Self {
        State::Preface { matched: 0 }
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("held", &self.buffer.len()).field("ready", &self.ready).finish()
    }
}

impl Frames {
    /// Adds bytes read from the socket.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        self.buffer.extend_from_slice(bytes);
        while self.step()? {}
        Ok(())
    }

    /// Passes on the ready bytes that fit. False when nothing is ready.
    pub(super) fn take(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let count = self.ready.min(into.remaining());
        into.put_slice(&self.buffer[..count]);
        self.buffer.advance(count);
        self.ready -= count;
        count > 0
    }

    pub(super) fn preface_complete(&self) -> bool {
        !matches!(self.state, State::Preface { .. })
    }

    /// Goes one step further; false when more bytes are needed.
    fn step(&mut self) -> Result<bool, FrameError> {
        let next = &mut self.buffer[self.ready..];
        match &mut self.state {
            State::Preface { matched } => {
                let expected = &PREFACE[*matched..];
                let count = expected.len().min(next.len());
                if next[..count] != expected[..count] {
                    return Err(FrameError::NotHttp2);
                }
                self.ready += count;
                *matched += count;
                if *matched < PREFACE.len() {
                    return Ok(false);
                }
                self.state = State::Frame;
            }
            State::Frame => {
                let Some(header) = FrameHeader::parse(next) else { return Ok(false) };
                if header.kind == HEADERS {
                    self.state = State::Block(Block { stream: header.stream, ..Block::default() });
                } else {
                    self.ready += FRAME_HEADER;
                    self.state = State::Payload { remaining: header.length };
                }
            }
            State::Payload { remaining } => {
                let count = (*remaining).min(next.len());
                self.ready += count;
                *remaining -= count;
                if *remaining > 0 {
                    return Ok(false);
                }
                self.state = State::Frame;
            }
            State::Block(block) => {
                let Some(whole) = block.add_frame(next)? else { return Ok(false) };
                if whole {
                    block.make_authority_valid(next)?;
                    self.ready += block.next;
                    self.state = State::Frame;
                }
            }
        }
        Ok(true)
    }
}

impl Block {
    /// Adds the frame at `self.next`: `None` if incomplete, else whether it was the last.
    fn add_frame(&mut self, bytes: &[u8]) -> Result<Option<bool>, FrameError> {
        let frame = &bytes[self.next..];
        let Some(header) = FrameHeader::parse(frame) else { return Ok(None) };
        let expected = if self.fragments.is_empty() { HEADERS } else { CONTINUATION };
        if header.kind != expected || header.stream != self.stream {
            return Err(FrameError::MalformedFrames);
        }
        let size = FRAME_HEADER + header.length;
        if header.length > MAX_FRAME || self.next + size > MAX_HEADERS {
            return Err(FrameError::HeadersTooLarge);
        }
        let Some(payload) = frame.get(FRAME_HEADER..size) else { return Ok(None) };
        let fragment = header.fragment(payload).ok_or(FrameError::MalformedFrames)?;
        let start = self.next + FRAME_HEADER;
        self.fragments.push(start + fragment.start..start + fragment.end);
        self.next += size;
        Ok(Some(header.flags & END_HEADERS != 0))
    }

    fn make_authority_valid(&self, bytes: &mut [u8]) -> Result<(), Malformed> {
        if let [fragment] = self.fragments.as_slice() {
            return make_authority_valid(&mut bytes[fragment.clone()]);
        }
        let mut whole: Vec<u8> = self.fragments.iter().flat_map(|f| &bytes[f.clone()]).copied().collect();
        make_authority_valid(&mut whole)?;
        let mut rest = whole.as_slice();
        for fragment in &self.fragments {
            let (part, after) = rest.split_at(fragment.len());
            bytes[fragment.clone()].copy_from_slice(part);
            rest = after;
        }
        Ok(())
    }
}

impl FrameHeader {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let [l0, l1, l2, kind, flags, stream @ ..] = *bytes.first_chunk::<FRAME_HEADER>()?;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        Some(Self { length, kind, flags, stream })
    }

    /// Range of the header block's fragment in the payload, between padding length, priority and padding.
    fn fragment(&self, payload: &[u8]) -> Option<Range<usize>> {
        let (mut start, mut end) = (0, payload.len());
        if self.kind == HEADERS {
            if self.flags & PADDED != 0 {
                end = end.checked_sub(usize::from(*payload.first()?))?;
                start += 1;
            }
            if self.flags & PRIORITY != 0 {
                start += 5;
            }
        }
        (start <= end).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    fn block(authority: &str) -> Vec<u8> {
        let length = u8::try_from(authority.len()).unwrap();
        [&[0x83, 0x86, 0x41, length], authority.as_bytes(), &[0x40, 1, b'a', 1, b'%']].concat()
    }

    /// The output for `input` pushed in pieces of `sizes`, taken in pieces of seven bytes.
    fn pass(input: &[u8], sizes: &[usize]) -> Result<Vec<u8>, FrameError> {
        let (mut frames, mut out, mut rest) = (Frames::default(), Vec::new(), input);
        let mut sizes = sizes.iter().copied().cycle();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
            rest = after;
            frames.push(piece)?;
            let mut into = [0; 7];
            let mut into = ReadBuf::new(&mut into);
            while frames.take(&mut into) {
                out.extend_from_slice(into.filled());
                into.clear();
            }
        }
        Ok(out)
    }

    fn conversation(authority: &str) -> Vec<u8> {
        let block = block(authority);
        let (a, b) = block.split_at(6);
        let padded = [&[3][..], &[0, 0, 0, 1, 9], &block[..], &[0; 3]].concat();
        [
            PREFACE.to_vec(),
            frame(4, 0, 0, &[]),
            frame(HEADERS, END_HEADERS, 1, &block),
            frame(0, 1, 1, b"%data%"),
            frame(HEADERS, PADDED | PRIORITY | END_HEADERS, 3, &padded),
            frame(HEADERS, 0, 5, a),
            frame(CONTINUATION, 0, 5, &[]),
            frame(CONTINUATION, END_HEADERS, 5, b),
            frame(8, 0, 0, &[0, 0, 0, 1]),
        ]
        .concat()
    }

    #[test]
    fn only_header_blocks_change_and_only_the_authority() {
        let out = pass(&conversation("%2Frun%2Fa.sock"), &[]).unwrap();
        assert_eq!(out, conversation("-2Frun-2Fa.sock"));
    }

    #[test]
    fn limits() {
        let with = |frames: &[Vec<u8>]| pass(&[PREFACE.to_vec(), frames.concat()].concat(), &[]);
        assert_eq!(
            with(&[frame(HEADERS, END_HEADERS, 1, &[0; MAX_FRAME + 1])]),
            Err(FrameError::HeadersTooLarge)
        );
        let mut endless = vec![frame(HEADERS, 0, 1, &[0x82; MAX_FRAME])];
        endless.resize(5, frame(CONTINUATION, 0, 1, &[0x82; MAX_FRAME]));
        assert_eq!(with(&endless), Err(FrameError::HeadersTooLarge));
        let mut empty = vec![frame(HEADERS, 0, 1, &[])];
        empty.resize(MAX_HEADERS, frame(CONTINUATION, 0, 1, &[]));
        assert_eq!(with(&empty), Err(FrameError::HeadersTooLarge));
    }

    #[test]
    fn forbidden_frames() {
        let with = |frames: &[Vec<u8>]| pass(&[PREFACE.to_vec(), frames.concat()].concat(), &[]);
        let open = frame(HEADERS, 0, 1, &[0x82]);
        for next in [frame(0, 0, 1, b"x"), frame(CONTINUATION, END_HEADERS, 3, &[]), open.clone()] {
            assert_eq!(with(&[open.clone(), next]), Err(FrameError::MalformedFrames));
        }
        assert_eq!(with(&[frame(HEADERS, PADDED, 1, &[9, 0x82])]), Err(FrameError::MalformedFrames));
        assert_eq!(with(&[frame(HEADERS, PADDED, 1, &[])]), Err(FrameError::MalformedFrames));
        assert_eq!(with(&[frame(HEADERS, PRIORITY, 1, &[0; 4])]), Err(FrameError::MalformedFrames));
        assert_eq!(pass(b"GET / HTTP/1.1\r\n", &[]), Err(FrameError::NotHttp2));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(sizes in prop::collection::vec(1usize..40, 1..20)) {
            let out = pass(&conversation("%2Frun%2Fa.sock"), &sizes).unwrap();
            prop_assert_eq!(out, conversation("-2Frun-2Fa.sock"));
        }

        #[test]
        fn any_bytes_after_the_preface_end(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            if let Ok(out) = pass(&[PREFACE, &bytes].concat(), &[]) {
                prop_assert!(out.len() <= PREFACE.len() + bytes.len());
            }
        }

        /// Bytes resembling frames reach more code than plain noise.
        #[test]
        fn any_frames_keep_their_length(
            frames in prop::collection::vec(
                (0u8..12, any::<u8>(), 0u32..4, prop::collection::vec(any::<u8>(), 0..60)), 0..20)
        ) {
            let bytes: Vec<u8> =
                frames.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload)).collect();
            let input = [PREFACE, &bytes].concat();
            if let Ok(out) = pass(&input, &[5]) {
                prop_assert_eq!(&input[..PREFACE.len()], &out[..PREFACE.len()]);
                prop_assert!(out.len() <= input.len());
            }
        }
    }
}
