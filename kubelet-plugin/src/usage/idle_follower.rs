//! Says of claims that their pods do not use them: a condition of their devices, and an Event on the pods.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use tessera_api::device_status::{BELOW, IDLE, NOT_STARTED};
use tessera_api::gpu_pool::{Idle, IdleAction};
use tessera_inventory::gpu_pools::Resolution;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::idle::{IdleClaims, Limits, Use, Verdict, Why};
use super::pods;
use super::report::{ClaimReport, MIB, Report};
use super::teller::Teller;
use crate::prepare::{UsageCondition, UsageConditionKind};

/// Looks that may fail in a row before the time without use begins anew.
const FAILED_LOOKS: u32 = 3;

/// Follows the reports, and says which claims are idle.
pub struct IdleFollower {
    /// Use of cards and claims.
    pub reports: watch::Receiver<Option<Arc<Report>>>,
    /// How often a report comes.
    pub interval: Duration,
    /// The limits of each card's GpuPool.
    pub resolution: watch::Receiver<Option<Arc<Resolution>>>,
    /// Tells of it.
    pub teller: Teller,
    /// Where procfs is mounted.
    pub proc_root: PathBuf,
}

/// State kept between two reports.
struct State {
    began: Instant,
    claims: IdleClaims,
    /// Claims whose pods have started, by UID.
    started: BTreeSet<String>,
}

impl IdleFollower {
    /// Follows them until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut state = State {
            began: Instant::now(),
            claims: IdleClaims::new(self.interval * (FAILED_LOOKS + 1)),
            started: BTreeSet::new(),
        };
        let follow = async {
            while self.reports.changed().await.is_ok() {
                let report = self.reports.borrow_and_update().clone();
                if let Some(report) = report {
                    self.look(&report, &mut state).await;
                }
            }
            std::future::pending::<()>().await;
        };
        shutdown.run_until_cancelled(follow).await;
    }

    async fn look(&mut self, report: &Report, state: &mut State) {
        let Some(resolution) = self.resolution.borrow().clone() else { return };
        let limits: Vec<Option<Limits>> =
            report.claims.iter().map(|claim| limits(claim, &resolution)).collect();
        state.started.retain(|uid| report.claims.iter().any(|claim| claim.uid == *uid));
        let mut waiting = report
            .claims
            .iter()
            .zip(&limits)
            .filter(|(claim, limits)| limits.is_some() && !state.started.contains(&claim.uid));
        if waiting.next().is_some() {
            let proc_root = self.proc_root.clone();
            let pods = tokio::task::spawn_blocking(move || pods::started(&proc_root));
            let pods = pods.await.ok().flatten();
            let started = report.claims.iter().filter(|claim| has_started(claim, pods.as_ref()));
            state.started.extend(started.map(|claim| claim.uid.clone()));
        }
        let uses = report.claims.iter().zip(&limits).map(|(claim, limits)| {
            let has_started = state.started.contains(&claim.uid);
            (claim.uid.clone(), *limits, usage_since_start(claim, has_started))
        });
        let now = state.began.elapsed();
        for (uid, verdict) in state.claims.look(now, uses) {
            let found = report.claims.iter().zip(&limits).find(|(claim, _)| claim.uid == uid);
            let Some((claim, limits)) = found else { continue };
            let condition = condition(claim, *limits, verdict, now, report.at);
            if let Verdict::Idle { .. } = verdict {
                self.teller.warn(claim, IDLE, &condition.message);
            }
            self.teller.set(claim, condition);
        }
        self.teller.write(report).await;
    }
}

/// The strictest limits of the claim's cards; `None` if a card has none.
fn limits(claim: &ClaimReport, resolution: &Resolution) -> Option<Limits> {
    let of_card = |card| -> Option<&Idle> {
        let idle = resolution.cards.get(card)?.idle.as_ref()?;
        (idle.action != IdleAction::None).then_some(idle)
    };
    let mut limits: Option<Limits> = None;
    for device in &claim.devices {
        let idle = of_card(&device.card)?;
        let (after, below) = (Duration::from_secs(idle.after_seconds.into()), f64::from(idle.below_percent));
        let strictest = limits.get_or_insert(Limits { after, below_percent: below });
        strictest.after = strictest.after.max(after);
        strictest.below_percent = strictest.below_percent.min(below);
    }
    limits
}

/// Whether a container of the claim's pods has started, by the started pods of this node. The processes of a sandboxed container are
/// not the node's: use tells of them. Without the node's processes (`None`) a pod counts as started from the preparation of its claim:
/// an unused claim would otherwise never be told as idle.
fn has_started(claim: &ClaimReport, pods: Option<&BTreeSet<String>>) -> bool {
    let Some(pods) = pods else { return true };
    matches!(usage(claim), Use::Percent(percent) if percent > 0.0)
        || claim.pods.iter().any(|pod| pods.contains(&pod.uid))
}

/// The claim's use. Where it is not known, a program may run that is not seen either.
fn usage_since_start(claim: &ClaimReport, has_started: bool) -> Use {
    match usage(claim) {
        Use::Percent(_) if !has_started => Use::NotStarted,
        usage => usage,
    }
}

/// The use of the claim's busiest device. Of a time-slice, of the whole card.
fn usage(claim: &ClaimReport) -> Use {
    let percents = claim.devices.iter().map(|device| {
        let granted = device.sm_granted.filter(|granted| *granted > 0.0).unwrap_or(1.0);
        Some(device.sm_activity? / granted * 100.0)
    });
    match percents.collect::<Option<Vec<f64>>>() {
        Some(percents) => percents.into_iter().reduce(f64::max).map_or(Use::Unknown, Use::Percent),
        None => Use::Unknown,
    }
}

fn condition(
    claim: &ClaimReport,
    limits: Option<Limits>,
    verdict: Verdict,
    now: Duration,
    unix: u64,
) -> UsageCondition {
    let time = |at: Duration| {
        let second = i64::try_from(unix.saturating_sub((now - at).as_secs())).unwrap_or_default();
        Timestamp::from_second(second).unwrap_or_default()
    };
    let (since, is_true, reason, message) = match verdict {
        Verdict::Idle { since, highest: None } => {
            let message = format!("no container of its pods has started since {}", time(since));
            (since, true, NOT_STARTED, message)
        }
        Verdict::Idle { since, highest: Some(highest) } => {
            let below = limits.map(|limits| limits.below_percent).unwrap_or_default();
            let memory: u64 = claim.devices.iter().filter_map(|device| device.memory_used).sum();
            let message = format!(
                "below {below}% of its multiprocessors since {}, {highest:.1}% at most; it holds {} MiB of memory",
                time(since),
                memory / MIB
            );
            (since, true, BELOW, message)
        }
        Verdict::NotIdle(why) => {
            let (reason, message) = match why {
                Why::FirstLook => ("FirstLook", "the plugin has begun to look at its use".to_owned()),
                Why::InUse(percent) => ("InUse", format!("{percent:.1}% of its multiprocessors are in use")),
                Why::Unknown => ("UseUnknown", "its use is not known".to_owned()),
                Why::Started => ("Started", "a container of its pods has started".to_owned()),
                Why::OtherLimits => ("OtherLimits", "its GpuPool has other limits of idle claims".to_owned()),
            };
            (now, false, reason, message)
        }
    };
    let devices = claim.devices.iter().map(|device| device.device.clone()).collect();
    let kind = UsageConditionKind::Idle;
    UsageCondition { kind, devices, is_true, reason, message, since: time(since) }
}

#[cfg(test)]
mod tests {
    use tessera_api::node_report::CardReport;

    use super::super::DeviceReport;
    use super::*;

    /// A claim's devices: bus of the card, granted and busy multiprocessors.
    fn claim(devices: &[(u8, Option<f64>, Option<f64>)]) -> ClaimReport {
        let device = |(bus, sm_granted, sm_activity): &(u8, Option<f64>, Option<f64>)| DeviceReport {
            device: format!("gpu-{bus:02x}-00"),
            card: tessera_api::PciBusId::new(0, *bus, 0, 0).unwrap(),
            card_uuid: String::new(),
            partition: None,
            memory_granted: 0,
            is_unlimited: false,
            sm_granted: *sm_granted,
            memory_used: Some(MIB),
            sm_activity: *sm_activity,
        };
        ClaimReport {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
            uid: "u".to_owned(),
            pods: Vec::new(),
            devices: devices.iter().map(device).collect(),
        }
    }

    #[test]
    fn the_use_is_of_what_the_claim_holds_on_its_busiest_device() {
        let of = |devices: &[_]| usage(&claim(devices));
        assert_eq!(of(&[(1, Some(0.25), Some(0.125)), (2, Some(1.0), Some(0.25))]), Use::Percent(50.0));
        assert_eq!(of(&[(1, None, Some(0.25))]), Use::Percent(25.0), "a time-slice may have all");
        assert_eq!(of(&[(1, Some(1.0), Some(0.0)), (2, Some(1.0), None)]), Use::Unknown);
        assert_eq!(of(&[]), Use::Unknown);
    }

    #[test]
    fn no_claim_of_unknown_use_is_told_not_to_have_started() {
        let of = |activity| usage_since_start(&claim(&[(1, Some(1.0), activity)]), false);
        assert_eq!((of(Some(0.0)), of(None)), (Use::NotStarted, Use::Unknown));
    }

    #[test]
    fn the_strictest_limits_of_all_cards_hold() {
        let idle = |action, after_seconds, below_percent| CardReport {
            idle: Some(Idle { action, after_seconds, below_percent, ..Idle::default() }),
            ..CardReport::default()
        };
        let card = |bus| tessera_api::PciBusId::new(0, bus, 0, 0).unwrap();
        let cards = [
            (card(1), idle(IdleAction::Tell, 60, 5)),
            (card(2), idle(IdleAction::Evict, 30, 1)),
            (card(3), idle(IdleAction::None, 60, 5)),
            (card(4), CardReport::default()),
        ];
        let resolution = Resolution { cards: cards.into(), ..Resolution::default() };
        let of = |buses: &[u8]| {
            let devices: Vec<_> = buses.iter().map(|bus| (*bus, None, None)).collect();
            limits(&claim(&devices), &resolution)
        };
        assert_eq!(of(&[1, 2]), Some(Limits { after: Duration::from_secs(60), below_percent: 1.0 }));
        for without in [&[1, 3][..], &[4], &[5], &[]] {
            assert_eq!(of(without), None, "{without:?}");
        }
    }

    #[test]
    fn use_or_a_started_pod_shows_that_a_container_has_started() {
        let pods: BTreeSet<String> = ["p".to_owned()].into();
        let pods = Some(&pods);
        assert!(has_started(&claim(&[(1, Some(1.0), Some(0.1))]), pods));
        let mut unused = claim(&[(1, Some(1.0), Some(0.0))]);
        assert!(!has_started(&unused, pods));
        assert!(has_started(&unused, None), "nobody can tell");
        unused.pods.push(tessera_journal::ClaimPod { name: "pod".to_owned(), uid: "p".to_owned() });
        assert!(has_started(&unused, pods));
    }
}
