//! Use of each claim since its first observation: peaks and means, in memory.

use std::collections::{BTreeMap, HashMap};

use tessera_api::DeviceName;
use tessera_api::fleet_view::Holder;
use tessera_api::usage::{DeviceUsage, NodeUsage};

use crate::usage::Usages;

/// Maximum number of claims' devices with observations, some 30 MiB. Others are not recorded.
const MOST: usize = 100_000;

/// Longest interval between two observations that is counted, in seconds. After a longer pause the use in between is unknown.
const LONGEST: u64 = 300;

/// Rounds without an answer before a node's observations are dropped: an hour, with a round every 15 s.
const ROUNDS: u32 = 240;

/// Observations of all claims.
#[derive(Debug, Default)]
pub struct Observed {
    nodes: BTreeMap<String, Node>,
    /// Devices of all nodes.
    devices: usize,
}

#[derive(Debug, Default)]
struct Node {
    /// By UID of the claim, and by device.
    claims: HashMap<String, HashMap<String, Seen>>,
    /// Unix time of the plugin's last observation, in seconds.
    last: u64,
    /// Rounds without an answer.
    silent: u32,
}

/// Use of one device by a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Observed time, in seconds.
    seconds: u64,
    /// Peak memory, in MiB.
    memory_peak_mib: Option<u64>,
    /// Sum of the shares of busy multiprocessors, each times its seconds.
    sm_seconds: f64,
    /// Seconds with known activity.
    sm_told: u64,
    /// Peak share.
    sm_peak: f64,
}

impl Observed {
    /// Adds a round of the plugins' answers.
    pub fn add(&mut self, usages: &Usages) {
        for (name, usage) in usages.iter() {
            if let Ok(usage) = usage {
                let node = self.nodes.entry(name.clone()).or_default();
                self.devices -= node.devices();
                node.add(usage, MOST - self.devices);
                self.devices += node.devices();
            }
        }
        self.nodes.retain(|name, node| {
            if matches!(usages.get(name), Some(Ok(_))) {
                return true;
            }
            node.silent += 1;
            if node.silent > ROUNDS {
                self.devices -= node.devices();
            }
            node.silent <= ROUNDS
        });
    }

    /// Observations of a claim's device.
    pub fn of(&self, node: &str, uid: &str, device: &str) -> Option<&Seen> {
        self.nodes.get(node)?.claims.get(uid)?.get(device)
    }
}

impl Node {
    fn devices(&self) -> usize {
        self.claims.values().map(HashMap::len).sum()
    }

    /// Drops claims missing in the answer. Keeps no more than `most` devices.
    fn add(&mut self, usage: &NodeUsage, most: usize) {
        self.silent = 0;
        if usage.at == self.last {
            return;
        }
        // The span is unknown at the first observation, and after the clock was set back.
        let span = usage.at.checked_sub(self.last).filter(|span| self.last > 0 && *span <= LONGEST);
        self.last = usage.at;
        let mut known = std::mem::take(&mut self.claims);
        let mut kept = 0;
        for claim in &usage.claims {
            let mut before = known.remove(&claim.uid).unwrap_or_default();
            for device in &claim.devices {
                if kept >= most {
                    return;
                }
                let seen = before.remove(&device.device);
                let is_new = seen.is_none();
                let mut seen = seen.unwrap_or_default();
                seen.add(device, memory_of_card(usage, device), span.filter(|_| !is_new));
                self.claims.entry(claim.uid.clone()).or_default().insert(device.device.clone(), seen);
                kept += 1;
            }
        }
    }
}

/// Memory of the device's card, in MiB.
fn memory_of_card(usage: &NodeUsage, device: &DeviceUsage) -> Option<u64> {
    let name: DeviceName = device.device.parse().ok()?;
    usage.cards.get(&name.card()).map(|card| card.memory_total_mib)
}

impl Seen {
    /// Adds an observation. `span` is the time since the one before, covered by the activity; `None` if unknown, or if the claim is
    /// new since then. Impossible values are ignored: more memory than the card has, activity that is negative or not a number.
    fn add(&mut self, device: &DeviceUsage, memory_of_card: Option<u64>, span: Option<u64>) {
        let can_be = |used: &u64| memory_of_card.is_none_or(|all| *used <= all);
        if let Some(used) = device.memory_used_mib.filter(can_be) {
            self.memory_peak_mib = self.memory_peak_mib.max(Some(used));
        }
        let Some(span) = span else { return };
        self.seconds += span;
        if let Some(activity) = device.sm_activity.filter(|activity| activity.is_finite() && *activity >= 0.0)
        {
            let activity = activity.min(1.0);
            self.sm_seconds += activity * span as f64;
            self.sm_told += span;
            self.sm_peak = self.sm_peak.max(activity);
        }
    }

    /// Copies the observations to a holder.
    pub fn tell(&self, holder: &mut Holder) {
        holder.memory_peak_mib = self.memory_peak_mib;
        if self.seconds == 0 {
            return;
        }
        holder.observed_seconds = Some(self.seconds);
        if self.sm_told > 0 && self.sm_told * 2 >= self.seconds {
            holder.sm_mean = Some(self.sm_seconds / self.sm_told as f64);
            holder.sm_peak = Some(self.sm_peak);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tessera_api::usage::{CardUsage, ClaimUsage};

    use super::*;

    /// A node with a claim of each of these UIDs on the same card.
    fn node(at: u64, uids: &[&str], memory: Option<u64>, activity: Option<f64>) -> NodeUsage {
        let device = DeviceUsage {
            device: "gpu-01-00".to_owned(),
            memory_used_mib: memory,
            sm_activity: activity,
            ..DeviceUsage::default()
        };
        let claim = |uid: &&str| ClaimUsage {
            uid: (*uid).to_owned(),
            devices: vec![device.clone()],
            ..ClaimUsage::default()
        };
        let card = CardUsage { memory_total_mib: 1000, ..CardUsage::default() };
        NodeUsage {
            at,
            cards: [("0000:01:00.0".parse().unwrap(), card)].into(),
            claims: uids.iter().map(claim).collect(),
        }
    }

    fn round(observed: &mut Observed, nodes: impl IntoIterator<Item = (&'static str, Option<NodeUsage>)>) {
        let answer =
            |usage: Option<NodeUsage>| usage.map(Arc::new).ok_or_else(|| "does not answer".to_owned());
        let usages = nodes.into_iter().map(|(name, usage)| (name.to_owned(), answer(usage))).collect();
        observed.add(&Arc::new(usages));
    }

    fn told(observed: &Observed, uid: &str) -> Holder {
        let mut holder = Holder::default();
        if let Some(seen) = observed.of("a", uid, "gpu-01-00") {
            seen.tell(&mut holder);
        }
        holder
    }

    #[test]
    fn peaks_and_the_mean_by_time() {
        let mut observed = Observed::default();
        // Activity before the first observation may have been another claim's.
        for (at, memory, activity) in [(1000, 700, 1.0), (1010, 100, 0.5), (1010, 999, 1.0), (1040, 200, 0.1)]
        {
            round(&mut observed, [("a", Some(node(at, &["u"], Some(memory), Some(activity))))]);
        }
        let holder = told(&observed, "u");
        assert_eq!((holder.observed_seconds, holder.memory_peak_mib), (Some(40), Some(700)));
        assert_eq!(holder.sm_peak, Some(0.5));
        assert!((holder.sm_mean.unwrap() - 0.2).abs() < 1e-9, "{holder:?}");
    }

    #[test]
    fn values_that_cannot_be_and_clocks_that_go_back_do_no_harm() {
        let mut observed = Observed::default();
        for (at, memory, activity) in [
            (1000, Some(5), Some(0.2)),
            (1015, Some(u64::MAX), Some(f64::NAN)),
            (1030, None, Some(-3.0)),
            (900, Some(7), Some(f64::INFINITY)),
            (915, Some(6), Some(0.4)),
            (930, Some(6), Some(2.0)),
            // An hour without observations.
            (4530, Some(6), Some(0.9)),
        ] {
            round(&mut observed, [("a", Some(node(at, &["u"], memory, activity)))]);
        }
        let holder = told(&observed, "u");
        assert_eq!((holder.memory_peak_mib, holder.observed_seconds), (Some(7), Some(60)));
        assert_eq!((holder.sm_mean, holder.sm_peak), (Some(0.7), Some(1.0)), "1 is the most");
        round(&mut observed, [("a", Some(node(4545, &["u"], None, None)))]);
        assert_eq!(told(&observed, "u").sm_peak, None, "told for 30 of 75 s");
    }

    #[test]
    fn what_is_kept_goes_with_the_claim() {
        let mut observed = Observed::default();
        round(&mut observed, [("a", Some(node(1000, &["u", "v"], Some(1), None)))]);
        round(&mut observed, [("a", Some(node(1015, &["v", "w"], Some(1), None)))]);
        assert!(observed.of("a", "u", "gpu-01-00").is_none() && observed.of("a", "v", "gpu-01-00").is_some());
        assert_eq!(observed.devices, 2);
        // A plugin being upgraded loses no observations; a node that is gone does.
        round(&mut observed, [("a", None)]);
        round(&mut observed, [("b", Some(node(1000, &["u"], Some(1), None)))]);
        assert!(observed.of("a", "v", "gpu-01-00").is_some());
        for at in 0..=u64::from(ROUNDS) {
            round(&mut observed, [("b", Some(node(1015 + at, &["u"], Some(1), None)))]);
        }
        assert!(observed.of("a", "v", "gpu-01-00").is_none());
        assert_eq!((observed.nodes.len(), observed.devices), (1, 1));
    }

    #[test]
    fn a_hundred_thousand_devices_are_kept_and_no_more() {
        let mut observed = Observed::default();
        let uids: Vec<String> = (0..MOST + 10).map(|number| number.to_string()).collect();
        let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
        for at in [1000, 1015] {
            let others = node(at, &["other"], Some(1), None);
            round(&mut observed, [("a", Some(node(at, &uids, Some(1), None))), ("b", Some(others))]);
            assert_eq!(observed.devices, MOST);
        }
        assert!(observed.of("b", "other", "gpu-01-00").is_none());
        round(
            &mut observed,
            [("a", Some(node(1030, &[], None, None))), ("b", Some(node(1030, &["other"], Some(1), None)))],
        );
        assert_eq!(observed.devices, 1);
    }
}
