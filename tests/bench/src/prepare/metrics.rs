//! The plugin's own measurements, read from `/metrics`.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// Counters of Prepare at one moment.
#[derive(Debug, Default)]
pub struct Metrics {
    claims: f64,
    phases: BTreeMap<String, f64>,
    own: Vec<(f64, f64)>,
}

/// Mean time of a claim in each phase of Prepare, by the phase's name, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct PhaseMeans(BTreeMap<String, f64>);

/// The plugin's own time for a claim, as upper bounds of the histogram's buckets, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct OwnTime {
    /// Half of the claims took less.
    pub p50_ms: f64,
    /// 99 of 100 claims took less.
    pub p99_ms: f64,
}

impl Metrics {
    /// Parses the Prometheus text format.
    pub fn parse(text: &str) -> Result<Self> {
        let mut metrics = Self::default();
        let ours = |line: &&str| !line.starts_with('#') && line.contains("operation=\"prepare\"");
        for line in text.lines().filter(ours) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let value: f64 = value.parse().with_context(|| format!("no number in {line}"))?;
            let label = |name: &str| {
                series.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next())
            };
            match series.split('{').next() {
                Some("tessera_claim_duration_seconds_count") => metrics.claims += value,
                Some("tessera_claim_phase_duration_seconds_sum") => {
                    let phase = label("phase").context("a phase without name")?;
                    *metrics.phases.entry(phase.to_owned()).or_default() += value;
                }
                Some("tessera_claim_own_duration_seconds_bucket") => {
                    let end = label("le").context("a bucket without end")?;
                    let end = if end == "+Inf" { f64::INFINITY } else { end.parse()? };
                    metrics.own.push((end, value));
                }
                _ => {}
            }
        }
        ensure!(!metrics.own.is_empty() && metrics.claims > 0.0, "the plugin has prepared nothing yet");
        Ok(metrics)
    }

    /// Mean time in each phase since `before`.
    pub fn phases_since(&self, before: &Self) -> PhaseMeans {
        let claims = self.claims - before.claims;
        let mean = |(phase, sum): (&String, &f64)| {
            (phase.clone(), (sum - before.phases.get(phase).copied().unwrap_or_default()) / claims * 1e3)
        };
        PhaseMeans(self.phases.iter().map(mean).collect())
    }

    /// The plugin's own time since `before`.
    pub fn own_since(&self, before: &Self) -> OwnTime {
        let counted: Vec<(f64, f64)> =
            self.own.iter().zip(&before.own).map(|((end, now), (_, then))| (*end, now - then)).collect();
        let all = counted.last().map_or(0.0, |(_, count)| *count);
        let quantile = |share: f64| {
            counted.iter().find(|(_, count)| *count >= all * share).map_or(0.0, |(end, _)| end * 1e3)
        };
        OwnTime { p50_ms: quantile(0.5), p99_ms: quantile(0.99) }
    }
}

impl fmt::Display for PhaseMeans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().filter(|(_, mean)| **mean >= 0.005);
        let texts: Vec<String> = shown.map(|(phase, mean)| format!("{phase} {mean:.2}")).collect();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(claims: u32, fast: u32, slow: u32, sum: f64) -> Metrics {
        let own = "tessera_claim_own_duration_seconds_bucket";
        Metrics::parse(&format!(
            "# HELP x operation=\"prepare\"\n\
             tessera_claim_duration_seconds_count{{operation=\"prepare\",outcome=\"success\"}} {claims}\n\
             tessera_claim_duration_seconds_count{{operation=\"unprepare\",outcome=\"success\"}} 99\n\
             tessera_claim_phase_duration_seconds_sum{{operation=\"prepare\",phase=\"journal\",outcome=\"success\"}} {sum}\n\
             {own}{{le=\"0.001\",operation=\"prepare\"}} {fast}\n\
             {own}{{le=\"0.002\",operation=\"prepare\"}} {slow}\n\
             {own}{{le=\"+Inf\",operation=\"prepare\"}} {claims}\n"
        ))
        .unwrap()
    }

    #[test]
    fn per_claim_and_since() {
        let (before, after) = (metrics(10, 0, 10, 1.0), metrics(110, 98, 109, 1.5));
        let phases = after.phases_since(&before);
        assert!((phases.0["journal"] - 5.0).abs() < 1e-9);
        let own = after.own_since(&before);
        assert_eq!((own.p50_ms, own.p99_ms), (1.0, 2.0));
        assert!(Metrics::parse("").is_err());
    }
}
