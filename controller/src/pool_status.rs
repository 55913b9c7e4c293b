//! Writes the status of GpuPools: at most one write per pool in ten seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, ListParams, Patch, PatchParams};
use kube::core::Object;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::fleet_view::cards;
use tessera_api::gpu_pool::condition::{self, Condition};
use tessera_api::gpu_pool::{GpuPool, GpuPoolStatus, UnmetDemand};
use tessera_decide::{PoolSummary, PoolVerdict};
use tessera_kube_util::error_text::with_causes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::carry_out::MayWrite;
use crate::decide_loop::Summaries;

/// Pause between two writes of the same status.
const PAUSE: Duration = Duration::from_secs(10);

/// Longest message of a condition, in characters. The API server allows 32,768 bytes.
const LONGEST_MESSAGE: usize = 1024;

/// A pool with an arbitrary spec. A spec of a later version of Tessera still gets the plugins' reports in its status, and must not
/// block the status of other pools.
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
            // Also without news: a pool may be new, or the leader may have changed.
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
        // With the base version, so that a former leader overwrites nothing.
        let mut patch =
            json!({ "metadata": { "resourceVersion": pool.resource_version() }, "status": wanted });
        if wanted.unmet_demand.is_empty() {
            // A merge patch keeps fields not named.
            patch["status"]["unmetDemand"] = json!(null);
        }
        match pools.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => {}
            // Changed or deleted in between: retried next time.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The status for a pool of this generation after the status `before`. `now` becomes the time of changed conditions.
#[must_use]
pub fn status(
    generation: Option<i64>,
    before: Option<&GpuPoolStatus>,
    summary: &PoolSummary,
    now: Timestamp,
) -> GpuPoolStatus {
    let conditions = before.map_or(&[][..], |before| &before.conditions);
    let cards = |thousandths: u64| cards(thousandths as f64 / 1000.0);
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
    let PoolVerdict { is_ready, reason, message } = summary.verdict();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change() {
        let well = PoolSummary { nodes: 1, cards: 2, allocated: 1255, ..PoolSummary::default() };
        let first = status(Some(1), None, &well, Timestamp::UNIX_EPOCH);
        let later = Timestamp::from_second(60).unwrap();
        let again = status(Some(1), Some(&first), &well, later);
        assert_eq!(again, first);
        assert_eq!(again.allocated, "1.26", "as `kubectl gpu top` has it");
        let ill = status(Some(1), Some(&first), &PoolSummary::default(), later);
        assert_eq!(ill.conditions[0].last_transition_time, "1970-01-01T00:01:00Z");
    }
}
