//! The last day as text, to outlive the replicas: coarser than in memory, and never longer than [`LONGEST`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tessera_api::fleet_view::FleetPoint;

use super::history::{DAY, History, Hour, OTHERS, Tally};
use super::merge::rounded;

/// Maximum length of the text in bytes. API objects are limited to some 1.5 MB, and each write goes through etcd as a whole.
pub const LONGEST: usize = 100 << 10;

/// Seconds between two points.
const EVERY: u64 = 300;

/// Maximum number of namespaces, largest first. Others are added up under [`OTHERS`].
const NAMESPACES: usize = 50;

/// Longest name of a namespace in Kubernetes.
const LONGEST_NAME: usize = 63;

/// Version of the format. Other versions may differ in meaning.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    version: u32,
    /// Unix time in seconds, cards, allocated, busy.
    points: Vec<(u64, u32, f64, f64)>,
    /// Names, referenced by index below.
    namespaces: Vec<String>,
    hours: Vec<StoredHour>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredHour {
    /// Hours since the epoch.
    hour: u64,
    /// Seconds covered by observations.
    watched: u64,
    /// Index of the namespace; card-hours allocated, measured and busy; price of the idle ones.
    sums: Vec<(usize, f64, f64, f64, f64)>,
}

/// Why a text is not a stored day.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// Not written by this version.
    #[error("is no day of a fleet: {0}")]
    Form(#[from] serde_json::Error),
    /// Written by another version.
    #[error("has the form {0}, and this version knows {VERSION} only")]
    Version(u32),
    /// Not written by this version.
    #[error("has {0} bytes, and none has more than {LONGEST}")]
    Long(usize),
}

/// The day as text.
pub fn write(history: &History) -> String {
    // The last point of every five minutes, so that writing a restored day gives the same text.
    let last_of: BTreeMap<u64, &FleetPoint> =
        history.points().map(|point| (point.at / EVERY, point)).collect();
    let point = |point: &FleetPoint| (point.at, point.cards, rounded(point.allocated), rounded(point.busy));
    let mut names: Vec<(String, f64)> =
        history.by_namespace().into_iter().map(|(name, sum)| (name.to_owned(), sum.allocated)).collect();
    names.retain(|(name, _)| name != OTHERS);
    names.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let mut namespaces: Vec<String> = names.into_iter().map(|(name, _)| name).take(NAMESPACES).collect();
    let number: BTreeMap<String, usize> =
        namespaces.iter().enumerate().map(|(number, name)| (name.clone(), number)).collect();
    let others = namespaces.len();
    namespaces.push(OTHERS.to_owned());
    let hour = |hour: &Hour| {
        let mut sums: BTreeMap<usize, Tally> = BTreeMap::new();
        for (name, tally) in &hour.sums {
            sums.entry(number.get(name).copied().unwrap_or(others)).or_default().add(tally);
        }
        let sum = |(number, tally): (usize, Tally)| {
            let Tally { allocated, measured, busy, lost } = tally;
            (number, rounded(allocated), rounded(measured), rounded(busy), rounded(lost))
        };
        StoredHour { hour: hour.hour, watched: hour.watched, sums: sums.into_iter().map(sum).collect() }
    };
    let stored = Stored {
        version: VERSION,
        points: last_of.into_values().map(point).collect(),
        namespaces,
        hours: history.hours().map(hour).collect(),
    };
    // Cannot fail: keys are strings, and values are numbers or null.
    serde_json::to_string(&stored).unwrap_or_default()
}

/// The day from a text, as of `now`. Impossible values are skipped.
///
/// # Errors
/// See [`StoredError`].
pub fn read(text: &str, now: u64) -> Result<History, StoredError> {
    if text.len() > LONGEST {
        return Err(StoredError::Long(text.len()));
    }
    // Everything else may differ in another version.
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_str(text)?;
    if version != VERSION {
        return Err(StoredError::Version(version));
    }
    let stored: Stored = serde_json::from_str(text)?;
    let is_amount = |value: &f64| value.is_finite() && *value >= 0.0;
    let is_of_the_day = |at: u64| at <= now && at + DAY > now;
    let mut points: Vec<FleetPoint> = Vec::new();
    for (at, cards, allocated, busy) in stored.points {
        let is_next = points.last().is_none_or(|last| last.at < at);
        if is_next && is_of_the_day(at) && is_amount(&allocated) && is_amount(&busy) {
            points.push(FleetPoint { at, cards, allocated, busy });
        }
    }
    let mut hours: Vec<Hour> = Vec::new();
    for StoredHour { hour, watched, sums } in stored.hours {
        let is_next = hours.last().is_none_or(|last| last.hour < hour);
        if !is_next || hour > now / 3600 || hour + 24 <= now / 3600 {
            continue;
        }
        let mut of_hour = Hour { hour, watched: watched.min(3600), sums: BTreeMap::new() };
        let mut seen = BTreeSet::new();
        for (number, allocated, measured, busy, lost) in sums {
            let name = stored.namespaces.get(number).filter(|name| name.len() <= LONGEST_NAME);
            if let Some(name) = name
                && [allocated, measured, busy, lost].iter().all(is_amount)
                && seen.insert(number)
            {
                of_hour.sums.insert(name.clone(), Tally { allocated, measured, busy, lost });
            }
        }
        hours.push(of_hour);
    }
    Ok(History::of(points, hours))
}

#[cfg(test)]
mod tests {
    use tessera_api::fleet_view::DayView;

    use super::super::history::tests::fleet;
    use super::super::prices::Prices;
    use super::*;

    /// This many minutes of a fleet where each namespace has a card.
    fn watched(minutes: u64, namespaces: usize) -> History {
        let prices = Prices { currency: "USD".to_owned(), per_card_hour: [("A".to_owned(), 2.0)].into() };
        let mut history = History::default();
        for minute in 0..=minutes {
            history.add(&fleet(60 * minute, namespaces, Some(0.3)), &prices);
        }
        history
    }

    #[test]
    fn what_was_written_is_read() {
        let history = watched(200, 3);
        let text = write(&history);
        let read = read(&text, 200 * 60 + 30).unwrap();
        let (before, after) = (history.view(true), read.view(true));
        assert_eq!((before.hours, &before.namespaces), (after.hours, &after.namespaces));
        // Each sum was rounded.
        let cost = |day: &DayView| day.idle_cost.unwrap();
        assert!((cost(&before) - cost(&after)).abs() < 0.001, "{after:?}");
        assert_eq!((before.points.last(), after.points.len()), (after.points.last(), 41));
        assert_eq!(write(&read), text, "and no coarser the second time");
    }

    #[test]
    fn a_day_of_many_namespaces_is_short_and_nothing_is_lost_of_the_sum() {
        let history = watched(24 * 60, 300);
        let text = write(&history);
        assert!(text.len() < LONGEST, "{} bytes", text.len());
        let sum = |history: &History| -> f64 {
            history.view(false).namespaces.iter().map(|day| day.allocated_hours).sum()
        };
        let read = read(&text, 24 * 3600).unwrap();
        assert_eq!(read.by_namespace().len(), NAMESPACES + 1);
        assert!((sum(&history) - sum(&read)).abs() < 1.0, "{} {}", sum(&history), sum(&read));
    }

    /// Names and numbers of maximum length.
    #[test]
    fn the_longest_day_is_short() {
        let tally = Tally {
            allocated: 99_999.123_4,
            measured: 99_998.123_4,
            busy: 88_888.123_4,
            lost: 999_999.123_4,
        };
        let sums = |_| (0..500).map(|number| (format!("{number:063}"), tally)).collect();
        let hours = (0..25u64).map(|hour| Hour { hour: 400_000 + hour, watched: 3600, sums: sums(hour) });
        let point = |minute: u64| FleetPoint {
            at: 1_440_000_000 + 60 * minute,
            cards: 99_999,
            allocated: 99_998.123_4,
            busy: 99_998.123_4,
        };
        let text = write(&History::of((0..1440).map(point).collect(), hours.collect()));
        assert!(text.len() < LONGEST, "{} bytes", text.len());
    }

    #[test]
    fn what_is_old_or_cannot_be_is_left_out() {
        let text = write(&watched(120, 1));
        let empty = read(&text, 3 * 86_400).unwrap().view(false);
        assert_eq!((empty.points.len(), empty.namespaces.len(), empty.hours), (0, 0, 0.0));
        let future = read(&text, 10).unwrap().view(false);
        assert!(future.points.len() <= 1, "{future:?}");
        for (text, says) in [
            ("", "is no day"),
            ("[]", "is no day"),
            (r#"{"version": 2, "points": "other"}"#, "form 2"),
            (r#"{"version": 1}"#, "is no day"),
        ] {
            let error = read(text, 0).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(says), "{text}: {error}");
        }
        let error = read(&" ".repeat(LONGEST + 1), 0).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("bytes")));
        let hostile = r#"{"version": 1, "points": [[60, 8, -1, 0], [120, 8, 1, 1], [90, 8, 1, 1]], "namespaces": ["a"],
            "hours": [{"hour": 0, "watched": 99999, "sums": [[0, 1, 1, 1, 0], [0, 9, 9, 9, 9], [7, 1, 1, 1, 1]]}]}"#;
        let read = read(hostile, 3_599).unwrap().view(false);
        assert_eq!((read.points.len(), read.hours, read.namespaces.len()), (1, 1.0, 1));
        assert_eq!(read.namespaces[0].allocated_hours, 1.0);
    }

    /// An upgrade: the next replica continues the day, and counts the time in between.
    #[test]
    fn the_day_goes_on() {
        let mut next = read(&write(&watched(60, 1)), 62 * 60).unwrap();
        for minute in 62..70 {
            next.add(&fleet(60 * minute, 1, Some(0.3)), &Prices::default());
        }
        let day = next.view(false);
        assert_eq!((day.points.len(), day.points[0].at), (13 + 8, 240));
        assert!((day.hours - 69.0 / 60.0).abs() < 1e-3, "{day:?}");
        assert!((day.namespaces[0].allocated_hours - 69.0 / 60.0).abs() < 1e-3, "{day:?}");
    }
}
