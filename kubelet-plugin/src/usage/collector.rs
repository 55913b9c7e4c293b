//! The last report as OpenMetrics. Series come and go with cards and claims: nothing is registered for a card or a claim.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tessera_nvml::ClocksEvents;
use tokio::sync::watch;

use super::look::PartitionLook;
use super::report::{CardReport, ClaimReport, DeviceReport, MIB, Report};

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;

/// Collects the last report.
#[derive(Debug)]
pub struct UsageCollector {
    report: watch::Receiver<Option<Arc<Report>>>,
}

/// A figure of a card or claim: name, help text, and value if any.
type Figure<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);
/// The same for a figure that only grows.
type Count<T> = (&'static str, &'static str, fn(&T) -> Option<u64>);

const CARD: &[Figure<CardReport>] = &[
    ("gpu_memory_total_mib", "Memory of a card", |card| card.look.memory.map(|memory| mib(memory.total))),
    ("gpu_memory_used_mib", "Memory in use, without what the driver keeps", |card| {
        card.look.memory.map(|memory| mib(memory.used))
    }),
    ("gpu_memory_free_mib", "Memory that is free", |card| card.look.memory.map(|memory| mib(memory.free))),
    ("gpu_memory_reserved_mib", "Memory that the driver keeps for itself", |card| {
        card.look.memory.map(|memory| mib(memory.reserved))
    }),
    ("gpu_memory_allocated_ratio", "Share of the memory that claims have", |card| Some(card.allocated)),
    (
        "gpu_utilization_ratio",
        "Share of time in which a kernel ran, in the driver's last sample period",
        |card| card.look.utilization,
    ),
    ("gpu_sm_activity_ratio", "Share of time and multiprocessors with a warp at least", |card| {
        card.look.activity.sm
    }),
    ("gpu_sm_occupancy_ratio", "Warps on multiprocessors, of those that they can have", |card| {
        card.look.activity.sm_occupancy
    }),
    ("gpu_tensor_activity_ratio", "Share of time and multiprocessors with a tensor core in use", |card| {
        card.look.activity.tensor
    }),
    ("gpu_memory_activity_ratio", "Share of the memory's bandwidth in use", |card| card.look.activity.memory),
    ("gpu_power_watts", "Power draw", |card| card.look.power_watts),
    ("gpu_temperature_celsius", "Temperature of the GPU", |card| card.look.temperature_celsius),
    ("gpu_memory_temperature_celsius", "Temperature of the memory", |card| {
        card.look.memory_temperature_celsius
    }),
    ("gpu_sm_clock_mhz", "Clock of the multiprocessors", |card| card.look.sm_clock_megahertz.map(f64::from)),
    ("gpu_memory_clock_mhz", "Clock of the memory", |card| card.look.memory_clock_megahertz.map(f64::from)),
    ("gpu_pcie_transmit_bytes_per_second", "Sent over PCIe, protocol included", |card| {
        card.look.pcie_sent_bytes_per_second.map(|bytes| bytes as f64)
    }),
    ("gpu_pcie_receive_bytes_per_second", "Received over PCIe, protocol included", |card| {
        card.look.pcie_received_bytes_per_second.map(|bytes| bytes as f64)
    }),
    ("gpu_processes", "Processes on a card", |card| {
        card.look.processes.as_ref().map(|processes| processes.len() as f64)
    }),
];

const CARD_COUNTS: &[Count<CardReport>] = &[
    ("gpu_energy_millijoules", "Energy", |card| card.look.energy_millijoules),
    ("gpu_nvlink_transmit_bytes", "Data sent over all NVLinks", |card| card.look.nvlink_sent_bytes),
    ("gpu_nvlink_receive_bytes", "Data received over all NVLinks", |card| card.look.nvlink_received_bytes),
];

const PARTITION: &[Figure<PartitionLook>] = &[
    ("partition_memory_total_mib", "Memory of a partition", |partition| {
        partition.memory.map(|memory| mib(memory.total))
    }),
    ("partition_memory_used_mib", "Memory of a partition in use", |partition| {
        partition.memory.map(|memory| mib(memory.used))
    }),
    ("partition_sm_activity_ratio", "As of a card, of the partition's own multiprocessors", |partition| {
        partition.activity.sm
    }),
    ("partition_sm_occupancy_ratio", "As of a card, of the partition's own multiprocessors", |partition| {
        partition.activity.sm_occupancy
    }),
    (
        "partition_tensor_activity_ratio",
        "As of a card, of the partition's own multiprocessors",
        |partition| partition.activity.tensor,
    ),
    ("partition_memory_activity_ratio", "As of a card, of the partition's own bandwidth", |partition| {
        partition.activity.memory
    }),
];

const DEVICE: &[Figure<DeviceReport>] = &[
    ("claim_memory_granted_mib", "Memory that a claim may use of a device", |device| {
        Some(mib(device.memory_granted))
    }),
    ("claim_memory_used_mib", "Memory that a claim's processes use of a device", |device| {
        device.memory_used.map(mib)
    }),
    ("claim_sm_granted_ratio", "Multiprocessors that a claim may use, of those of the card", |device| {
        device.sm_granted
    }),
    ("claim_sm_activity_ratio", "Multiprocessors that a claim keeps busy, of those of the card", |device| {
        device.sm_activity
    }),
];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

impl UsageCollector {
    /// A collector of the latest report in `report`.
    #[must_use]
    pub fn new(report: watch::Receiver<Option<Arc<Report>>>) -> Self {
        Self { report }
    }
}

impl Collector for UsageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(report) = self.report.borrow().clone() else { return Ok(()) };
        let cards: Vec<(Labels, &CardReport)> =
            report.cards.iter().map(|card| (card_labels(card), card)).collect();
        let partitions: Vec<(Labels, &PartitionLook)> = report.cards.iter().flat_map(partitions).collect();
        let devices: Vec<(Labels, &DeviceReport)> =
            report.claims.iter().flat_map(|claim| devices(&report, claim)).collect();
        gauges(&mut encoder, CARD, &cards)?;
        for (name, help, value) in CARD_COUNTS {
            let told =
                cards.iter().filter_map(|(labels, card)| Some((labels, ConstCounter::new(value(card)?))));
            family(&mut encoder, name, help, told)?;
        }
        family(
            &mut encoder,
            "gpu_clocks_event",
            "1 while this sets the clocks",
            cards.iter().flat_map(events),
        )?;
        gauges(&mut encoder, PARTITION, &partitions)?;
        gauges(&mut encoder, DEVICE, &devices)
    }
}

fn gauges<T>(
    encoder: &mut DescriptorEncoder<'_>,
    figures: &[Figure<T>],
    things: &[(Labels, &T)],
) -> Result<(), fmt::Error> {
    for (name, help, value) in figures {
        let told = things.iter().filter_map(|(labels, thing)| Some((labels, ConstGauge::new(value(thing)?))));
        family(encoder, name, help, told)?;
    }
    Ok(())
}

/// A metric with all its series; nothing where there are none.
fn family<L: Borrow<Labels>, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (L, M)>,
) -> Result<(), fmt::Error> {
    let mut series = series.peekable();
    let Some((_, first)) = series.peek() else { return Ok(()) };
    let mut metric = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    for (labels, value) in series {
        value.encode(metric.encode_family(labels.borrow())?)?;
    }
    Ok(())
}

/// Labels named as in dcgm-exporter.
fn card_labels(card: &CardReport) -> Labels {
    let facts = &card.facts;
    vec![
        ("gpu", facts.index.map(|index| index.to_string()).unwrap_or_default()),
        ("UUID", facts.uuid.clone().unwrap_or_default()),
        ("pci_bus_id", facts.pci.to_string()),
        ("modelName", facts.product_name.clone().unwrap_or_default()),
    ]
}

fn partition_labels(profile: &str, gpu_instance: Option<u32>) -> Labels {
    let id = gpu_instance.map(|id| id.to_string()).unwrap_or_default();
    vec![("GPU_I_PROFILE", profile.to_owned()), ("GPU_I_ID", id)]
}

fn events((labels, card): &(Labels, &CardReport)) -> Vec<(Labels, ConstGauge<i64>)> {
    let events = card.look.clocks_events.into_iter().flat_map(ClocksEvents::each);
    let series = events.map(|(event, applies)| {
        let labels = [&labels[..], &[("clock_event", event.to_owned())]].concat();
        (labels, ConstGauge::new(i64::from(applies)))
    });
    series.collect()
}

fn partitions(card: &CardReport) -> Vec<(Labels, &PartitionLook)> {
    let series = card.look.partitions.iter().flatten().map(|partition| {
        let own =
            partition_labels(partition.profile.as_deref().unwrap_or_default(), Some(partition.gpu_instance));
        ([card_labels(card), own].concat(), partition)
    });
    series.collect()
}

/// A claim of several pods is one series, with all their names in `pod`. Otherwise sums would count the claim several
/// times.
fn devices<'a>(report: &Report, claim: &'a ClaimReport) -> Vec<(Labels, &'a DeviceReport)> {
    let pods: Vec<&str> = claim.pods.iter().map(|pod| &*pod.name).collect();
    let series = claim.devices.iter().map(|device| {
        let of_card = report.card(device.card).map(card_labels).unwrap_or_else(|| {
            vec![("UUID", device.card_uuid.clone()), ("pci_bus_id", device.card.to_string())]
        });
        let of_claim = vec![
            ("namespace", claim.namespace.clone()),
            ("pod", pods.join(",")),
            ("claim", claim.name.clone()),
            ("device", device.device.clone()),
        ];
        let partition = device.partition.as_ref().map(|(profile, id)| partition_labels(profile, *id));
        ([of_claim, of_card, partition.unwrap_or_default()].concat(), device)
    });
    series.collect()
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use tessera_inventory::machine::Card;
    use tessera_journal::ClaimPod;

    use super::*;
    use crate::usage::look::Look;

    fn told(report: Report) -> String {
        let mut registry = Registry::with_prefix("tessera");
        let (_sender, report) = watch::channel(Some(Arc::new(report)));
        registry.register_collector(Box::new(UsageCollector::new(report)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    fn card() -> CardReport {
        let facts = Card {
            index: Some(3),
            uuid: Some("GPU-1".into()),
            product_name: Some("NVIDIA \"H100\"\n\\ HBM3".into()),
            ..Card::new("0000:3b:00.0".parse().unwrap())
        };
        let look = Look {
            power_watts: Some(68.57),
            energy_millijoules: Some(12),
            clocks_events: Some(ClocksEvents(4)),
            partitions: Some(vec![PartitionLook {
                gpu_instance: 7,
                profile: Some("1g.10gb".into()),
                activity: crate::usage::look::Shares { sm: Some(0.5), ..Default::default() },
                ..PartitionLook::default()
            }]),
            ..Look::default()
        };
        CardReport { facts, look, allocated: 0.25 }
    }

    #[test]
    fn names_labels_and_units() {
        let device = DeviceReport {
            device: "gpu-3b-00-mig-1g10gb-0".into(),
            card: "0000:3b:00.0".parse().unwrap(),
            card_uuid: "GPU-1".into(),
            partition: Some(("1g.10gb".into(), Some(7))),
            memory_granted: 10 << 30,
            is_unlimited: false,
            sm_granted: Some(0.125),
            memory_used: None,
            sm_activity: None,
        };
        let elsewhere = DeviceReport {
            device: "gpu-5e-00".into(),
            card: "0000:5e:00.0".parse().unwrap(),
            card_uuid: "GPU-2".into(),
            partition: None,
            ..device.clone()
        };
        let pod = |name: &str| ClaimPod { name: name.into(), uid: name.into() };
        let claim = ClaimReport {
            namespace: "team".into(),
            name: "train".into(),
            uid: "u".into(),
            pods: vec![pod("a"), pod("b")],
            devices: vec![device, elsewhere],
        };
        let text = told(Report { at: 5, cards: vec![card()], claims: vec![claim] });
        let of_card =
            r#"gpu="3",UUID="GPU-1",pci_bus_id="0000:3b:00.0",modelName="NVIDIA \"H100\"\n\\ HBM3""#;
        for line in [
            format!("tessera_gpu_power_watts{{{of_card}}} 68.57"),
            format!("tessera_gpu_energy_millijoules_total{{{of_card}}} 12"),
            format!("tessera_gpu_memory_allocated_ratio{{{of_card}}} 0.25"),
            format!("tessera_gpu_clocks_event{{{of_card},clock_event=\"power_cap\"}} 1"),
            format!("tessera_gpu_clocks_event{{{of_card},clock_event=\"gpu_idle\"}} 0"),
            format!("tessera_partition_sm_activity_ratio{{{of_card},GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"7\"}} 0.5"),
            format!(
                "tessera_claim_memory_granted_mib{{namespace=\"team\",pod=\"a,b\",claim=\"train\",\
                 device=\"gpu-3b-00-mig-1g10gb-0\",{of_card},GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"7\"}} 10240.0"
            ),
            "tessera_claim_sm_granted_ratio{namespace=\"team\",pod=\"a,b\",claim=\"train\",device=\"gpu-5e-00\",\
             UUID=\"GPU-2\",pci_bus_id=\"0000:5e:00.0\"} 0.125"
                .to_owned(),
        ] {
            assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
        }
        assert!(!text.contains("memory_used") && !text.contains("temperature"), "absent is not zero: {text}");
    }

    #[test]
    fn what_is_gone_has_no_series() {
        let text = told(Report::default());
        assert_eq!(text, "# EOF\n");
    }
}
