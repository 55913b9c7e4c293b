use std::str::FromStr;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Longest limit: the API server takes no more seconds than a signed 32-bit number has.
const LONGEST: u64 = i32::MAX as u64;

/// The value of `--time`, rounded up to minutes as by Slurm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit(Option<u64>);

impl TimeLimit {
    /// In seconds; `None` without a limit.
    #[must_use]
    pub const fn seconds(self) -> Option<u64> {
        self.0
    }
}

impl FromStr for TimeLimit {
    type Err = String;

    /// `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`,
    /// `days-hours:minutes:seconds`; no limit: `0`, `UNLIMITED` or `INFINITE`.
    fn from_str(text: &str) -> Result<Self, String> {
        if ["UNLIMITED", "INFINITE"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
            return Ok(TimeLimit(None));
        }
        let (days, rest) = match text.split_once('-') {
            Some((days, rest)) => (Some(days), rest),
            None => (None, text),
        };
        let parts: Vec<&str> = rest.split(':').collect();
        let units: &[u64] = match (days.is_some(), parts.len()) {
            (false, 1) => &[MINUTE],
            (false, 2) => &[MINUTE, 1],
            (true, 1) => &[HOUR],
            (true, 2) => &[HOUR, MINUTE],
            (_, 3) => &[HOUR, MINUTE, 1],
            _ => return Err(FORMS.to_owned()),
        };
        let mut seconds = 0_u64;
        for (part, unit) in days.into_iter().zip([DAY]).chain(parts.into_iter().zip(units.iter().copied())) {
            let number = whole(part).ok_or(FORMS)?;
            seconds = number
                .checked_mul(unit)
                .and_then(|part| seconds.checked_add(part))
                .filter(|seconds| *seconds <= LONGEST)
                .ok_or("more than 68 years")?;
        }
        Ok(TimeLimit(Some(seconds.div_ceil(MINUTE) * MINUTE).filter(|seconds| *seconds > 0)))
    }
}

const FORMS: &str = "expected minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes or \
                     days-hours:minutes:seconds";

/// Digits alone: `u64::from_str` would take a sign.
pub(crate) fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
