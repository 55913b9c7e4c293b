//! Use of GpuQuotas as OpenMetrics: at most five series for each amount, and three for each quota.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tessera_api::gpu_quota::{MILLIONTHS, Unit};
use tessera_decide::{AmountSummary, QuotaSummary};
use tokio::sync::watch;

use crate::decide_loop::Summaries;

/// Collects the last summaries; nothing for `None`.
#[derive(Debug)]
pub struct QuotaCollector(pub watch::Receiver<Option<Summaries>>);

/// Name, help text and value of a figure.
type Figure = (&'static str, &'static str, fn(&AmountSummary) -> Option<u64>);

/// The same of a whole quota.
type QuotaFigure = (&'static str, &'static str, fn(&QuotaSummary) -> Option<f64>);

const AMOUNT: [Figure; 5] = [
    ("guaranteed", "What is guaranteed to a team", |amount| Some(amount.guaranteed)),
    ("limit", "The most that a team may have", |amount| amount.limit),
    ("used", "What a team has", |amount| Some(amount.used)),
    ("borrowed", "What a team has beyond its guarantee", |amount| Some(amount.borrowed)),
    ("lent", "What others have of a team's guarantee", |amount| Some(amount.lent)),
];

const QUOTA: [QuotaFigure; 3] = [
    ("quota_waiting_pods", "Pods of a team that wait for devices", |quota| Some(quota.waiting as f64)),
    ("quota_gpu_hours", "GPU hours of a team in the current period", |quota| {
        Some(quota.hours.as_ref()?.card_seconds as f64 / 3600.0)
    }),
    ("quota_budget_gpu_hours", "GPU hours that a team may use in a period", |quota| {
        quota.budget.map(f64::from)
    }),
];

impl Collector for QuotaCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(summaries) = self.0.borrow().clone() else { return Ok(()) };
        if summaries.quotas.is_empty() {
            return Ok(());
        }
        let figures = AMOUNT.iter().flat_map(|figure| [Unit::Cards, Unit::Memory].map(|unit| (figure, unit)));
        for ((name, help, value), unit) in figures {
            let suffix = match unit {
                Unit::Cards => "cards",
                Unit::Memory => "bytes",
            };
            let name = format!("quota_{name}_{suffix}");
            let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (quota, summary) in &summaries.quotas {
                for amount in summary.amounts.iter().filter(|amount| amount.unit == unit) {
                    let Some(value) = value(amount) else { continue };
                    let labels = [("quota", quota), ("amount", &amount.name)];
                    ConstGauge::new(number(value, unit)).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        for (name, help, value) in QUOTA {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (quota, summary) in &summaries.quotas {
                let Some(value) = value(summary) else { continue };
                ConstGauge::new(value).encode(metric.encode_family(&[("quota", quota)])?)?;
            }
        }
        Ok(())
    }
}

/// In cards or bytes.
fn number(value: u64, unit: Unit) -> f64 {
    match unit {
        Unit::Cards => value as f64 / MILLIONTHS as f64,
        Unit::Memory => value as f64,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use tessera_decide::{HoursSummary, Time};

    use super::*;
    use crate::decide_loop::Known;
    use crate::metrics::Metrics;

    #[test]
    fn teams_are_told_until_another_leads() {
        let metrics = Metrics::new();
        let amount = |name: &str, unit: Unit, used: u64| AmountSummary {
            name: name.to_owned(),
            unit,
            guaranteed: 0,
            limit: None,
            used,
            borrowed: used,
            lent: 0,
        };
        let amounts = vec![amount("cards", Unit::Cards, 3_500_000), amount("memory", Unit::Memory, 80 << 30)];
        let hours = HoursSummary {
            card_seconds: 5400,
            models: BTreeMap::new(),
            since: Time::ZERO,
            as_of: Time::ZERO,
            periods: Vec::new(),
            recent_use: 0.0,
        };
        let summary = QuotaSummary {
            amounts,
            waiting: 7,
            hours: Some(hours),
            budget: Some(5000),
            ..QuotaSummary::default()
        };
        let none = QuotaSummary::default();
        let quotas = BTreeMap::from([("vision".to_owned(), summary), ("nlp".to_owned(), none)]);
        metrics.quotas.send_replace(Some(Arc::new(Known { pools: BTreeMap::new(), quotas })));
        let text = metrics.encode().unwrap();
        for line in [
            r#"tessera_controller_quota_used_cards{quota="vision",amount="cards"} 3.5"#,
            r#"tessera_controller_quota_borrowed_bytes{quota="vision",amount="memory"} 85899345920.0"#,
            r#"tessera_controller_quota_waiting_pods{quota="vision"} 7"#,
            r#"tessera_controller_quota_gpu_hours{quota="vision"} 1.5"#,
            r#"tessera_controller_quota_budget_gpu_hours{quota="vision"} 5000"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("quota_limit_cards{"), "there is none: {text}");
        assert!(!text.contains(r#"hours{quota="nlp"}"#), "nor hours: {text}");
        metrics.quotas.send_replace(None);
        assert!(!metrics.encode().unwrap().contains("quota_"));
    }
}
