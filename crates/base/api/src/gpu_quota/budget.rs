//! GPU hours of a team, by calendar periods in UTC.

use std::ops::Range;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use super::GpuQuotaError;

/// Largest budget, in GPU hours: more than a million cards have in a month.
pub const LARGEST_BUDGET: u32 = 1_000_000_000;

/// GPU hours of a team for each period: an allocated card counts for as long as it is allocated, used or not. Unused hours are
/// not carried over, and nothing that runs is ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budget {
    /// GPU hours for a period. A partition or share counts by its part of the card.
    #[cfg_attr(feature = "crd", schemars(range(min = 1, max = 1_000_000_000)))]
    pub gpu_hours: u32,
    /// The period: it begins at midnight UTC, a week on Monday.
    #[serde(default)]
    pub period: Period,
    /// Effect of a spent budget on the team's new pods and gangs: `Wait`: they wait for the next period; `LentOnly`: nothing is
    /// guaranteed to the team until then.
    #[serde(default)]
    pub when_spent: WhenSpent,
}

/// Calendar period, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum Period {
    /// A day.
    Day,
    /// A week, from Monday.
    Week,
    /// A month.
    #[default]
    Month,
}

/// Effect of a spent budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub enum WhenSpent {
    /// New pods and gangs wait for the next period.
    #[default]
    Wait,
    /// Nothing is guaranteed to the team until the next period: it borrows.
    LentOnly,
}

impl Budget {
    pub(super) fn check(&self) -> Result<(), GpuQuotaError> {
        if (1..=LARGEST_BUDGET).contains(&self.gpu_hours) {
            return Ok(());
        }
        let reason = format!("must be from 1 to {LARGEST_BUDGET}");
        Err(GpuQuotaError::value("budget.gpuHours", reason))
    }
}

impl Period {
    /// The period with this time: its first second, and that of the next period. Times are seconds since the Unix epoch; a time out
    /// of jiff's range is a period by itself.
    #[must_use]
    pub fn around(self, second: i64) -> Range<i64> {
        self.dates(second)
            .and_then(|(first, next)| Some(midnight(first)?..midnight(next)?))
            .unwrap_or(second..second.saturating_add(1))
    }

    /// The period with this time, as in "hours of November".
    #[must_use]
    pub fn text(self, second: i64) -> String {
        let Some((first, _)) = self.dates(second) else { return "the period".to_owned() };
        match self {
            Period::Day => first.to_string(),
            Period::Week => format!("the week from {first}"),
            Period::Month => first.strftime("%B").to_string(),
        }
    }

    /// The first days of the period with this time, and of the next.
    fn dates(self, second: i64) -> Option<(Date, Date)> {
        let date = Timestamp::from_second(second).ok()?.to_zoned(TimeZone::UTC).date();
        match self {
            Period::Day => Some((date, date.tomorrow().ok()?)),
            Period::Week => {
                let first = date.checked_sub(i64::from(date.weekday().since(Weekday::Monday)).days()).ok()?;
                Some((first, first.checked_add(7.days()).ok()?))
            }
            Period::Month => Some((date.first_of_month(), date.last_of_month().tomorrow().ok()?)),
        }
    }
}

fn midnight(date: Date) -> Option<i64> {
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_those_of_the_calendar() {
        let second = |text: &str| text.parse::<Timestamp>().unwrap().as_second();
        for (period, at, first, next, text) in [
            (Period::Day, "2026-11-28T23:59:59Z", "2026-11-28", "2026-11-29", "2026-11-28"),
            // A Saturday.
            (Period::Week, "2026-11-28T12:00:00Z", "2026-11-23", "2026-11-30", "the week from 2026-11-23"),
            (Period::Week, "2026-11-23T00:00:00Z", "2026-11-23", "2026-11-30", "the week from 2026-11-23"),
            (Period::Week, "2027-01-01T00:00:00Z", "2026-12-28", "2027-01-04", "the week from 2026-12-28"),
            (Period::Month, "2026-12-31T23:59:59Z", "2026-12-01", "2027-01-01", "December"),
            (Period::Month, "2028-02-29T00:00:00Z", "2028-02-01", "2028-03-01", "February"),
        ] {
            let midnight = |date: &str| second(&format!("{date}T00:00:00Z"));
            assert_eq!(period.around(second(at)), midnight(first)..midnight(next), "{period:?} of {at}");
            assert_eq!(period.text(second(at)), text);
        }
        assert_eq!(Period::Month.around(i64::MAX), i64::MAX..i64::MAX);
    }
}
