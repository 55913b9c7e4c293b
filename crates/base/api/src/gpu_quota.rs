//! `GpuQuota`: a team's guarantee and limit in allocated GPUs.

mod amount;
mod budget;
mod error;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::label_selector::LabelSelector;

pub use amount::{Amount, LARGEST_CARDS, LARGEST_MEMORY, MILLIONTHS, Unit};
pub use budget::{Budget, LARGEST_BUDGET, Period, WhenSpent};
pub use error::GpuQuotaError;
pub use status::{AmountStatus, GpuQuotaStatus, HoursStatus, PeriodStatus, condition};

/// Label of a pod that waits for its team's guarantee, and whose devices are never taken back, with the value `false`.
pub const BORROW_LABEL: &str = "gpu.tessera.dev/borrow";
/// Maximum number of amounts of a quota.
pub const MOST_AMOUNTS: usize = 16;
/// Default seconds for which borrowed devices stay with their pods.
pub const MIN_RUNTIME_SECONDS: u32 = 600;

/// `spec` of a GpuQuota: a team by its namespaces, and the team's part of the cards of managed pools. Decoding is strict: an
/// unknown field is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    kube(
        group = "gpu.tessera.dev",
        version = "v1alpha1",
        kind = "GpuQuota",
        plural = "gpuquotas",
        shortname = "gquota",
        category = "tessera",
        status = "GpuQuotaStatus",
        doc = "Guarantee and limit of a team in allocated GPUs.",
        validation = ("size(self.metadata.name) <= 63", "a GpuQuota's name has at most 63 characters"),
        validation = ("!has(self.spec.parent) || self.spec.parent != self.metadata.name", "a GpuQuota is not its own parent"),
        printcolumn(json_path = ".spec.parent", name = "Parent", type_ = "string"),
        printcolumn(json_path = ".spec.amounts[0].name", name = "Amount", type_ = "string"),
        printcolumn(json_path = ".spec.amounts[0].guaranteed", name = "Guaranteed", type_ = "string"),
        printcolumn(json_path = ".spec.amounts[0].limit", name = "Limit", type_ = "string"),
        printcolumn(json_path = ".status.amounts[0].used", name = "Used", type_ = "string"),
        printcolumn(json_path = ".status.amounts[0].borrowed", name = "Borrowed", type_ = "string"),
        printcolumn(json_path = ".status.amounts[0].lent", name = "Lent", type_ = "string"),
        printcolumn(json_path = ".status.hours.used", name = "Hours", type_ = "string"),
        printcolumn(json_path = ".spec.budget.gpuHours", name = "Budget", type_ = "integer"),
        printcolumn(json_path = ".status.waiting", name = "Waiting", type_ = "integer"),
        printcolumn(json_path = r#".status.conditions[?(@.type=="Ready")].reason"#, name = "State", type_ = "string"),
        printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GpuQuotaSpec {
    /// The team's namespaces, by their labels. Empty: all namespaces. Absent: none, as for a quota with children only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Of several quotas that select a namespace, the one with the highest priority decides; then the older, then the first
    /// by name.
    pub priority: i32,
    /// Name of the quota to which the use of this one counts, too. A parent has no parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 63)))]
    pub parent: Option<String>,
    /// Guarantees and limits, by name. A claim must fit into all amounts with its devices.
    #[cfg_attr(
        feature = "crd",
        schemars(
            length(max = 16),
            extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
        )
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub amounts: Vec<Amount>,
    /// The team's part of idle devices and its place in the queue, compared with the weights of other teams.
    #[cfg_attr(feature = "crd", schemars(range(min = 1, max = 10_000)))]
    pub weight: u32,
    /// GPU hours of a period, with those of children. Absent: no budget; hours are counted by month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Seconds for which borrowed devices stay with their pods, before devices may be taken back.
    #[cfg_attr(feature = "crd", schemars(range(max = 31_536_000)))]
    pub min_runtime_seconds: u32,
}

impl Default for GpuQuotaSpec {
    fn default() -> Self {
        GpuQuotaSpec {
            namespace_selector: None,
            priority: 0,
            parent: None,
            amounts: Vec::new(),
            weight: 1,
            budget: None,
            min_runtime_seconds: MIN_RUNTIME_SECONDS,
        }
    }
}

impl GpuQuotaSpec {
    /// Decodes a `spec` and checks it.
    ///
    /// # Errors
    /// [`GpuQuotaError`], for an unknown field, another type or a value out of range.
    pub fn decode(fields: &Value) -> Result<Self, GpuQuotaError> {
        let spec: Self = serde_json::from_value(fields.clone())
            .map_err(|error| GpuQuotaError::Invalid(error.to_string().chars().take(300).collect()))?;
        spec.check()?;
        Ok(spec)
    }

    /// Checks everything the types cannot express.
    ///
    /// # Errors
    /// [`GpuQuotaError::Value`] for the first value out of range, or in contradiction with another.
    pub fn check(&self) -> Result<(), GpuQuotaError> {
        if self.weight == 0 {
            return Err(GpuQuotaError::value("weight", "must be 1 or more"));
        }
        if let Some(budget) = &self.budget {
            budget.check()?;
        }
        if self.amounts.len() > MOST_AMOUNTS {
            return Err(GpuQuotaError::value("amounts", format!("must be at most {MOST_AMOUNTS}")));
        }
        let mut names = BTreeSet::new();
        for amount in &self.amounts {
            if !names.insert(&amount.name) {
                return Err(GpuQuotaError::value("amounts", format!("{} is there twice", amount.name)));
            }
            amount.check()?;
        }
        Ok(())
    }

    /// Whether a namespace with these labels is selected.
    #[must_use]
    pub fn selects_namespace(&self, labels: &BTreeMap<String, String>) -> bool {
        self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_has_a_default() {
        let spec = GpuQuotaSpec::decode(&json!({})).unwrap();
        assert_eq!(spec, GpuQuotaSpec::default());
        assert_eq!((spec.weight, spec.min_runtime_seconds), (1, 600));
    }

    #[test]
    fn a_quota_without_a_selector_has_no_namespace_and_with_an_empty_one_all() {
        let labels = BTreeMap::from([("team".to_owned(), "vision".to_owned())]);
        for (fields, expected) in [
            (json!({}), false),
            (json!({"namespaceSelector": null}), false),
            (json!({"namespaceSelector": {}}), true),
            (json!({"namespaceSelector": {"matchLabels": {"team": "vision"}}}), true),
            (json!({"namespaceSelector": {"matchLabels": {"team": "nlp"}}}), false),
        ] {
            assert_eq!(
                GpuQuotaSpec::decode(&fields).unwrap().selects_namespace(&labels),
                expected,
                "{fields}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let amount = |fields: Value| {
            let mut amount = json!({"name": "cards", "unit": "Cards"});
            amount.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            json!({"amounts": [amount]})
        };
        let many: Vec<Value> =
            (0..17).map(|number| json!({"name": format!("n{number}"), "unit": "Cards"})).collect();
        for (fields, part) in [
            (json!({"wieght": 1}), "wieght"),
            (json!({"weight": 0}), "weight: must be 1"),
            (json!({"weight": -1}), "-1"),
            (json!({"namespaceSelector": {"matchLabel": {}}}), "matchLabel"),
            (json!({"amounts": [{"unit": "Cards"}]}), "name"),
            (json!({"amounts": [{"name": "cards"}]}), "unit"),
            (json!({"amounts": [{"name": "", "unit": "Cards"}]}), "amounts[].name: must not be empty"),
            (json!({"amounts": many}), "amounts: must be at most 16"),
            (
                json!({"amounts": [{"name": "a", "unit": "Cards"}, {"name": "a", "unit": "Memory"}]}),
                "amounts: a is there twice",
            ),
            (amount(json!({"unit": "cards"})), "cards"),
            (amount(json!({"limit": "many"})), "limit: \"many\" is not a quantity"),
            (amount(json!({"guaranteed": 1.5})), "guaranteed: 1.5 is not a quantity"),
            (amount(json!({"guaranteed": -1})), "amounts[cards].guaranteed: must not be negative"),
            (amount(json!({"limit": "-1m"})), "amounts[cards].limit: must not be negative"),
            (amount(json!({"limit": "2M"})), "amounts[cards].limit: must be at most 1M"),
            (amount(json!({"limit": "100n"})), "amounts[cards].limit: must be 0 or at least 1u"),
            (
                amount(json!({"unit": "Memory", "limit": "500m"})),
                "amounts[cards].limit: must be 0 or at least 1,",
            ),
            (amount(json!({"unit": "Memory", "limit": "2Ei"})), "amounts[cards].limit: must be at most 1Ei"),
            (
                amount(json!({"guaranteed": 2, "limit": "1500m"})),
                "amounts[cards].guaranteed: must not exceed limit",
            ),
            (json!({"budget": {"gpuHours": 0}}), "budget.gpuHours: must be from 1 to 1000000000"),
            (json!({"budget": {"gpuHours": 2_000_000_000}}), "budget.gpuHours: must be from 1 to 1000000000"),
            (json!({"budget": {"period": "Day"}}), "gpuHours"),
            (json!({"budget": {"gpuHours": 1, "period": "Year"}}), "Year"),
            (amount(json!({"cards": ""})), "amounts[cards].cards: must not be empty"),
        ] {
            let error = GpuQuotaSpec::decode(&fields).unwrap_err().to_string();
            assert!(error.contains(part), "{fields}: {error}");
        }
    }
}
