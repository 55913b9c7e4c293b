use std::ffi::CStr;

/// Maximum length of a bad answer quoted in a message.
const SHOWN: usize = 60;

/// The text in a buffer filled by a C function; the error is the buffer's content, made printable.
///
/// A text without a terminator, not in UTF-8, empty or with control characters is an error: valid answers of NVML
/// are never so.
pub(super) fn from_buffer(buffer: &[u8]) -> Result<String, String> {
    let text = CStr::from_bytes_until_nul(buffer).map_err(|_| printable(buffer))?;
    match text.to_str() {
        Ok(text) if !text.trim().is_empty() && !text.chars().any(char::is_control) => {
            Ok(text.trim().to_owned())
        }
        _ => Err(format!("'{}'", printable(text.to_bytes()))),
    }
}

fn printable(bytes: &[u8]) -> String {
    bytes.iter().take(SHOWN).copied().flat_map(std::ascii::escape_default).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_at_the_terminator() {
        assert_eq!(from_buffer(b"NVIDIA H200\0garbage\xff").as_deref(), Ok("NVIDIA H200"));
        assert_eq!(from_buffer(b"  Tesla T4 \0").as_deref(), Ok("Tesla T4"));
    }

    #[test]
    fn garbage_is_no_text() {
        for buffer in [&b"not terminated"[..], b"\xff\xfe\0", b"\0", b"   \0", b"a\x1b[31mb\0", b""] {
            let shown = from_buffer(buffer).unwrap_err();
            assert!(shown.is_ascii() && !shown.contains('\x1b'), "{shown}");
        }
        assert!(from_buffer(&[0xff; 4096]).unwrap_err().len() < 300);
    }
}
