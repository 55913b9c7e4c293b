//! Writes the status of GpuPools: at most one write in ten seconds for each.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, ListParams, Patch, PatchParams};
use kube::core::Object;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::gpu_pool::condition::{self, Condition};
use tessera_api::gpu_pool::{GpuPool, GpuPoolStatus, UnmetDemand};
use tessera_decide::PoolSummary;
use tessera_kube_util::error_text::with_causes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::carry_out::MayWrite;
use crate::decide_loop::Summaries;

/// Pause between two writes of the same status.
const PAUSE: Duration = Duration::from_secs(10);

/// Longest message of a condition, in characters; the API server allows 32,768 bytes.
const LONGEST_MESSAGE: usize = 1024;

/// A pool, whatever is in its spec: what plugins say of it is told also where it is of a later version of Tessera, and one
/// such pool must not keep the others' status from being written.
type Pool = Object<Value, GpuPoolStatus>;

/// Writes statuses until `shutdown`.
pub async fn run(
    client: Client,
    mut summaries: watch::Receiver<Option<Summaries>>,
    may_write: MayWrite,
    shutdown: CancellationToken,
) {
    let pools: Api<Pool> = Api::all_with(client, &ApiResource::erase::<GpuPool>(&()));
    let mut told = String::new();
    loop {
        let known = summaries.borrow_and_update().clone();
        if let Some(known) = known.filter(|_| may_write()) {
            match write_all(&pools, &known, &may_write).await {
                Ok(()) => told.clear(),
                Err(error) => {
                    let text = with_causes(&error);
                    if text != told {
                        tracing::warn!("cannot write the status of GPU pools: {text}");
                        told = text;
                    }
                }
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            // Also without news: a pool may have been made, or somebody else may lead by now.
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

async fn write_all(
    pools: &Api<Pool>,
    known: &BTreeMap<String, PoolSummary>,
    may_write: &MayWrite,
) -> Result<(), kube::Error> {
    let none = PoolSummary::default();
    for pool in pools.list(&ListParams::default()).await? {
        let name = pool.name_any();
        let summary = known.get(&name).unwrap_or(&none);
        let wanted = status(pool.metadata.generation, pool.status.as_ref(), summary, Timestamp::now());
        if pool.status.as_ref() == Some(&wanted) || !may_write() {
            continue;
        }
        // With the version it is based on, so that a former leader overwrites nothing.
        let mut patch =
            json!({ "metadata": { "resourceVersion": pool.resource_version() }, "status": wanted });
        if wanted.unmet_demand.is_empty() {
            // A merge keeps what is not named.
            patch["status"]["unmetDemand"] = json!(null);
        }
        match pools.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => {}
            // It changed or went in between: next time.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The status that a pool of this generation should have after the status `before`. `now` is the time of conditions that
/// change.
#[must_use]
pub fn status(
    generation: Option<i64>,
    before: Option<&GpuPoolStatus>,
    summary: &PoolSummary,
    now: Timestamp,
) -> GpuPoolStatus {
    let conditions = before.map_or(&[][..], |before| &before.conditions);
    let cards = |thousandths: u64| format!("{}.{:02}", thousandths / 1000, thousandths % 1000 / 10);
    let unmet = summary.unmet.iter().map(|shape| UnmetDemand { shape: shape.text.clone(), pods: shape.pods });
    GpuPoolStatus {
        observed_generation: generation,
        nodes: summary.nodes,
        cards: summary.cards,
        offered: summary.offered,
        allocated: cards(summary.allocated),
        unallocatable: cards(summary.unallocatable),
        unmet_demand: unmet.collect(),
        conditions: vec![ready(summary, conditions, now)],
    }
}

fn ready(summary: &PoolSummary, before: &[Condition], now: Timestamp) -> Condition {
    let (is_ready, reason, message) = verdict(summary);
    let status = if is_ready { "True" } else { "False" };
    let same =
        before.iter().find(|condition| condition.r#type == condition::READY && condition.status == status);
    Condition {
        r#type: condition::READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(LONGEST_MESSAGE).collect(),
        last_transition_time: match same {
            Some(same) => same.last_transition_time.clone(),
            None => now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    }
}

/// Whether all is well, the reason in one word, and in words.
fn verdict(summary: &PoolSummary) -> (bool, &'static str, String) {
    if let Some((error, nodes)) = summary.errors.iter().max_by_key(|(_, nodes)| **nodes) {
        let others = (summary.errors.len() - 1) as u64;
        let more =
            if others > 0 { format!(" (and {})", counted(others, "other error")) } else { String::new() };
        return (false, condition::SELECTOR_FAILS, format!("on {}: {error}{more}", counted(*nodes, "node")));
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
    (true, condition::AS_WANTED, message)
}

/// `1 node`, `2 nodes`.
fn counted(count: impl Into<u64>, what: &str) -> String {
    let count = count.into();
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(summary: &PoolSummary) -> String {
        status(None, None, summary, Timestamp::UNIX_EPOCH).conditions[0].reason.clone()
    }

    #[test]
    fn each_trouble_has_its_reason() {
        let well = PoolSummary { nodes: 1, cards: 2, ..PoolSummary::default() };
        assert_eq!(reason(&well), condition::AS_WANTED);
        assert_eq!(reason(&PoolSummary::default()), condition::NOTHING_SELECTED);
        let outranked = PoolSummary { outranked_by: ["b".to_owned()].into(), ..PoolSummary::default() };
        assert_eq!(reason(&outranked), condition::OUTRANKED);
        assert_eq!(reason(&PoolSummary { waits_for: 1, ..well.clone() }), condition::WAITS_FOR_CLAIMS);
        let errors = BTreeMap::from([("no such key".to_owned(), 3), ("no such field".to_owned(), 1)]);
        let errs = PoolSummary { errors, ..well.clone() };
        assert_eq!(reason(&errs), condition::SELECTOR_FAILS);
        assert_eq!(verdict(&errs).2, "on 3 nodes: no such key (and 1 other error)");
        assert_eq!(verdict(&well).2, "decides on 2 cards of 1 node");
        let unprovided = PoolSummary { unprovided: ["nvidia.com/gpu".to_owned()].into(), ..well };
        assert_eq!(reason(&unprovided), condition::AS_WANTED);
        let words =
            "decides on 2 cards of 1 node; pods that ask for nvidia.com/gpu wait, for all cards are managed";
        assert!(verdict(&unprovided).2.starts_with(words), "{}", verdict(&unprovided).2);
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change() {
        let well = PoolSummary { nodes: 1, cards: 2, allocated: 1250, ..PoolSummary::default() };
        let first = status(Some(1), None, &well, Timestamp::UNIX_EPOCH);
        let later = Timestamp::from_second(60).unwrap();
        let again = status(Some(1), Some(&first), &well, later);
        assert_eq!(again, first);
        assert_eq!(again.allocated, "1.25");
        let ill = status(Some(1), Some(&first), &PoolSummary::default(), later);
        assert_eq!(ill.conditions[0].last_transition_time, "1970-01-01T00:01:00Z");
    }
}
