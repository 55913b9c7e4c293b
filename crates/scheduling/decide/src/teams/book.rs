//! GPU hours and recent use of one team.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Range};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tessera_api::gpu_quota::{GpuQuotaStatus, MILLIONTHS, Period};
use tessera_placement::Time;

use super::prices::Taken;
use crate::nominations::at;

/// Number of ended periods kept.
const PERIODS: usize = 12;

/// Number of models told apart in a period: a status stays small.
const MODELS: usize = 32;

/// Cards, each for the time of its allocation: millionths of a card by milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CardTime(u128);

/// Product name of a card, if it is known.
pub(crate) type Model = Option<Arc<str>>;

/// Use in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub all: CardTime,
    /// By product name: the part of known cards, of the first [`MODELS`].
    of_models: BTreeMap<Arc<str>, CardTime>,
}

/// An ended period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PastPeriod {
    pub span: Range<Time>,
    pub used: Used,
}

/// Mean of the use in the past, in millionths of a card: a time counts half as much as one a half-life later. 0 without a half-life.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recent(f64);

/// Hours of a team in the current period and the last ones, and its recent use.
#[derive(Debug, Clone)]
pub(crate) struct Book {
    pub period: Period,
    /// The current period.
    pub span: Range<Time>,
    pub used: Used,
    /// The latest first.
    pub past: Vec<PastPeriod>,
    pub recent: Recent,
    /// Recent use for the team's place in the queue, in millionths of a card: changes in steps.
    pub placed: u64,
}

/// Facts for the next leader, from a quota's status.
#[derive(Debug, Clone)]
pub(crate) struct Checkpoint {
    used: Used,
    since: Time,
    as_of: Time,
    past: Vec<PastPeriod>,
    recent: Recent,
}

/// Cards held since a time.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub model: Model,
    pub taken: Taken,
    pub since: Time,
}

impl CardTime {
    /// Millionths of a card for a time.
    pub fn of(cards: u64, time: Time) -> Self {
        CardTime(u128::from(cards).saturating_mul(time.as_millis()))
    }

    pub fn of_seconds(seconds: u64) -> Self {
        CardTime(u128::from(seconds) * 1000 * u128::from(MILLIONTHS))
    }

    /// Whole seconds of a card.
    pub fn seconds(self) -> u64 {
        u64::try_from(self.0 / 1000 / u128::from(MILLIONTHS)).unwrap_or(u64::MAX)
    }
}

impl AddAssign for CardTime {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Used {
    fn of_seconds(all: u64, models: &BTreeMap<String, u64>) -> Self {
        let of_model =
            |(model, seconds): (&String, &u64)| (model.as_str().into(), CardTime::of_seconds(*seconds));
        Used { all: CardTime::of_seconds(all), of_models: models.iter().map(of_model).collect() }
    }

    fn add(&mut self, running: &Running, time: Time) {
        let added = CardTime::of(running.taken.cards, time);
        self.all += added;
        let Some(model) = running.model.as_ref().filter(|_| added > CardTime::default()) else { return };
        if self.of_models.len() < MODELS || self.of_models.contains_key(model) {
            *self.of_models.entry(model.clone()).or_default() += added;
        }
    }

    /// Whole seconds of a card by product name.
    pub fn models(&self) -> BTreeMap<String, u64> {
        self.of_models.iter().map(|(model, time)| (model.to_string(), time.seconds())).collect()
    }
}

impl Recent {
    /// The mean of the status.
    fn of_cards(cards: f64) -> Self {
        Recent(if cards.is_finite() { cards.max(0.0) * MILLIONTHS as f64 } else { 0.0 })
    }

    pub fn cards(self) -> f64 {
        self.0 / MILLIONTHS as f64
    }

    /// The mean at a time, after one at `from`.
    pub fn advance(&mut self, running: &[Running], from: Time, to: Time, half_life: Time) {
        let kept = |time: Time| (-time.as_secs_f64() / half_life.as_secs_f64()).exp2();
        if half_life.is_zero() {
            *self = Recent::default();
            return;
        }
        let added = running.iter().map(|running| {
            running.taken.by_price as f64 * (1.0 - kept(to.saturating_sub(running.since.max(from))))
        });
        self.0 = self.0 * kept(to.saturating_sub(from)) + added.sum::<f64>();
    }

    /// In millionths of a card.
    pub fn millionths(self) -> u64 {
        self.0 as u64
    }
}

impl Checkpoint {
    /// Of a status with hours; `None` for others.
    pub fn of(status: &GpuQuotaStatus) -> Option<Self> {
        let time = |text: &str| text.parse::<Timestamp>().ok().map(at);
        let hours = status.hours.as_ref()?;
        let past = status.periods.iter().filter_map(|past| {
            let span = time(&past.since)?..time(&past.until)?;
            Some(PastPeriod { span, used: Used::of_seconds(past.card_seconds, &past.models) })
        });
        Some(Checkpoint {
            used: Used::of_seconds(hours.card_seconds, &hours.models),
            since: time(&hours.since)?,
            as_of: time(&hours.as_of)?,
            past: past.collect(),
            recent: Recent::of_cards(status.recent_use.parse().unwrap_or_default()),
        })
    }
}

impl Book {
    /// The book of a team from the last checkpoint, if any, and from claims that exist: those since then, or since they were allocated.
    /// After a change to another kind of period, the hours before the checkpoint are unknown: nothing but existing claims counts.
    pub fn open(
        period: Period,
        checkpoint: Option<&Checkpoint>,
        running: &[Running],
        half_life: Time,
        now: Time,
    ) -> Self {
        let mut book = Book {
            period,
            span: around(period, now),
            used: Used::default(),
            past: Vec::new(),
            recent: Recent::default(),
            placed: 0,
        };
        let (mut from, mut recent_from) = (Time::ZERO, Time::ZERO);
        if let Some(checkpoint) = checkpoint {
            // A checkpoint of the future is a clock's mistake: its hours count, and go on from now.
            recent_from = checkpoint.as_of.min(now);
            book.recent = checkpoint.recent;
            book.past.clone_from(&checkpoint.past);
            let span = around(period, checkpoint.since);
            // Counted past its end, it is another kind of period with the same start.
            if span.start == checkpoint.since && span.start <= now && recent_from <= span.end {
                (book.span, book.used, from) = (span, checkpoint.used.clone(), recent_from);
            } else if checkpoint.since < recent_from {
                let span = checkpoint.since..recent_from;
                book.past.insert(0, PastPeriod { span, used: checkpoint.used.clone() });
                book.past.truncate(PERIODS);
            }
        }
        book.count(running, from, now);
        book.recent.advance(running, recent_from, now, half_life);
        book.placed = book.recent.millionths();
        book
    }

    /// Adds the hours of running claims, each to its period.
    pub fn count(&mut self, running: &[Running], mut from: Time, to: Time) {
        loop {
            from = from.max(self.span.start);
            let end = to.min(self.span.end);
            for running in running {
                self.used.add(running, end.saturating_sub(running.since.max(from)));
            }
            if to < self.span.end {
                return;
            }
            let next = around(self.period, self.span.end);
            let span = std::mem::replace(&mut self.span, next);
            self.past.insert(0, PastPeriod { span, used: std::mem::take(&mut self.used) });
            self.past.truncate(PERIODS);
        }
    }
}

/// The period with this time.
fn around(period: Period, time: Time) -> Range<Time> {
    let span = period.around(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    let time = |second| Time::from_secs(u64::try_from(second).unwrap_or_default());
    time(span.start)..time(span.end)
}

#[cfg(test)]
mod tests {
    use tessera_api::gpu_quota::HoursStatus;

    use super::*;

    const HOUR: u64 = 3600;
    const CARD: u64 = MILLIONTHS;

    fn hours(used: &Used) -> u64 {
        used.all.seconds() / HOUR
    }

    fn taken(cards: u64) -> Taken {
        Taken { cards, by_price: cards }
    }

    fn time(text: &str) -> Time {
        at(text.parse().unwrap())
    }

    fn open(
        period: Period,
        checkpoint: Option<(u64, &str, &str)>,
        running: &[(u64, &str)],
        now: &str,
    ) -> Book {
        let status = checkpoint.map(|(hours, since, as_of)| GpuQuotaStatus {
            hours: Some(HoursStatus {
                card_seconds: hours * HOUR,
                since: since.to_owned(),
                as_of: as_of.to_owned(),
                ..HoursStatus::default()
            }),
            recent_use: "4.000000".to_owned(),
            ..GpuQuotaStatus::default()
        });
        let checkpoint = status.as_ref().and_then(Checkpoint::of);
        let running: Vec<Running> = running
            .iter()
            .map(|(cards, since)| Running { model: None, taken: taken(cards * CARD), since: time(since) })
            .collect();
        Book::open(period, checkpoint.as_ref(), &running, Time::from_secs(HOUR), time(now))
    }

    #[test]
    fn hours_are_split_where_a_period_begins() {
        let mut book = open(Period::Day, None, &[], "2026-11-28T22:00:00Z");
        let running = [Running { model: None, taken: taken(3 * CARD / 2), since: Time::ZERO }];
        book.count(&running, time("2026-11-28T22:00:00Z"), time("2026-11-30T01:00:00Z"));
        assert_eq!(book.span, time("2026-11-30T00:00:00Z")..time("2026-12-01T00:00:00Z"));
        assert_eq!(book.used.all, CardTime::of_seconds(HOUR * 3 / 2));
        let past: Vec<u64> = book.past.iter().map(|past| hours(&past.used)).collect();
        assert_eq!(past, [36, 3]);
        book.count(&running, time("2026-11-30T01:00:00Z"), time("2027-06-01T00:00:00Z"));
        assert_eq!((book.past.len(), hours(&book.used)), (12, 0));
    }

    #[test]
    fn the_next_leader_goes_on_from_the_status() {
        let claim = (2, "2026-11-28T06:00:00Z");
        for (what, period, checkpoint, expected) in [
            ("no status", Period::Day, None, 12),
            ("an hour ago", Period::Day, Some((100, "2026-11-28T00:00:00Z", "2026-11-28T11:00:00Z")), 102),
            (
                "before the claim",
                Period::Day,
                Some((100, "2026-11-28T00:00:00Z", "2026-11-28T05:00:00Z")),
                112,
            ),
            ("of yesterday", Period::Day, Some((100, "2026-11-27T00:00:00Z", "2026-11-27T05:00:00Z")), 12),
            ("of the future", Period::Day, Some((100, "2026-11-28T00:00:00Z", "2026-11-28T20:00:00Z")), 100),
            ("of a future day", Period::Day, Some((100, "2027-11-28T00:00:00Z", "2027-11-28T20:00:00Z")), 12),
            ("of a month", Period::Day, Some((100, "2026-11-01T00:00:00Z", "2026-11-28T11:00:00Z")), 12),
            (
                "absurd",
                Period::Day,
                Some((u64::MAX / HOUR, "2026-11-28T00:00:00Z", "2026-11-28T11:00:00Z")),
                u64::MAX / HOUR,
            ),
        ] {
            let book = open(period, checkpoint, &[claim], "2026-11-28T12:00:00Z");
            assert_eq!(hours(&book.used), expected, "{what}");
            assert!(book.span.contains(&time("2026-11-28T12:00:00Z")), "{what}");
        }
        let book = open(
            Period::Day,
            Some((7, "2026-11-27T00:00:00Z", "2026-11-27T22:00:00Z")),
            &[claim],
            "2026-11-28T12:00:00Z",
        );
        assert_eq!(book.past.iter().map(|past| hours(&past.used)).collect::<Vec<_>>(), [7]);
        // Another kind of period: what was counted of the old one is told.
        let of_month = (100, "2026-11-01T00:00:00Z", "2026-11-28T11:00:00Z");
        let book = open(Period::Day, Some(of_month), &[], "2026-11-28T12:00:00Z");
        assert_eq!(book.past[0].span, time(of_month.1)..time(of_month.2));
        assert_eq!((hours(&book.past[0].used), hours(&book.used)), (100, 0));
    }

    #[test]
    fn not_too_many_models_are_told_apart() {
        let mut used = Used::default();
        for number in (0..2 * MODELS).chain([0]) {
            let model = Some(format!("{number:02}").into());
            used.add(&Running { model, taken: taken(CARD), since: Time::ZERO }, Time::from_secs(1));
        }
        let models = used.models();
        assert_eq!((used.all.seconds(), models.len(), models["00"]), (65, MODELS, 2));
    }

    /// From the status on, with a card that nobody knows, past midnight.
    #[test]
    fn hours_are_kept_by_model() {
        let status = GpuQuotaStatus {
            hours: Some(HoursStatus {
                card_seconds: 10 * HOUR,
                since: "2026-11-28T00:00:00Z".to_owned(),
                as_of: "2026-11-28T23:00:00Z".to_owned(),
                models: [("H100".to_owned(), 4 * HOUR)].into(),
                ..HoursStatus::default()
            }),
            ..GpuQuotaStatus::default()
        };
        let running =
            [(Some("H100"), 2), (None, 1), (Some("L4"), 1), (Some("L4"), 0)].map(|(model, cards)| Running {
                model: model.map(Arc::from),
                taken: taken(cards * CARD),
                since: Time::ZERO,
            });
        let now = time("2026-11-29T01:00:00Z");
        let book = Book::open(Period::Day, Checkpoint::of(&status).as_ref(), &running, Time::ZERO, now);
        let models =
            |h100: u64, l4: u64| [("H100".to_owned(), h100 * HOUR), ("L4".to_owned(), l4 * HOUR)].into();
        assert_eq!((hours(&book.past[0].used), book.past[0].used.models()), (14, models(6, 1)));
        assert_eq!((hours(&book.used), book.used.models()), (4, models(2, 1)));
    }

    #[test]
    fn recent_use_halves_with_each_half_life() {
        let hour = Time::from_secs(HOUR);
        let running = [Running { model: None, taken: taken(8 * CARD), since: Time::ZERO }];
        let mut recent = Recent::default();
        recent.advance(&running, hour, 2 * hour, hour);
        assert_eq!(recent.millionths(), 4 * CARD);
        // In steps the same.
        let mut steps = Recent::default();
        for step in 0..60 {
            let at = |step: u32| hour + step * Time::from_secs(60);
            steps.advance(&running, at(step), at(step + 1), hour);
        }
        assert!((steps.cards() - 4.0).abs() < 1e-9, "{steps:?}");
        recent.advance(&[], 2 * hour, 4 * hour, hour);
        assert_eq!(recent.millionths(), CARD);
        recent.advance(&running, 2 * hour, 3 * hour, Time::ZERO);
        assert_eq!(recent.millionths(), 0);
        let as_of = "2026-11-28T11:00:00Z";
        let book = open(
            Period::Day,
            Some((0, "2026-11-28T00:00:00Z", as_of)),
            &[(8, as_of)],
            "2026-11-28T12:00:00Z",
        );
        assert_eq!(book.placed, 6 * CARD, "half of 4, and half of 8");
    }
}
