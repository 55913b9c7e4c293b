//! Durations and timestamps, as Go reads and writes them.

use std::fmt;

use jiff::tz::TimeZone;

/// First and last second of a timestamp, from year 1 to year 9999.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;

pub(crate) const NANOSECONDS: i64 = 1_000_000_000;

/// A point in time with the offset from its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timestamp {
    seconds: i64,
    pub nanoseconds: u32,
    /// Seconds east of UTC.
    offset: i32,
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        (self.seconds, self.nanoseconds) == (other.seconds, other.nanoseconds)
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.seconds, self.nanoseconds).cmp(&(other.seconds, other.nanoseconds))
    }
}

/// A date and time of day.
pub(crate) struct Civil {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub day_of_year: i64,
    pub weekday: i64,
    pub second_of_day: i64,
}

/// Days from 1970-01-01 to the date, by the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Timestamp {
    pub(crate) fn from_seconds(seconds: i64) -> Result<Self, &'static str> {
        if (FIRST..=LAST).contains(&seconds) {
            Ok(Timestamp { seconds, nanoseconds: 0, offset: 0 })
        } else {
            Err("timestamp overflow")
        }
    }

    /// Like Go's `time.Unix(seconds, nanoseconds)`: without a check of the range, and nanoseconds may be any number.
    pub(crate) fn from_parts(seconds: i64, nanoseconds: i64) -> Self {
        Timestamp {
            seconds: seconds.wrapping_add(nanoseconds.div_euclid(NANOSECONDS)),
            nanoseconds: nanoseconds.rem_euclid(NANOSECONDS) as u32,
            offset: 0,
        }
    }

    pub(crate) fn seconds(&self) -> i64 {
        self.seconds
    }

    /// Whether this is Go's zero time.
    pub(crate) fn is_year_one(&self) -> bool {
        self.seconds == FIRST && self.nanoseconds == 0
    }

    /// Reads RFC 3339; `None` for other text, an error if out of range.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, &'static str>> {
        let (date, rest) = text.split_once('T')?;
        let (year, month, day) = parse_date(date)?;
        let (hour, rest) = rest.split_once(':')?;
        let hour = digits(hour, 1, 2).filter(|hour| *hour < 24)?;
        let minute = digits(rest.get(..2)?, 2, 2).filter(|minute| *minute < 60)?;
        let rest = rest.get(2..)?.strip_prefix(':')?;
        let second = digits(rest.get(..2)?, 2, 2).filter(|second| *second < 60)?;
        let mut rest = rest.get(2..)?;
        let mut nanoseconds = 0;
        if let Some(fraction) = rest.strip_prefix(['.', ',']) {
            let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if length == 0 {
                return None;
            }
            let mut padded = fraction[..length.min(9)].to_owned();
            while padded.len() < 9 {
                padded.push('0');
            }
            nanoseconds = padded.parse().ok()?;
            rest = &fraction[length..];
        }
        let offset = if rest == "Z" {
            0
        } else {
            let sign = match rest.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let (hours, minutes) = rest[1..].split_once(':')?;
            let hours = digits(hours, 2, 2).filter(|hours| *hours <= 24)?;
            let minutes = digits(minutes, 2, 2).filter(|minutes| *minutes < 60)?;
            sign * (hours * 3600 + minutes * 60)
        };
        let seconds =
            days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
        Some(if (FIRST..=LAST).contains(&seconds) {
            Ok(Timestamp { seconds, nanoseconds, offset: offset as i32 })
        } else {
            Err("timestamp overflow")
        })
    }

    pub(crate) fn plus(&self, nanoseconds: i64) -> Result<Self, &'static str> {
        let total = i64::from(self.nanoseconds) + nanoseconds % NANOSECONDS;
        let seconds = (self.seconds + nanoseconds / NANOSECONDS) + total.div_euclid(NANOSECONDS);
        if !(FIRST..=LAST).contains(&seconds) {
            return Err("timestamp overflow");
        }
        Ok(Timestamp { seconds, nanoseconds: total.rem_euclid(NANOSECONDS) as u32, offset: self.offset })
    }

    /// Nanoseconds since `other`, `None` where they do not fit.
    pub(crate) fn since(&self, other: &Self) -> Option<i64> {
        let seconds = self.seconds.checked_sub(other.seconds)?.checked_mul(NANOSECONDS)?;
        seconds.checked_add(i64::from(self.nanoseconds) - i64::from(other.nanoseconds))
    }

    pub fn civil(&self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let days = local.div_euclid(86_400);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_shifted_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_shifted_year + 2) / 153;
        let day = day_of_shifted_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil {
            year,
            month,
            day,
            day_of_year: days - days_from_civil(year, 1, 1),
            weekday: (days + 4).rem_euclid(7),
            second_of_day: local.rem_euclid(86_400),
        }
    }
}

/// Year, month and day of `2006-01-02`.
pub(crate) fn parse_date(text: &str) -> Option<(i64, i64, i64)> {
    let mut parts = text.split('-');
    let year = digits(parts.next()?, 4, 4)?;
    let month = digits(parts.next()?, 2, 2).filter(|month| (1..=12).contains(month))?;
    let day = digits(parts.next()?, 2, 2).filter(|day| *day >= 1 && *day <= days_in(year, month))?;
    parts.next().is_none().then_some((year, month, day))
}

fn digits(text: &str, fewest: usize, most: usize) -> Option<i64> {
    let fits = (fewest..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 with as many decimals as needed.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = self.civil(i64::from(self.offset));
        let (hour, minute, second) =
            (civil.second_of_day / 3600, civil.second_of_day / 60 % 60, civil.second_of_day % 60);
        write!(
            formatter,
            "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}",
            civil.year, civil.month, civil.day
        )?;
        if self.nanoseconds > 0 {
            let decimals = format!("{:09}", self.nanoseconds);
            write!(formatter, ".{}", decimals.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return formatter.write_str("Z");
        }
        let minutes = self.offset.abs() / 60;
        let sign = if self.offset < 0 { '-' } else { '+' };
        write!(formatter, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// Seconds with as many decimals as needed, as in `string(duration)`.
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let seconds = (nanoseconds / NANOSECONDS) as f64 + (nanoseconds % NANOSECONDS) as f64 / 1e9;
    format!("{seconds}s")
}

/// Parses `1h2m3.5s` like Go's `time.ParseDuration`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let whole_length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let whole: u64 = if whole_length == 0 { 0 } else { rest[..whole_length].parse().ok()? };
        if whole > 1 << 63 {
            return None;
        }
        rest = &rest[whole_length..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let length = after.bytes().take_while(u8::is_ascii_digit).count();
            fraction = &after[..length];
            rest = &after[length..];
        }
        if whole_length == 0 && fraction.is_empty() {
            return None;
        }
        let unit_length = rest.bytes().take_while(|byte| *byte != b'.' && !byte.is_ascii_digit()).count();
        let unit: u64 = match &rest[..unit_length] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        rest = &rest[unit_length..];
        let mut value = whole.checked_mul(unit).filter(|value| *value <= 1 << 63)?;
        if !fraction.is_empty() {
            // Go uses as many digits as fit into 63 bits and ignores the rest.
            let (mut digits, mut scale) = (0u64, 1f64);
            for digit in fraction.bytes() {
                let Some(next) = digits
                    .checked_mul(10)
                    .and_then(|digits| digits.checked_add(u64::from(digit - b'0')))
                    .filter(|digits| *digits <= i64::MAX as u64)
                else {
                    break;
                };
                digits = next;
                scale *= 10.0;
            }
            value = value.checked_add((digits as f64 * (unit as f64 / scale)) as u64)?;
        }
        total = total.checked_add(value).filter(|total| *total <= 1 << 63)?;
    }
    if negative { 0i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() }
}

/// Time zones read by one evaluation, by name.
#[derive(Debug, Default)]
pub(crate) struct ZoneCache(pub Vec<(&'static str, TimeZone)>);
