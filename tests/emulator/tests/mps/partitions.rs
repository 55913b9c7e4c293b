//! Static SM partitions.

use crate::client::Client;
use crate::daemon::Machine;

fn machine(cuda: &str) -> Machine {
    Machine::with("hgx-h100-80gb", &["--cuda-version", cuda])
}

/// Makes a partition; what `CUDA_MPS_SM_PARTITION` names it.
fn add(machine: &Machine, chunks: u32) -> String {
    let uuid = machine.uuid();
    let answer = machine.order(&format!("sm_partition add {uuid} {chunks}"));
    let name = answer.strip_prefix("Partition ").and_then(|rest| rest.strip_suffix(" created"));
    name.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// The rows of `lspart` below its headings.
fn rows(machine: &Machine) -> Vec<Vec<String>> {
    let text = machine.order("lspart");
    text.lines().skip(2).map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn a_client_has_the_multiprocessors_of_its_partition() {
    let machine = machine("13.1");
    machine.start_with(&["-S"]);
    assert_eq!(rows(&machine)[0][1..], ["15", "0", "132", "0"]);
    let (large, small) = (add(&machine, 10), add(&machine, 2));
    let environment = |name| {
        [
            ("CUDA_MPS_SM_PARTITION", name),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "1"),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"),
        ]
    };
    let mut one = Client::start(&machine, &environment(&large));
    let other = Client::start(&machine, &environment(&small));
    let again = Client::start(&machine, &environment(&small));
    assert_eq!((&one.device["multiprocessors"], &other.device["multiprocessors"]), (&80.into(), &16.into()));
    assert_eq!(again.device["multiprocessors"], 16, "several clients share a partition");
    assert_eq!(one.order("allocate 2049")["error"], "CUDA_ERROR_OUT_OF_MEMORY", "memory stays limited");

    let id = small.split_once('/').unwrap().1.to_owned();
    let uuid = machine.uuid();
    let remove = format!("sm_partition rm {uuid} {id}");
    assert!(machine.order(&remove).contains("in use. Terminate all clients before removing."));
    assert_eq!(rows(&machine)[2][1..], [&id, "2", "16", "Yes"]);
    drop((other, again));
    crate::daemon::until("without clients", || rows(&machine)[2][4] == "No");
    assert_eq!(machine.order(&remove), "");
    assert_eq!(rows(&machine).len(), 2);
    let gone = Client::start(&machine, &environment(&small));
    assert_eq!(gone.device["error"], "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION");
}

#[test]
fn without_a_partition_no_context() {
    let machine = machine("13.1");
    machine.start_with(&["-S"]);
    let client = Client::start(&machine, &[]);
    assert_eq!(client.device["error"], "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION");
    assert_eq!(client.device["code"], 914);
}

#[test]
fn a_fault_stays_in_its_partition_from_driver_610() {
    for (driver, is_contained) in [("590.48.01", false), ("610.43.02", true)] {
        let machine = Machine::with("hgx-h100-80gb", &["--driver-version", driver, "--cuda-version", "13.1"]);
        machine.start_with(&["-S"]);
        let names = [add(&machine, 2), add(&machine, 2)];
        let [mut faulty, mut other] =
            names.map(|name| Client::start(&machine, &[("CUDA_MPS_SM_PARTITION", name.as_str())]));
        assert_eq!(faulty.order("fault")["error"], "CUDA_ERROR_LAUNCH_FAILED");
        if is_contained {
            assert_eq!(other.order("allocate 10")["holdsMiB"], 10);
            let again = Client::start(&machine, &[("CUDA_MPS_SM_PARTITION", &other_name(&machine))]);
            assert_eq!(again.device["multiprocessors"], 16);
        } else {
            assert_eq!(other.says()["error"], "CUDA_ERROR_LAUNCH_FAILED");
        }
    }
}

fn other_name(machine: &Machine) -> String {
    format!("{}/{}", machine.uuid(), rows(machine)[2][1])
}

#[test]
fn older_drivers_and_other_daemons_have_none() {
    let old = machine("13.0");
    let output = old.start_with(&["-S"]);
    assert!(!output.status.success() && !output.stderr.is_empty());
    let ordinary = machine("13.1");
    ordinary.start();
    assert!(ordinary.order("lspart").contains("not enabled"));
}
