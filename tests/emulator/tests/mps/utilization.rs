//! Who keeps a card busy, as the driver tells it.

use std::collections::BTreeSet;
use std::process::Command;

use crate::client::Client;
use crate::daemon::{Machine, until};

/// What `nvidia-smi` says of the first card, percent.
fn utilization(machine: &Machine) -> String {
    let query = ["-i", "0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"];
    let output = machine.program("nvidia-smi").args(query).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_cards_utilization_is_that_of_its_clients() {
    let machine = Machine::new("t4");
    machine.start();
    let (mut one, mut other) = (Client::start(&machine, &[]), Client::start(&machine, &[]));
    assert_eq!(utilization(&machine), "0");
    assert_eq!(one.order("busy 30")["busyPercent"], 30);
    assert_eq!(other.order("busy 45")["busyPercent"], 45);
    one.order("allocate 100");
    assert_eq!(utilization(&machine), "75", "memory makes nobody idle");
    one.order("busy 100");
    assert_eq!(utilization(&machine), "100");
    let processes = machine.card(0)["processes"].clone();
    let busy: Vec<(&str, u64)> = processes
        .as_array()
        .unwrap()
        .iter()
        .map(|process| (process["kind"].as_str().unwrap(), process["busyPercent"].as_u64().unwrap()))
        .collect();
    assert_eq!(busy, [("compute", 0), ("mps", 100), ("mps", 45)]);
    drop(one);
    until("the other alone", || utilization(&machine) == "45");
    drop(other);
    until("idle", || utilization(&machine) == "0");
}

#[test]
fn without_mps_too() {
    let machine = Machine::new("t4");
    let mut one = Client::start(&machine, &[]);
    one.order("busy 60");
    assert_eq!(utilization(&machine), "60");
    one.order("busy 0");
    assert_eq!(utilization(&machine), "0");
    let held = machine.program("cuda-sample").args(["--allocate-mib", "1", "--busy", "20"]).output().unwrap();
    assert!(String::from_utf8_lossy(&held.stdout).contains("\"busyPercent\":20"));
    let wrong = machine.program("cuda-sample").args(["--busy", "101"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

/// Containers have process namespaces of their own, where programs have the same numbers. NVML tells those of its caller's, by which the
/// plugin finds their pods.
#[test]
fn processes_of_containers_have_the_numbers_of_the_node() {
    let machine = Machine::new("t4");
    let contained = |command: &mut Command| {
        let mut contained = Command::new("unshare");
        contained
            .args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .arg(command.get_program());
        contained.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        contained
    };
    let mut both: Vec<Client> =
        (0..2).map(|_| Client::start_as(contained(&mut machine.program("cuda-sample")))).collect();
    both.iter_mut().for_each(|client| drop(client.order("busy 10")));
    let told = machine.program("nvidia-smi").args(["-q", "-x"]).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let pids = told.lines().filter_map(|line| line.trim().strip_prefix("<pid>")?.strip_suffix("</pid>"));
    let told: BTreeSet<u64> = pids.map(|pid| pid.parse().unwrap()).collect();
    // The only child of each `unshare`.
    let child = |client: &Client| {
        let id = client.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.trim().parse::<u64>().unwrap()
    };
    assert_eq!(told, both.iter().map(child).collect());
}
