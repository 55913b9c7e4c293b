//! GpuQuotas with their status.

use serde::Serialize;
use tessera_api::fleet_view::cards;
use tessera_api::gpu_quota::{
    Amount, AmountStatus, Budget, GpuQuota, HoursStatus, PeriodStatus, Unit, condition,
};

use crate::status::Known;

/// A quota.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaView {
    /// Its name.
    pub name: String,
    /// Name of the quota above, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Of several quotas selecting a namespace, the one with the highest priority decides.
    pub priority: i32,
    /// Part of idle devices, compared with other quotas.
    pub weight: u32,
    /// How current the status is.
    pub known: Known,
    /// Its amounts, in order.
    pub amounts: Vec<AmountView>,
    /// Number of waiting pods.
    pub waiting: Option<u32>,
    /// Part of the use of all teams, each divided by its weight, in percent.
    pub share: Option<String>,
    /// Its budget of GPU hours, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// GPU hours of the current period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<HoursStatus>,
    /// GPU hours of the last periods, the latest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub periods: Vec<PeriodStatus>,
    /// Recent use in cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent_use: Option<String>,
    /// Its conditions.
    pub conditions: Vec<condition::Condition>,
}

/// An amount, in cards with two decimals or in bytes as a Kubernetes quantity.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AmountView {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// The guarantee; 0 if there is none.
    pub guaranteed: String,
    /// The limit, if any.
    pub limit: Option<String>,
    /// Amount allocated to the team.
    pub used: Option<String>,
    /// Part of `used` beyond the guarantee.
    pub borrowed: Option<String>,
    /// Part of the guarantee used by other teams.
    pub lent: Option<String>,
}

impl QuotaView {
    /// Of a quota's object.
    pub fn of(quota: &GpuQuota) -> Self {
        let (spec, status) = (&quota.spec, quota.status.as_ref());
        let known = Known::of(
            quota.metadata.generation,
            status.map(|status| (status.observed_generation, &*status.conditions)),
        );
        let status = status.filter(|_| known != Known::None);
        let amount = |amount: &Amount| {
            let used = status.and_then(|status| status.amounts.iter().find(|used| used.name == amount.name));
            AmountView::of(amount, used)
        };
        QuotaView {
            name: quota.metadata.name.clone().unwrap_or_default(),
            parent: spec.parent.clone(),
            priority: spec.priority,
            weight: spec.weight,
            known,
            amounts: spec.amounts.iter().map(amount).collect(),
            waiting: status.map(|status| status.waiting),
            share: status.map(|status| status.share.clone()),
            budget: spec.budget.clone(),
            hours: status.and_then(|status| status.hours.clone()),
            periods: status.map(|status| status.periods.clone()).unwrap_or_default(),
            recent_use: status.map(|status| status.recent_use.clone()).filter(|text| !text.is_empty()),
            conditions: status.map(|status| status.conditions.clone()).unwrap_or_default(),
        }
    }

    /// GPU hours of the current period, and the budget: `12.50 of 5000`.
    pub fn hours_text(&self) -> Option<String> {
        let used = &self.hours.as_ref()?.used;
        Some(match &self.budget {
            Some(budget) => format!("{used} of {}", budget.gpu_hours),
            None => used.clone(),
        })
    }

    /// GPU hours of the budget left in the current period; 0 once more are used.
    pub fn hours_left(&self) -> Option<String> {
        let budget = u64::from(self.budget.as_ref()?.gpu_hours) * 3600;
        let left = budget.saturating_sub(self.hours.as_ref()?.card_seconds);
        Some(cards(left as f64 / 3600.0))
    }

    /// The condition for the desired state.
    pub fn ready(&self) -> Option<&condition::Condition> {
        self.conditions.iter().find(|condition| condition.r#type == condition::READY)
    }

    /// Whether the quota is known to be in the desired state.
    pub fn is_ready(&self) -> bool {
        self.known == Known::Current && self.ready().is_some_and(|condition| condition.status == "True")
    }
}

impl AmountView {
    fn of(amount: &Amount, status: Option<&AmountStatus>) -> Self {
        AmountView {
            name: amount.name.clone(),
            unit: amount.unit,
            guaranteed: amount.unit.text(amount.guaranteed()),
            limit: amount.limit().map(|limit| amount.unit.text(limit)),
            used: status.map(|status| status.used.clone()),
            borrowed: status.map(|status| status.borrowed.clone()),
            lent: status.map(|status| status.lent.clone()),
        }
    }
}
