//! What cards do: on every machine, while programs run, and where single figures fail.

use std::thread::sleep;
use std::time::Duration;

use tessera_nvml::{Activity, CardTelemetry, Library, Nvml, NvmlError, PciBusId, Placement};

use crate::machine::{EmulatedMachine, hardware};

fn open(hardware: &str) -> (EmulatedMachine, Library, PciBusId) {
    let machine = EmulatedMachine::new(hardware);
    let library = Library::open_below(&machine.root()).unwrap();
    let card = library.addresses().unwrap()[0].clone().unwrap();
    (machine, library, card)
}

/// The figures that failed, and those that are absent.
fn errors_and_absent(card: &CardTelemetry) -> (Vec<&'static str>, Vec<&'static str>) {
    fn sort<T>(reading: &tessera_nvml::Reading<T>) -> Result<bool, &NvmlError> {
        reading.as_ref().map(Option::is_some)
    }
    let figures = [
        ("memory", sort(&card.memory)),
        ("utilization", sort(&card.utilization)),
        ("power", sort(&card.power_milliwatts)),
        ("energy", sort(&card.energy_millijoules)),
        ("temperature", sort(&card.temperature_celsius)),
        ("memory temperature", sort(&card.memory_temperature_celsius)),
        ("SM clock", sort(&card.sm_clock_megahertz)),
        ("memory clock", sort(&card.memory_clock_megahertz)),
        ("clocks events", sort(&card.clocks_events)),
        ("PCIe sent", sort(&card.pcie_sent_kilobytes_per_second)),
        ("PCIe received", sort(&card.pcie_received_kilobytes_per_second)),
        ("NVLink sent", sort(&card.nvlink_sent_kibibytes)),
        ("NVLink received", sort(&card.nvlink_received_kibibytes)),
        ("processes", sort(&card.processes)),
        ("process utilization", sort(&card.process_utilization)),
        ("partitions", sort(&card.partitions)),
    ];
    let named = |wanted: &dyn Fn(&Result<bool, &NvmlError>) -> bool| -> Vec<&'static str> {
        figures.iter().filter(|(_, figure)| wanted(figure)).map(|(name, _)| *name).collect()
    };
    (named(&|figure| figure.is_err()), named(&|figure| matches!(figure, Ok(false))))
}

#[test]
fn every_machine_tells_everything_that_its_cards_have() {
    for name in hardware() {
        let (machine, library, card) = open(&name);
        let (errors, absent) = errors_and_absent(&library.telemetry(card, 0).unwrap());
        assert_eq!(errors, [""; 0], "{name}");
        let facts = &machine.cards()[0];
        let mut expected = Vec::new();
        if facts["board"]["memoryTemperatureCelsius"].is_null() {
            expected.push("memory temperature");
        }
        if facts["links"].as_array().unwrap().is_empty() {
            expected.extend(["NVLink sent", "NVLink received"]);
        }
        expected.push("partitions");
        assert_eq!(absent, expected, "{name}");
        let has_gpm = ["Hopper", "Blackwell"].contains(&facts["board"]["architecture"].as_str().unwrap());
        assert_eq!(library.gpm_sample(card, None).unwrap().is_some(), has_gpm, "{name}");
    }
}

#[test]
fn a_program_moves_every_figure() {
    let (machine, library, card) = open("hgx-h100-80gb");
    let idle = library.telemetry(card, 0).unwrap();
    machine.let_happen("process add --card 0 --pid 4711 --memory-mib 2048 --busy 50");
    let before = library.gpm_sample(card, None).unwrap().unwrap();
    sleep(Duration::from_millis(1100));
    let busy = library.telemetry(card, 0).unwrap();
    let activity = library.gpm_sample(card, None).unwrap().unwrap().activity_since(&before).unwrap();

    let number = |reading: &tessera_nvml::Reading<u32>| reading.clone().unwrap().unwrap();
    let used = |card: &CardTelemetry| card.memory.clone().unwrap().unwrap().used;
    assert_eq!(used(&busy) - used(&idle), 2048 << 20);
    assert_eq!(busy.utilization.clone().unwrap().unwrap().gpu, 50);
    for figure in [
        |card: &CardTelemetry| card.power_milliwatts.clone(),
        |card: &CardTelemetry| card.temperature_celsius.clone(),
        |card: &CardTelemetry| card.sm_clock_megahertz.clone(),
        |card: &CardTelemetry| card.pcie_sent_kilobytes_per_second.clone(),
        |card: &CardTelemetry| card.pcie_received_kilobytes_per_second.clone(),
    ] {
        assert!(number(&figure(&busy)) > number(&figure(&idle)));
    }
    for figure in [
        |card: &CardTelemetry| card.energy_millijoules.clone(),
        |card: &CardTelemetry| card.nvlink_sent_kibibytes.clone(),
        |card: &CardTelemetry| card.nvlink_received_kibibytes.clone(),
    ] {
        assert!(figure(&busy).unwrap().unwrap() > figure(&idle).unwrap().unwrap());
    }
    let events = |card: &CardTelemetry| card.clocks_events.clone().unwrap().unwrap().0;
    assert_eq!((events(&idle), events(&busy)), (1, 0));
    let processes = busy.processes.unwrap().unwrap();
    assert_eq!(processes[0].pid, 4711);
    let of_process = busy.process_utilization.unwrap().unwrap();
    assert_eq!((of_process[0].pid, of_process[0].sm_percent), (4711, 50));
    assert_eq!(library.telemetry(card, u64::MAX - 1).unwrap().process_utilization, Ok(Some(Vec::new())));
    is_near(&activity, 0.5);

    // Without load its energy grows more slowly, but never goes back.
    machine.let_happen("process remove --card 0 --pid 4711");
    let later = library.telemetry(card, 0).unwrap().energy_millijoules.unwrap().unwrap();
    assert!(later >= busy.energy_millijoules.unwrap().unwrap());
    machine.let_happen("reset --card 0");
    let reset = library.telemetry(card, 0).unwrap().energy_millijoules.unwrap().unwrap();
    assert!(reset < later, "{reset} after a reset, {later} before");
}

fn is_near(activity: &Activity, sm: f64) {
    let value = |reading: &tessera_nvml::Reading<f64>| reading.clone().unwrap().unwrap();
    assert!((value(&activity.sm) - sm).abs() < 0.02, "{activity:?}");
    assert!((value(&activity.tensor) - sm / 4.0).abs() < 0.02, "{activity:?}");
    assert!((value(&activity.sm_occupancy) - sm / 2.0).abs() < 0.02, "{activity:?}");
    assert!((value(&activity.memory) - sm * 0.4).abs() < 0.02, "{activity:?}");
}

#[test]
fn partitions_tell_of_themselves() {
    let (machine, library, card) = open("hgx-h100-80gb");
    library.set_mig_mode(card, true).unwrap();
    let profiles = library.gpu_instance_profiles(card).unwrap().unwrap();
    let profile = profiles.iter().find(|profile| profile.name == "1g.10gb").unwrap();
    let mut instances = Vec::new();
    for start in [0, 4] {
        let made = library.create_gpu_instance(card, profile.id, Placement { start, size: 1 }).unwrap();
        library.create_compute_instance(card, made.id, 0).unwrap();
        instances.push(made.id);
    }
    machine.let_happen(&format!(
        "process add --card 0 --pid 7 --memory-mib 512 --busy 80 --gpu-instance {} --compute-instance 0",
        instances[1]
    ));
    let busy = Some(instances[1]);
    assert_eq!(library.gpm_sample(card, None).unwrap().map(|_| ()), None, "the card as a whole");
    let before = library.gpm_sample(card, busy).unwrap().unwrap();
    let of_other = library.gpm_sample(card, Some(instances[0])).unwrap().unwrap();
    sleep(Duration::from_millis(300));
    let after = library.gpm_sample(card, busy).unwrap().unwrap();
    is_near(&after.activity_since(&before).unwrap(), 0.8);
    assert!(after.activity_since(&of_other).is_err(), "of two instances");
    let other = library.gpm_sample(card, Some(instances[0])).unwrap().unwrap();
    is_near(&other.activity_since(&of_other).unwrap(), 0.0);

    let telemetry = library.telemetry(card, 0).unwrap();
    assert_eq!(telemetry.utilization, Ok(None));
    assert_eq!(telemetry.process_utilization, Ok(None));
    let partitions = telemetry.partitions.unwrap().unwrap();
    assert_eq!(partitions.len(), 2);
    for partition in &partitions {
        let memory = partition.memory.clone().unwrap().unwrap();
        let used = if partition.gpu_instance == instances[1] { 512 << 20 } else { 0 };
        assert_eq!((memory.total >> 20, memory.used), (profile.memory_bytes >> 20, used));
        assert_eq!(partition.profile, Ok(Some("1g.10gb".to_owned())));
        assert!(partition.uuid.as_ref().unwrap().starts_with("MIG-"));
    }
    let gone = library.gpm_sample(card, Some(99));
    assert!(gone.is_err(), "{gone:?}");
}

#[test]
fn a_figure_that_fails_costs_no_other() {
    let (machine, library, card) = open("hgx-a100-80gb");
    for (call, failing) in [
        ("nvmlDeviceGetMemoryInfo", "memory"),
        ("nvmlDeviceGetUtilizationRates", "utilization"),
        ("nvmlDeviceGetPowerUsage", "power"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy"),
        ("nvmlDeviceGetTemperature", "temperature"),
        ("NVML_FI_DEV_MEMORY_TEMP", "memory temperature"),
        ("NVML_CLOCK_SM", "SM clock"),
        ("NVML_CLOCK_MEM", "memory clock"),
        ("nvmlDeviceGetCurrentClocksEventReasons", "clocks events"),
        ("NVML_PCIE_UTIL_TX_BYTES", "PCIe sent"),
        ("NVML_PCIE_UTIL_RX_BYTES", "PCIe received"),
        ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "NVLink sent"),
        ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", "NVLink received"),
        ("nvmlDeviceGetMPSComputeRunningProcesses", "processes"),
        ("nvmlDeviceGetProcessUtilization", "process utilization"),
        ("nvmlDeviceGetMigMode", "partitions"),
    ] {
        machine.let_happen(&format!("fault --call {call} --error UNKNOWN"));
        let (errors, _) = errors_and_absent(&library.telemetry(card, 0).unwrap());
        assert_eq!(errors, [failing], "{call}");
        machine.let_happen("restore");
    }
    machine.let_happen("lose --card 0");
    assert!(library.telemetry(card, 0).unwrap_err().is_card_gone());
}

#[test]
fn a_counter_that_fails_costs_no_other() {
    let (machine, library, card) = open("hgx-h100-80gb");
    let before = library.gpm_sample(card, None).unwrap().unwrap();
    sleep(Duration::from_millis(20));
    let after = library.gpm_sample(card, None).unwrap().unwrap();
    for (position, part) in ["SM_UTIL", "SM_OCCUPANCY", "ANY_TENSOR_UTIL", "DRAM_BW_UTIL"].iter().enumerate()
    {
        machine.let_happen(&format!("fault --call NVML_GPM_METRIC_{part} --error UNKNOWN"));
        let Activity { sm, sm_occupancy, tensor, memory } = after.activity_since(&before).unwrap();
        let failed = [sm, sm_occupancy, tensor, memory].map(|reading| reading.is_err());
        assert_eq!(failed, std::array::from_fn(|other| other == position), "{part}");
        machine.let_happen("restore");
    }
}
