//! One JSON request per line, one JSON answer per line: `docs/allocate-protocol.md`.

pub mod allocate;
pub mod cel;

use std::io::{self, BufRead, BufReader, Read, Write};

use serde_json::{Value, json};

/// Limit of a line's length, in bytes.
const LINE_LIMIT: usize = 256 << 20;

/// Answers requests.
pub trait Answers {
    /// The answer to one request.
    ///
    /// # Errors
    /// The request is invalid; the text says why.
    fn answer(&mut self, request: Value) -> Result<Value, String>;
}

/// Answers every line until the end. For an invalid request, the answer has `error`, and the request's `id` if there
/// is one.
///
/// # Errors
/// A stream failed.
pub fn serve(input: impl Read, output: impl Write, server: &mut dyn Answers) -> io::Result<()> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let mut output = io::BufWriter::new(output);
    let mut number = 0_u64;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(LINE_LIMIT as u64 + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return output.flush();
        }
        number += 1;
        let answer = if line.len() > LINE_LIMIT {
            skip_line(&mut input)?;
            json!({ "error": format!("line {number} is longer than {} MiB", LINE_LIMIT >> 20) })
        } else if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        } else {
            answer(&line, number, server)
        };
        serde_json::to_writer(&mut output, &answer)?;
        output.write_all(b"\n")?;
        // An interactive caller gets each answer at once; a pipelining caller gets answers in batches.
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
}

fn answer(line: &[u8], number: u64, server: &mut dyn Answers) -> Value {
    let request = match serde_json::from_slice::<Value>(line) {
        Ok(request @ Value::Object(_)) => request,
        Ok(_) => return json!({ "error": format!("line {number} is not a request: not a JSON object") }),
        Err(error) => return json!({ "error": format!("line {number} is not a request: {error}") }),
    };
    let id = request.get("id").cloned();
    let mut answer = server
        .answer(request)
        .unwrap_or_else(|reason| json!({ "error": format!("line {number} is not a request: {reason}") }));
    if let (Some(id), Value::Object(fields)) = (id, &mut answer) {
        fields.insert("id".to_owned(), id);
    }
    answer
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (used, over) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        if over {
            return Ok(());
        }
    }
}
