//! Figures in words, with the same digits everywhere on the page.

use k8s_openapi::jiff::Timestamp;

/// A part of all: `37 %`.
pub fn percent(part: f64, all: f64) -> String {
    if all > 0.0 { format!("{:.0} %", 100.0 * part / all) } else { "-".to_owned() }
}

/// `1 node`, `2 nodes`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// `USD 12.50`.
pub fn money(currency: &str, amount: f64) -> String {
    format!("{currency} {amount:.2}")
}

/// `24 h`, `35 min`.
pub fn span(hours: f64) -> String {
    if hours < 2.0 { format!("{:.0} min", hours * 60.0) } else { format!("{hours:.0} h") }
}

/// Time elapsed: `90 s`, `35 min`, `3 h`. Arguments are Unix times, in seconds.
pub fn age(now: u64, since: u64) -> String {
    match now.saturating_sub(since) {
        _ if since == 0 => "-".to_owned(),
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// A Unix time in RFC 3339 format, in UTC.
pub fn rfc3339(seconds: u64) -> String {
    timestamp(seconds).map(|time| time.to_string()).unwrap_or_default()
}

/// The time of the day, in UTC: `14:30`.
pub fn clock(seconds: u64) -> String {
    timestamp(seconds).map(|time| time.strftime("%H:%M").to_string()).unwrap_or_default()
}

fn timestamp(seconds: u64) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}
