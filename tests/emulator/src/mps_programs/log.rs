//! `control.log` and `server.log`, in the form of the real ones.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// A log file.
#[derive(Debug)]
pub struct Log {
    file: Mutex<File>,
    source: &'static str,
}

impl Log {
    /// Opens the file for appending; `source` is `Control` or `Server`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn open(directory: &Path, name: &str, source: &'static str) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let file = File::options().create(true).append(true).open(directory.join(name))?;
        Ok(Log { file: Mutex::new(file), source })
    }

    /// Adds a line. On a full disk the line is lost.
    pub fn line(&self, text: &str) {
        let line = format!("[{} {} {:5}] {text}\n", now(), self.source, std::process::id());
        if let Ok(mut file) = self.file.lock() {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// `2026-05-31 23:46:49.893`, UTC.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02}:{:02}.{:03}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

/// Date of a day since 1970 (Howard Hinnant's algorithm for the Gregorian calendar).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn days_are_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }
}
