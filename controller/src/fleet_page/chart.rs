//! The last day as a picture, drawn with numeric attributes only, so that no policy has to allow inline styles.

use std::fmt::Write as _;

use maud::{Markup, html};
use tessera_api::fleet_view::FleetPoint;

use super::words::{clock, counted, percent, span};

/// Points of a day's curve. More would not be visible.
const POINTS: usize = 288;

/// Labels of the time axis. More would overlap on a phone.
const LABELS: u64 = 8;

/// Seconds between two labels. The largest step is for a whole day.
const STEPS: [u64; 9] = [60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600];

/// Share of the height used by the curves. The labels are below.
const PLOT: &str = "86%";

/// Allocated and busy cards over the last day, up to now.
pub fn chart(points: &[FleetPoint], now: &FleetPoint) -> Markup {
    let Some(first) = points.first().filter(|first| first.at < now.at) else {
        return html! { p { "The curve begins with the second minute." } };
    };
    let step = points.len().div_ceil(POINTS).max(1);
    let mut shown: Vec<&FleetPoint> = points.iter().filter(|point| point.at < now.at).step_by(step).collect();
    shown.push(now);
    let most = points.iter().map(|point| point.cards).max().unwrap_or_default().max(now.cards).max(1);
    let seconds = now.at - first.at;
    let curve = |value: fn(&FleetPoint) -> f64| {
        let mut path = String::new();
        for point in &shown {
            let x = 1000.0 * (point.at - first.at) as f64 / seconds as f64;
            let y = 200.0 * (1.0 - value(point) / f64::from(most));
            let _ = write!(path, "{}{x:.0} {y:.1}", if path.is_empty() { "M" } else { "L" });
        }
        path + "V200H0Z"
    };
    let all = f64::from(now.cards);
    let text = format!(
        "Over the last {}; now {} of {} allocated and {} busy",
        span(seconds as f64 / 3600.0),
        percent(now.allocated, all),
        counted(now.cards as usize, "card"),
        percent(now.busy, all)
    );
    let hours = labels(first.at, now.at);
    html! {
        svg.trend role="img" {
            title { (text) }
            svg width="100%" height=(PLOT) viewBox="0 0 1000 200" preserveAspectRatio="none" {
                path.allocated d=(curve(|point| point.allocated)) {}
                path.busy d=(curve(|point| point.busy)) {}
            }
            @for (place, text) in &hours {
                line.grid x1=(place) x2=(place) y1="0" y2=(PLOT) {}
                text.label x=(place) y="97%" text-anchor="middle" { (text) }
            }
            text.label x="4" y="13" { (counted(most as usize, "card")) }
            line.grid x1="0" x2="100%" y1="43%" y2="43%" {}
            text.label x="4" y="42%" { (format!("{}", f64::from(most) / 2.0)) }
        }
        p.legend { (text) ". Times are UTC." }
    }
}

/// Positions and texts of the labels on the time axis.
fn labels(first: u64, last: u64) -> Vec<(String, String)> {
    let seconds = last - first;
    let step = STEPS.into_iter().find(|step| seconds / step <= LABELS).unwrap_or(86_400);
    let mut labels = Vec::new();
    let mut at = first.next_multiple_of(step);
    while at <= last {
        let place = 100.0 * (at - first) as f64 / seconds as f64;
        // Half of the label would be outside of the picture.
        if (3.0..=97.0).contains(&place) {
            labels.push((format!("{place:.1}%"), clock(at)));
        }
        at += step;
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_whole_hours_and_few_of_them() {
        let texts = |first: u64, last: u64| -> Vec<String> {
            labels(first, last).into_iter().map(|(_, text)| text).collect()
        };
        let noon = 1_795_003_200 / 86_400 * 86_400 + 43_200;
        assert_eq!(texts(noon + 60, noon + 60 + 5 * 3600), ["13:00", "14:00", "15:00", "16:00"]);
        assert_eq!(texts(noon, noon + 35 * 60), ["12:05", "12:10", "12:15", "12:20", "12:25", "12:30"]);
        for minutes in 1..=24 * 60 {
            let count = texts(noon + 7, noon + 7 + minutes * 60).len() as u64;
            assert!(count <= LABELS + 1 && (count > 0 || minutes < 3), "{count} in {minutes} min");
        }
    }

    #[test]
    fn the_figures_are_those_of_now() {
        let point = |at: u64, busy: f64| FleetPoint { at, cards: 8, allocated: 4.0, busy };
        let drawn = chart(&[point(0, 0.0), point(60, 0.0)], &point(70, 1.52)).into_string();
        assert!(drawn.contains("now 50 % of 8 cards allocated and 19 % busy"), "{drawn}");
        assert!(drawn.contains("00:01</text>"), "{drawn}");
    }
}
