use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { after: Duration::from_secs(60), below_percent: 5.0 };

fn claims() -> IdleClaims {
    IdleClaims::new(Duration::from_secs(60))
}

/// A look at one claim.
fn look(claims: &mut IdleClaims, second: u64, limits: Option<Limits>, usage: Use) -> Vec<Verdict> {
    let changed = claims.look(Duration::from_secs(second), [("a".to_owned(), limits, usage)]);
    changed.into_iter().map(|(_, verdict)| verdict).collect()
}

/// Looks with [`LIMITS`] at these seconds: all verdicts, with their seconds.
fn looks(claims: &mut IdleClaims, looks: &[(u64, Use)]) -> Vec<(u64, Verdict)> {
    let mut told = Vec::new();
    for (second, usage) in looks {
        told.extend(
            look(claims, *second, Some(LIMITS), *usage).into_iter().map(|verdict| (*second, verdict)),
        );
    }
    told
}

const FIRST: (u64, Verdict) = (0, Verdict::NotIdle(Why::FirstLook));

fn idle(since: u64, highest: impl Into<Option<f64>>) -> Verdict {
    Verdict::Idle { since: Duration::from_secs(since), highest: highest.into() }
}

fn percent(second: u64, percent: f64) -> (u64, Use) {
    (second, Use::Percent(percent))
}

#[test]
fn a_claim_is_idle_after_its_time_and_once_until_it_is_used() {
    let told = looks(
        &mut claims(),
        &[
            percent(0, 1.0),
            percent(30, 4.9),
            percent(59, 0.0),
            percent(60, 0.0),
            percent(75, 0.0),
            percent(90, 5.0),
            percent(105, 0.0),
            percent(150, 0.0),
            percent(165, 2.0),
        ],
    );
    let in_use = Verdict::NotIdle(Why::InUse(5.0));
    assert_eq!(told, [FIRST, (60, idle(0, 4.9)), (90, in_use), (165, idle(105, 2.0))]);
}

#[test]
fn one_look_with_use_or_without_data_begins_the_time_anew() {
    for begins in [Use::Percent(100.0), Use::Unknown] {
        let told = looks(
            &mut claims(),
            &[
                percent(0, 0.0),
                percent(45, 0.0),
                (50, begins),
                percent(60, 0.0),
                percent(110, 0.0),
                percent(120, 0.0),
            ],
        );
        assert_eq!(told, [FIRST, (120, idle(60, 0.0))]);
    }
    let told = looks(&mut claims(), &[percent(0, 0.0), percent(60, 0.0), (75, Use::Unknown)]);
    assert_eq!(told[2..], [(75, Verdict::NotIdle(Why::Unknown))]);
}

#[test]
fn a_time_without_looks_proves_nothing() {
    let told = looks(
        &mut claims(),
        &[percent(0, 0.0), percent(30, 0.0), percent(91, 0.0), percent(150, 0.0), percent(151, 0.0)],
    );
    assert_eq!(told, [FIRST, (151, idle(91, 0.0))]);
    let told = looks(&mut claims(), &[percent(0, 0.0), percent(60, 0.0), percent(121, 0.0)]);
    assert_eq!(told[2..], [(121, Verdict::NotIdle(Why::Unknown))]);
}

#[test]
fn the_time_begins_with_the_first_container() {
    let told = looks(
        &mut claims(),
        &[
            (0, Use::NotStarted),
            (60, Use::NotStarted),
            percent(75, 0.0),
            percent(130, 0.0),
            percent(135, 0.0),
        ],
    );
    let started = Verdict::NotIdle(Why::Started);
    assert_eq!(told, [FIRST, (60, idle(0, None)), (75, started), (135, idle(75, 0.0))]);
}

#[test]
fn other_limits_hold_at_once() {
    let mut claims = claims();
    looks(&mut claims, &[percent(0, 3.0), percent(60, 0.0)]);
    let longer = Some(Limits { after: Duration::from_secs(100), ..LIMITS });
    let changed = [Verdict::NotIdle(Why::OtherLimits)];
    assert_eq!(look(&mut claims, 75, longer, Use::Percent(0.0)), changed);
    assert_eq!(look(&mut claims, 100, longer, Use::Percent(0.0)), [idle(0, 3.0)]);
    // The use at the beginning is too much now.
    let lower = Some(Limits { below_percent: 2.0, ..LIMITS });
    assert_eq!(look(&mut claims, 110, lower, Use::Percent(0.0)), changed);
    assert_eq!(look(&mut claims, 170, lower, Use::Percent(0.0)), [idle(110, 0.0)]);
    assert_eq!(look(&mut claims, 180, None, Use::Percent(0.0)), changed);
    assert!(claims.claims.is_empty());
    assert_eq!(look(&mut claims, 190, None, Use::Percent(0.0)), []);
}

#[test]
fn a_claim_that_ended_is_forgotten() {
    let mut claims = claims();
    looks(&mut claims, &[percent(0, 0.0), percent(60, 0.0)]);
    assert_eq!(claims.look(Duration::from_secs(75), []), []);
    assert_eq!(looks(&mut claims, &[percent(90, 0.0)]), [(90, FIRST.1)]);
}

fn usage() -> impl Strategy<Value = Use> {
    prop_oneof![
        1 => Just(Use::NotStarted),
        1 => Just(Use::Unknown),
        1 => (5.0..100.0).prop_map(Use::Percent),
        9 => (0.0..5.0).prop_map(Use::Percent),
    ]
}

proptest! {
    /// By definition: idle at a look with looks back to `after` before it, without a gap, all of them without use.
    #[test]
    fn a_claim_is_idle_exactly_if_all_looks_of_the_time_say_so(
        history in prop::collection::vec((1u64..70, usage()), 1..60),
    ) {
        let mut claims = claims();
        let (mut second, mut is_idle) = (0, false);
        let mut seen: Vec<(u64, Use)> = Vec::new();
        for (pause, usage) in history {
            second += pause;
            for verdict in look(&mut claims, second, Some(LIMITS), usage) {
                is_idle = matches!(verdict, Verdict::Idle { .. });
            }
            seen.push((second, usage));
            let is_same = |other: &Use| match (usage, other) {
                (Use::NotStarted, Use::NotStarted) => true,
                (Use::Percent(one), Use::Percent(other)) => one.max(*other) < LIMITS.below_percent,
                _ => false,
            };
            let mut first = None;
            for (at, other) in seen.iter().rev() {
                if !is_same(other) || first.is_some_and(|first| first - at > 60) {
                    break;
                }
                first = Some(*at);
            }
            prop_assert_eq!(is_idle, first.is_some_and(|first| second - first >= 60));
        }
    }
}
