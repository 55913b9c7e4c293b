//! Just enough HTTP/2 to read a server's answers.

pub const KIND_DATA: u8 = 0;
const KIND_HEADERS: u8 = 1;
pub const KIND_RESET: u8 = 3;

/// One frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// Whether it is the server's last frame of its stream.
    pub fn ends_its_stream(&self) -> bool {
        const END_STREAM: u8 = 1;
        match self.kind {
            KIND_DATA | KIND_HEADERS => self.flags & END_STREAM != 0,
            kind => kind == KIND_RESET,
        }
    }
}

/// The complete frames in a server's bytes.
pub fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_at_checked(9) {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let Some((payload, after)) = rest.split_at_checked(length) else { break };
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        frames.push(Frame { kind: header[3], flags: header[4], stream, payload: payload.to_vec() });
        bytes = after;
    }
    frames
}
