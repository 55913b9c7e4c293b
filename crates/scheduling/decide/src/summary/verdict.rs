//! Verdict on a GpuPool in words, the same in its status and in a simulation.

use tessera_api::gpu_pool::condition;
use tessera_api::kubernetes::SLOW_FROM_NODES;
use tessera_api::node_report::LAYOUT;

use super::PoolSummary;

/// Whether a GpuPool works as specified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolVerdict {
    /// Whether the pool is ready.
    pub is_ready: bool,
    /// Reason of the condition, from [`condition`].
    pub reason: &'static str,
    /// Message of the condition.
    pub message: String,
}

impl PoolSummary {
    /// Whether the pool works as specified, and if not, why.
    pub fn verdict(&self) -> PoolVerdict {
        let (is_ready, reason, message) = verdict(self);
        PoolVerdict { is_ready, reason, message }
    }
}

fn verdict(summary: &PoolSummary) -> (bool, &'static str, String) {
    if let Some((error, nodes)) = summary.errors.iter().max_by_key(|(_, nodes)| **nodes) {
        let others = (summary.errors.len() - 1) as u64;
        let more =
            if others > 0 { format!(" (and {})", counted(others, "other error")) } else { String::new() };
        let reason =
            if error.starts_with(LAYOUT) { condition::LAYOUT_NOT_APPLIED } else { condition::SELECTOR_FAILS };
        return (false, reason, format!("on {}: {error}{more}", counted(*nodes, "node")));
    }
    let others = || summary.outranked_by.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    if summary.cards == 0 && !summary.outranked_by.is_empty() {
        let message = format!(
            "every card that it selects belongs to {}: raise its priority or narrow theirs",
            others()
        );
        return (false, condition::OUTRANKED, message);
    }
    if summary.cards == 0 {
        let message = "no card: check nodeSelector against the labels of the nodes, cards against the devices \
                       (kubectl gpu cel), and that the kubelet plugin runs there";
        return (false, condition::NOTHING_SELECTED, message.to_owned());
    }
    if summary.waits_for > 0 {
        let message = format!(
            "{} no longer offered, until the claims end that hold them",
            counted(summary.waits_for, "device")
        );
        return (false, condition::WAITS_FOR_CLAIMS, message);
    }
    let decides =
        format!("decides on {} of {}", counted(summary.cards, "card"), counted(summary.nodes, "node"));
    let mut message = match others() {
        others if others.is_empty() => decides,
        others => format!("{decides}; others that it selects belong to {others}"),
    };
    if !summary.unprovided.is_empty() {
        let resources: Vec<&str> = summary.unprovided.iter().map(String::as_str).collect();
        message += &format!(
            "; pods that ask for {} wait, for all cards are managed, and claims of extended resources kube-scheduler \
             allocates alone: let them name a ResourceClaim, or leave some cards Native or Steered",
            resources.join(", ")
        );
    }
    if let Some((advice, nodes)) = summary.advice.iter().max_by_key(|(_, nodes)| **nodes) {
        message += &format!("; on {}: {advice}", counted(*nodes, "node"));
    }
    if let Some(nodes) = summary.too_many_counters {
        message += &format!(
            "; {} of the cluster {} more than whole cards, and from {SLOW_FROM_NODES} on kube-scheduler before Kubernetes 1.37 takes over a \
             second for each pod with devices: upgrade to 1.37, let pools of fewer nodes offer partitions and shares, or set allocation \
             Steered or Managed",
            counted(nodes, "node"),
            if nodes == 1 { "offers" } else { "offer" }
        );
    }
    if let Some(priority) = summary.passed_by {
        message += &format!(
            "; pods of priority {priority} wait while pods of lower priority hold its cards, for kube-scheduler evicts nobody \
             for devices: with allocation Managed the controller does"
        );
    }
    (true, condition::AS_WANTED, message)
}

/// `1 node`, `2 nodes`.
fn counted(count: impl Into<u64>, what: &str) -> String {
    let count = count.into();
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_trouble_has_its_reason() {
        let reason = |summary: &PoolSummary| summary.verdict().reason;
        let message = |summary: &PoolSummary| summary.verdict().message;
        let well = PoolSummary { nodes: 1, cards: 2, ..PoolSummary::default() };
        assert_eq!(reason(&well), condition::AS_WANTED);
        assert_eq!(reason(&PoolSummary::default()), condition::NOTHING_SELECTED);
        let outranked = PoolSummary { outranked_by: ["b".to_owned()].into(), ..PoolSummary::default() };
        assert_eq!(reason(&outranked), condition::OUTRANKED);
        assert_eq!(reason(&PoolSummary { waits_for: 1, ..well.clone() }), condition::WAITS_FOR_CLAIMS);
        let errors = BTreeMap::from([("no such key".to_owned(), 3), ("no such field".to_owned(), 1)]);
        let errs = PoolSummary { errors, ..well.clone() };
        assert_eq!(reason(&errs), condition::SELECTOR_FAILS);
        assert_eq!(message(&errs), "on 3 nodes: no such key (and 1 other error)");
        let errors = BTreeMap::from([(format!("{LAYOUT}2 cards need a reset"), 1)]);
        assert_eq!(reason(&PoolSummary { errors, ..well.clone() }), condition::LAYOUT_NOT_APPLIED);
        assert_eq!(message(&well), "decides on 2 cards of 1 node");
        let advice = [("shares have 512 MiB".to_owned(), 2), ("shares have 600 MiB".to_owned(), 1)].into();
        let advised = PoolSummary { advice, ..well.clone() };
        assert_eq!(reason(&advised), condition::AS_WANTED);
        assert_eq!(message(&advised), "decides on 2 cards of 1 node; on 2 nodes: shares have 512 MiB");
        let slow = PoolSummary { too_many_counters: Some(80), ..well.clone() };
        assert_eq!(reason(&slow), condition::AS_WANTED);
        assert!(
            message(&slow).contains("; 80 nodes of the cluster offer more than whole cards"),
            "{}",
            message(&slow)
        );
        let passed = PoolSummary { passed_by: Some(1000), ..well.clone() };
        assert_eq!(reason(&passed), condition::AS_WANTED);
        assert!(message(&passed).contains("; pods of priority 1000 wait while"), "{}", message(&passed));
        let unprovided = PoolSummary { unprovided: ["nvidia.com/gpu".to_owned()].into(), ..well };
        assert_eq!(reason(&unprovided), condition::AS_WANTED);
        let words =
            "decides on 2 cards of 1 node; pods that ask for nvidia.com/gpu wait, for all cards are managed";
        assert!(message(&unprovided).starts_with(words), "{}", message(&unprovided));
    }
}
