//! Parses the output of `nvidia-cuda-mps-control`, without trusting it: a daemon may be faulty, or its socket
//! another's.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::error::MpsError;

/// How much of an answer is read, bytes. The longest real answer lists a few dozen process ids.
pub(super) const LONGEST: usize = 64 << 10;

/// The largest possible process id (`PID_MAX_LIMIT` of Linux).
const LARGEST_PID: u32 = 1 << 22;

/// Number of characters of an unintelligible answer to show in an error.
const SHOWN: usize = 200;

/// Reads to the end, or one byte past the limit.
pub(super) async fn read(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(LONGEST as u64 + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Parses process ids, one per line. Skips other lines if there is any process id: a warning is no reason to distrust
/// the rest.
///
/// # Errors
/// [`MpsError::Nonsense`] if there is text without any process id.
pub(super) fn process_ids(command: &str, text: &str) -> Result<Vec<u32>, MpsError> {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut ids: Vec<u32> =
        lines().filter_map(|line| line.parse().ok()).filter(|id| (1..=LARGEST_PID).contains(id)).collect();
    if ids.is_empty() && lines().next().is_some() {
        return Err(nonsense(command, text));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The error for an unintelligible answer.
pub(super) fn nonsense(command: &str, output: &str) -> MpsError {
    let shown = output.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN);
    MpsError::Nonsense { command: command.to_owned(), output: shown.collect() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_lines_that_are_numbers_are_process_ids() {
        let ids = |text| process_ids("get_server_list", text);
        assert_eq!(ids("").unwrap(), [0; 0]);
        assert_eq!(ids(" \n\n").unwrap(), [0; 0]);
        assert_eq!(ids("4711\n 12 \n4711\n").unwrap(), [12, 4711]);
        assert_eq!(ids("warning: 3 clients\n4711").unwrap(), [4711]);
        for text in
            ["Server 4711 not found", "0", "-1", "4294967295", "99999999999999999999", "\u{0}", "4711 4712"]
        {
            let error = ids(text).unwrap_err().to_string();
            assert!(error.contains("get_server_list"), "{error}");
        }
        let long = ids(&"x".repeat(1 << 20)).unwrap_err().to_string();
        assert!(long.len() < 500, "{long}");
    }

    #[tokio::test]
    async fn an_answer_without_end_is_read_to_its_limit_only() {
        let read = super::read(Some(tokio::io::repeat(b'7'))).await.unwrap();
        assert_eq!(read.len(), LONGEST + 1);
    }

    proptest! {
        #[test]
        fn whatever_a_daemon_prints_is_process_ids_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let text = String::from_utf8_lossy(&bytes);
            if let Ok(ids) = process_ids("ps", &text) {
                prop_assert!(ids.iter().all(|id| (1..=LARGEST_PID).contains(id)));
                prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert_eq!(ids.is_empty(), text.trim().is_empty());
            }
        }
    }
}
