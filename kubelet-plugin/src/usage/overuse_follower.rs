//! Says of claims that their programs hold more memory than they were promised, and of their neighbours that they may get less.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tessera_api::device_status::{ABOVE_PART, ENDANGERS, MEMORY_OVERUSE};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::overuse::{Level, Overuse, Part};
use super::report::{ClaimReport, DeviceReport, MIB, Report};
use super::teller::Teller;
use crate::prepare::{UsageCondition, UsageConditionKind};

/// Reason of the Events of neighbours.
const ENDANGERED: &str = "MemoryEndangered";

/// Follows the reports, and says which claims hold too much memory.
pub struct OveruseFollower {
    /// Use of cards and claims.
    pub reports: watch::Receiver<Option<Arc<Report>>>,
    /// Tells of it.
    pub teller: Teller,
}

impl OveruseFollower {
    /// Follows them until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut overuse = Overuse::default();
        let follow = async {
            while self.reports.changed().await.is_ok() {
                let report = self.reports.borrow_and_update().clone();
                if let Some(report) = report {
                    self.look(&report, &mut overuse).await;
                }
            }
            std::future::pending::<()>().await;
        };
        shutdown.run_until_cancelled(follow).await;
    }

    async fn look(&mut self, report: &Report, overuse: &mut Overuse) {
        let parts = parts(report);
        for (uid, level) in overuse.look(&parts) {
            let Some(claim) = report.claims.iter().find(|claim| claim.uid == uid) else { continue };
            let condition = condition(claim, level, &parts, report.at);
            if level > Level::Within {
                self.teller.warn(claim, MEMORY_OVERUSE, &condition.message);
            }
            self.teller.set(claim, condition);
        }
        for neighbour in overuse.endangered(&parts) {
            if let Some(claim) = report.claims.iter().find(|claim| claim.uid == neighbour.claim) {
                self.teller.warn(claim, ENDANGERED, &danger(neighbour));
            }
        }
        self.teller.write(report).await;
    }
}

/// The parts of all claims whose programs nothing limits.
fn parts(report: &Report) -> Vec<Part> {
    let of_claim = |claim: &ClaimReport| {
        let devices = claim.devices.iter().filter(|device| device.is_unlimited);
        let part = |device: &DeviceReport| Part {
            claim: claim.uid.clone(),
            device: device.device.clone(),
            promised: device.memory_granted,
            used: device.memory_used,
            free: free(report, device),
        };
        devices.map(part).collect::<Vec<_>>()
    };
    report.claims.iter().flat_map(of_claim).collect()
}

/// Free memory of the card or partition that the claim has a part of.
fn free(report: &Report, device: &DeviceReport) -> Option<u64> {
    let look = &report.card(device.card)?.look;
    let memory = match &device.partition {
        None => look.memory,
        Some((_, gpu_instance)) => {
            let mut partitions = look.partitions.iter().flatten();
            partitions.find(|partition| Some(partition.gpu_instance) == *gpu_instance)?.memory
        }
    };
    memory.map(|memory| memory.free)
}

fn danger(part: &Part) -> String {
    format!(
        "another claim of {} holds more memory than its part: {} MiB are free, and of its own part this one has not used {} MiB, so \
         that its allocations may fail",
        part.device,
        part.free.unwrap_or_default() / MIB,
        part.unused().unwrap_or_default() / MIB,
    )
}

fn condition(claim: &ClaimReport, level: Level, parts: &[Part], unix: u64) -> UsageCondition {
    let own = parts.iter().filter(|part| part.claim == claim.uid);
    let held = match own.clone().max_by_key(|part| part.excess()) {
        None => String::new(),
        Some(part) => format!(
            "its programs hold {} MiB of the memory of {}, and its part is {} MiB",
            part.used.unwrap_or_default() / MIB,
            part.device,
            part.promised / MIB
        ),
    };
    let (reason, message) = match level {
        Level::Within => {
            ("WithinItsPart", "its programs hold no more than its part, as far as is known".to_owned())
        }
        Level::Above => (ABOVE_PART, format!("{held}; its neighbours can have theirs")),
        Level::Endangers => (ENDANGERS, format!("{held}; a neighbour could not get all of its own")),
    };
    let second = i64::try_from(unix).unwrap_or_default();
    UsageCondition {
        kind: UsageConditionKind::MemoryOveruse,
        devices: own.map(|part| part.device.clone()).collect(),
        is_true: level > Level::Within,
        reason,
        message,
        since: Timestamp::from_second(second).unwrap_or_default(),
    }
}
