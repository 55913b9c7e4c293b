//! Messages as lines of JSON.

use std::io;

use serde::Serialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::protocol::LONGEST_LINE;

/// Reads a line, without its end; `None` at the end of the stream.
pub(super) async fn read_line(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let longest = u64::try_from(LONGEST_LINE).unwrap_or(u64::MAX);
    reader.take(longest).read_until(b'\n', &mut line).await?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => {
            let text = format!("a line that is cut off or longer than {LONGEST_LINE} bytes");
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
    }
}

/// Writes a message as a line.
pub(super) async fn write_line(
    writer: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    writer.write_all(&line).await
}
