use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tessera_nvml::{
    CardTelemetry, Identity, PartitionTelemetry, ProcessKind, ProcessUtilization, Utilization,
};

use super::*;

/// A driver with this answer.
struct Answers(CardTelemetry);

impl Nvml for Answers {
    fn identify(&self, _address: PciBusId) -> Result<Identity, NvmlError> {
        Err(fails())
    }

    fn telemetry(&self, _address: PciBusId, _processes_since: u64) -> Result<CardTelemetry, NvmlError> {
        Ok(self.0.clone())
    }
}

const MEMORY: Memory = Memory { total: 80, used: 20, free: 50, reserved: 10 };

fn telemetry() -> CardTelemetry {
    let process = Process {
        pid: 7,
        kind: ProcessKind::Compute,
        used_memory: Some(20),
        gpu_instance: None,
        compute_instance: None,
    };
    CardTelemetry {
        memory: Ok(Some(MEMORY)),
        utilization: Ok(Some(Utilization { gpu: 30, memory: 10 })),
        power_milliwatts: Ok(Some(350_000)),
        energy_millijoules: Ok(Some(1000)),
        temperature_celsius: Ok(Some(55)),
        memory_temperature_celsius: Ok(Some(60)),
        sm_clock_megahertz: Ok(Some(1980)),
        memory_clock_megahertz: Ok(Some(2619)),
        clocks_events: Ok(Some(ClocksEvents(4))),
        pcie_sent_kilobytes_per_second: Ok(Some(1)),
        pcie_received_kilobytes_per_second: Ok(Some(2)),
        nvlink_sent_kibibytes: Ok(Some(3)),
        nvlink_received_kibibytes: Ok(Some(4)),
        processes: Ok(Some(vec![process])),
        process_utilization: Ok(Some(vec![ProcessUtilization { pid: 7, at: 1, sm_percent: 30 }])),
        partitions: Ok(Some(vec![PartitionTelemetry {
            gpu_instance: 3,
            uuid: Ok("MIG-1".to_owned()),
            profile: Ok(Some("1g.10gb".to_owned())),
            memory: Ok(Some(MEMORY)),
        }])),
    }
}

fn fails() -> NvmlError {
    NvmlError::Call { function: "nvmlDoes", code: 999, text: "Unknown Error".to_owned() }
}

/// The look at this telemetry, and the counts of failed figures.
fn seen(told: CardTelemetry, memory: &mut CardMemory) -> (Look, String) {
    let mut registry = Registry::default();
    let metrics = UsageMetrics::register(&mut registry);
    let card = PciBusId::new(0, 1, 0, 0).unwrap();
    let look = look(&Answers(told), card, Some("GPU-1"), memory, &metrics).unwrap();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let failures = text.lines().filter(|line| line.starts_with("usage_failures_total{"));
    (look, failures.collect::<Vec<_>>().join("\n"))
}

/// A figure, its failure, and the fields missing then.
type Case = (&'static str, fn(&mut CardTelemetry), fn(&mut Look));

const CASES: [Case; 18] = [
    ("memory", |told| told.memory = Err(fails()), |look| look.memory = None),
    ("utilization", |told| told.utilization = Err(fails()), |look| look.utilization = None),
    ("power", |told| told.power_milliwatts = Err(fails()), |look| look.power_watts = None),
    ("energy", |told| told.energy_millijoules = Err(fails()), |look| look.energy_millijoules = None),
    ("temperature", |told| told.temperature_celsius = Err(fails()), |look| look.temperature_celsius = None),
    (
        "memory_temperature",
        |told| told.memory_temperature_celsius = Err(fails()),
        |look| look.memory_temperature_celsius = None,
    ),
    ("sm_clock", |told| told.sm_clock_megahertz = Err(fails()), |look| look.sm_clock_megahertz = None),
    (
        "memory_clock",
        |told| told.memory_clock_megahertz = Err(fails()),
        |look| look.memory_clock_megahertz = None,
    ),
    ("clocks_events", |told| told.clocks_events = Err(fails()), |look| look.clocks_events = None),
    (
        "pcie_sent",
        |told| told.pcie_sent_kilobytes_per_second = Err(fails()),
        |look| look.pcie_sent_bytes_per_second = None,
    ),
    (
        "pcie_received",
        |told| told.pcie_received_kilobytes_per_second = Err(fails()),
        |look| look.pcie_received_bytes_per_second = None,
    ),
    ("nvlink_sent", |told| told.nvlink_sent_kibibytes = Err(fails()), |look| look.nvlink_sent_bytes = None),
    (
        "nvlink_received",
        |told| told.nvlink_received_kibibytes = Err(fails()),
        |look| look.nvlink_received_bytes = None,
    ),
    ("processes", |told| told.processes = Err(fails()), |look| look.processes = None),
    (
        "process_utilization",
        |told| told.process_utilization = Err(fails()),
        |look| look.processes.iter_mut().flatten().for_each(|process| process.sm = None),
    ),
    ("partitions", |told| told.partitions = Err(fails()), |look| look.partitions = None),
    (
        "partition_memory",
        |told| each_partition(told, |partition| partition.memory = Err(fails())),
        |look| look.partitions.iter_mut().flatten().for_each(|partition| partition.memory = None),
    ),
    (
        "partition_profile",
        |told| each_partition(told, |partition| partition.profile = Err(fails())),
        |look| look.partitions.iter_mut().flatten().for_each(|partition| partition.profile = None),
    ),
];

fn each_partition(told: &mut CardTelemetry, change: fn(&mut PartitionTelemetry)) {
    if let Ok(Some(partitions)) = &mut told.partitions {
        partitions.iter_mut().for_each(change);
    }
}

#[test]
fn each_figure_can_fail_by_itself_and_comes_back() {
    let (well, failures) = seen(telemetry(), &mut CardMemory::default());
    assert_eq!(failures, "");
    assert_eq!((well.power_watts, well.nvlink_sent_bytes), (Some(350.0), Some(3 * 1024)));
    for (figure, fail, leave_out) in CASES {
        let (mut told, mut wanted, mut memory) = (telemetry(), well.clone(), CardMemory::default());
        fail(&mut told);
        leave_out(&mut wanted);
        assert_ne!(wanted, well, "{figure}");
        let (look, failures) = seen(told, &mut memory);
        assert_eq!(look, wanted, "{figure}");
        assert_eq!(failures, format!("usage_failures_total{{figure=\"{figure}\"}} 1"));
        let (look, failures) = seen(telemetry(), &mut memory);
        assert_eq!((look, failures.as_str()), (well.clone(), ""), "{figure}");
    }
}

#[test]
fn what_grows_never_goes_back_for_readers() {
    let mut memory = CardMemory::default();
    let mut before = (0, 0, 0);
    // The driver begins anew, is wrong once, and comes to the end of its numbers.
    for count in [1000, 2000, 5, 10, 3, 20, u64::MAX, 7, 8] {
        let told = CardTelemetry {
            energy_millijoules: Ok(Some(count)),
            nvlink_sent_kibibytes: Ok(Some(count)),
            nvlink_received_kibibytes: Ok(Some(count)),
            ..telemetry()
        };
        let (look, _) = seen(told, &mut memory);
        let now = (
            look.energy_millijoules.unwrap(),
            look.nvlink_sent_bytes.unwrap(),
            look.nvlink_received_bytes.unwrap(),
        );
        assert!(now.0 >= before.0 && now.1 >= before.1 && now.2 >= before.2, "{before:?}, then {now:?}");
        before = now;
    }
}
