//! The node's report to the controller.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::gpu_pool::Allocation;
use tessera_api::node_report::LAYOUT;
use tessera_api::{DeviceName, NodeReport, limits, node_report};
use tessera_inventory::Topology;

use crate::gpu_pools::Resolution;
use crate::layout::{LayoutState, LayoutStatus};

/// A pool's report if its cards would have taints and the API server does not keep taints.
pub const NEEDS_TAINTS: &str = "allocation Managed needs the feature gate DRADeviceTaints in kube-apiserver and kube-scheduler \
                            (on by default since Kubernetes 1.36), and it is off: its cards are not published";

/// Where the kernel's cgroups are, on nodes and in containers.
const CGROUPS: &str = "/sys/fs/cgroup";

/// `CGROUP2_SUPER_MAGIC` of linux/magic.h.
const CGROUP2: u64 = 0x6367_7270;

/// Version of this node's cgroups, detected like in the kubelet: by the file system type. `None` where there are none.
pub fn cgroup_version() -> Option<u8> {
    let kind = rustix::fs::statfs(CGROUPS).ok()?.f_type;
    if u64::try_from(kind).is_ok_and(|kind| kind == CGROUP2) {
        return Some(2);
    }
    // Version 1 has a directory for each of its controllers.
    std::path::Path::new(CGROUPS).join("cpu").is_dir().then_some(1)
}

/// Facts about the node itself.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// Version of the node's cgroups, where known.
    pub cgroup_version: Option<u8>,
    /// Version of the node's NVIDIA container toolkit, if its hooks are unsafe.
    pub unsafe_container_toolkit: Option<String>,
}

/// The annotations of the first slice: the report of the node. `waits` are the devices published only because
/// claims hold them; `taints_are_kept` says whether the API server keeps taints of devices, as far as known.
pub fn annotations(
    resolution: &Resolution,
    waits: &[String],
    taints_are_kept: bool,
    of_node: NodeFacts,
    layouts: &LayoutStatus,
) -> BTreeMap<String, String> {
    let NodeFacts { cgroup_version, unsafe_container_toolkit } = of_node;
    let mut report =
        NodeReport { cgroup_version, unsafe_container_toolkit, ..node_report(resolution, waits) };
    if !taints_are_kept {
        for pool in managed_pools(resolution) {
            report.pools.entry(pool).or_default().error.get_or_insert_with(|| NEEDS_TAINTS.to_owned());
        }
    }
    for (pool, trouble) in layout_troubles(resolution, layouts) {
        report.pools.entry(pool).or_default().error.get_or_insert(trouble);
    }
    let mut text = json(&report);
    if text.len() + node_report::ANNOTATION.len() > limits::ANNOTATIONS_BYTES {
        tracing::warn!(
            bytes = text.len(),
            "the report of this node leaves out how its cards are connected: too long"
        );
        (report.links, report.pcie, report.other_pairs) = (Vec::new(), Vec::new(), None);
        text = json(&report);
    }
    BTreeMap::from([(node_report::ANNOTATION.to_owned(), text)])
}

/// The pools whose cards on this node are allocated by the controller.
pub fn managed_pools(resolution: &Resolution) -> BTreeSet<String> {
    let managed = resolution.cards.values().filter(|card| card.allocation == Allocation::Managed);
    managed.filter_map(|card| card.pool.clone()).collect()
}

/// The worst state of each pool's layouts that are not applied, in words. Names and details are left to the node's Events:
/// nodes in the same state have the same text, and a lasting state is reported once.
fn layout_troubles(resolution: &Resolution, layouts: &LayoutStatus) -> BTreeMap<String, String> {
    let mut counts: BTreeMap<&String, BTreeMap<LayoutState, u32>> = BTreeMap::new();
    for (card, status) in &layouts.cards {
        let pool = resolution.cards.get(card).and_then(|report| report.pool.as_ref());
        if let Some(pool) = pool.filter(|_| status.state != LayoutState::Applied) {
            *counts.entry(pool).or_default().entry(status.state).or_default() += 1;
        }
    }
    let worst = counts.into_iter().filter_map(|(pool, states)| {
        let (state, count) = states.into_iter().next_back()?;
        let what = match state {
            LayoutState::Applied => return None,
            LayoutState::Pending => "no new claims until they are free to be laid out",
            LayoutState::NeedsReset => {
                "MIG mode switches with a reset (nvidia-smi --gpu-reset, or a reboot of the node)"
            }
            LayoutState::Failed => "they cannot be laid out",
        };
        let trouble = format!("{LAYOUT}{count} of its cards: {what}; Events of the node name the cards");
        Some((pool.clone(), trouble))
    });
    worst.collect()
}

fn node_report(resolution: &Resolution, waits: &[String]) -> NodeReport {
    let mut cards = resolution.cards.clone();
    for name in waits {
        let card = name.parse::<DeviceName>().ok().map(|name| name.card());
        // A removed card belongs to no pool.
        if let Some(report) = card.and_then(|card| cards.get_mut(&card)) {
            report.waits_for.push(name.clone());
        }
    }
    let mut report = NodeReport {
        cards,
        pools: resolution.pools.clone(),
        kubernetes: Some(resolution.kubernetes.clone()),
        advice: resolution.advice.clone(),
        ..NodeReport::default()
    };
    Topology::new(&resolution.machine).write_to(&mut report);
    report
}

#[expect(clippy::expect_used, reason = "plain data with keys of text, which always serialises")]
fn json(report: &NodeReport) -> String {
    serde_json::to_string(report).expect("plain data")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tessera_api::PciBusId;
    use tessera_api::node_report::CardReport;
    use tessera_inventory::Machine;
    use tessera_inventory::machine::{Card, CommonAncestor, NvLink, NvLinkRemote, Pair};

    use super::*;
    use crate::layout::CardStatus;

    fn pci(bus: u8) -> PciBusId {
        PciBusId::new(0, bus, 0, 0).unwrap()
    }

    fn resolution(count: u8) -> Resolution {
        let mut machine =
            Machine { cards: (1..=count).map(|bus| Card::new(pci(bus))).collect(), ..Machine::default() };
        machine.pairs.insert(
            pci(1),
            pci(2),
            Pair { common_ancestor: Some(CommonAncestor::SingleSwitch), ..Pair::default() },
        );
        for (card, other) in [(0, 2), (1, 1)] {
            let link = NvLink { remote: NvLinkRemote::Gpu(pci(other)), version: None };
            machine.cards[card].nvlinks = Some(vec![link; 4]);
        }
        let cards = machine.cards.iter().map(|card| (card.pci, CardReport::default())).collect();
        let kubernetes = "v1.36.3".to_owned();
        let advice = Some("whole alone".to_owned());
        Resolution { machine: Arc::new(machine), cards, kubernetes, advice, ..Resolution::default() }
    }

    #[test]
    fn a_report_has_connections_and_what_is_waited_for() {
        let resolution = resolution(3);
        let waits = ["gpu-02-00".to_owned(), "gpu-09-00".to_owned(), "no name".to_owned()];
        let of_node =
            NodeFacts { cgroup_version: Some(2), unsafe_container_toolkit: Some("1.17.7".to_owned()) };
        let annotations = annotations(&resolution, &waits, true, of_node, &LayoutStatus::none());
        let report: NodeReport = serde_json::from_str(&annotations[node_report::ANNOTATION]).unwrap();
        assert_eq!(report.links, [(pci(1), pci(2), 4)]);
        assert_eq!(report.pcie, [(pci(1), pci(2), "PIX".to_owned())]);
        assert_eq!(report.other_pairs.as_deref(), Some("SYS"));
        assert_eq!(report.cards.len(), 3);
        assert_eq!(report.cards[&pci(2)].waits_for, ["gpu-02-00"]);
        assert_eq!(report.cgroup_version, Some(2));
        assert_eq!(
            (report.kubernetes.as_deref(), report.advice.as_deref()),
            (Some("v1.36.3"), Some("whole alone"))
        );
        assert_eq!(report.unsafe_container_toolkit.as_deref(), Some("1.17.7"));
    }

    #[test]
    fn managed_pools_are_told_that_taints_are_not_kept() {
        let mut resolution = resolution(3);
        for (bus, pool, allocation) in
            [(1, "steered", Allocation::Steered), (2, "managed", Allocation::Managed)]
        {
            let pool = Some(pool.to_owned());
            resolution.cards.insert(pci(bus), CardReport { pool, allocation, ..CardReport::default() });
        }
        let errors = |taints_are_kept| {
            let annotations =
                annotations(&resolution, &[], taints_are_kept, NodeFacts::default(), &LayoutStatus::none());
            let report: NodeReport = serde_json::from_str(&annotations[node_report::ANNOTATION]).unwrap();
            let errors = report.pools.into_iter().map(|(pool, report)| (pool, report.error.unwrap()));
            errors.collect::<Vec<_>>()
        };
        assert_eq!(errors(true), []);
        assert_eq!(errors(false), [("managed".to_owned(), NEEDS_TAINTS.to_owned())]);
    }

    #[test]
    fn a_pool_whose_layout_waits_is_told_so() {
        let mut resolution = resolution(4);
        for (bus, pool) in [(1, "waits"), (2, "waits"), (3, "waits"), (4, "well")] {
            let pool = Some(pool.to_owned());
            resolution.cards.insert(pci(bus), CardReport { pool, ..CardReport::default() });
        }
        let mut layouts = LayoutStatus::none();
        let states =
            [LayoutState::Pending, LayoutState::NeedsReset, LayoutState::NeedsReset, LayoutState::Applied];
        for (bus, state) in (1..).zip(states) {
            let status = CardStatus {
                layout: "one".into(),
                state,
                message: "changes".into(),
                whole_only: false,
                is_fixed: true,
            };
            layouts.cards.insert(pci(bus), status);
        }
        let annotations = annotations(&resolution, &[], true, NodeFacts::default(), &layouts);
        let report: NodeReport = serde_json::from_str(&annotations[node_report::ANNOTATION]).unwrap();
        let error = report.pools["waits"].error.as_deref().unwrap();
        assert!(error.starts_with("offer.layout: 2 of its cards: MIG mode switches with a reset"), "{error}");
        assert!(!report.pools.contains_key("well"));
    }

    #[test]
    fn what_no_annotation_can_hold_is_left_out() {
        let mut resolution = resolution(200);
        let machine = Arc::make_mut(&mut resolution.machine);
        for one in 1..=200 {
            for other in one + 1..=200 {
                let level =
                    [CommonAncestor::SingleSwitch, CommonAncestor::Node][usize::from(one % 2 == other % 2)];
                machine.pairs.insert(
                    pci(one),
                    pci(other),
                    Pair { common_ancestor: Some(level), ..Pair::default() },
                );
            }
        }
        let annotations = annotations(&resolution, &[], true, NodeFacts::default(), &LayoutStatus::none());
        let text = &annotations[node_report::ANNOTATION];
        let report: NodeReport = serde_json::from_str(text).unwrap();
        assert!(
            text.len() < limits::ANNOTATIONS_BYTES && report.cards.len() == 200 && report.pcie.is_empty()
        );
    }
}
