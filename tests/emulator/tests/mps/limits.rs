//! What clients may take.

use crate::client::Client;
use crate::daemon::Machine;

#[test]
fn memory_beyond_the_limit_is_refused_and_the_neighbour_goes_on() {
    let machine = Machine::new("t4");
    machine.start();
    let mut limited = Client::start(&machine, &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G")]);
    let mut neighbour = Client::start(&machine, &[]);
    assert_eq!(limited.device["memoryLimitMiB"], 2048);
    assert_eq!(limited.order("allocate 1024")["holdsMiB"], 1024);
    assert_eq!(limited.order("allocate 1024")["holdsMiB"], 2048);
    assert_eq!(limited.order("allocate 1")["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(neighbour.order("allocate 8000")["holdsMiB"], 8000);
    assert_eq!(neighbour.order("allocate 8000")["code"], 2, "the card has no more");
    assert_eq!(limited.order("free")["holdsMiB"], 0);
    let used = machine.card(0)["processes"].to_string();
    assert!(used.contains(&(8000_u64 << 20).to_string()), "{used}");
}

#[test]
fn a_client_only_tightens_what_the_daemon_sets() {
    let machine = Machine::new("t4");
    machine.start();
    assert_eq!(machine.order("get_default_device_pinned_mem_limit 0"), "");
    machine.order("set_default_device_pinned_mem_limit 0 1500M");
    machine.order("set_default_active_thread_percentage 50");
    assert_eq!(machine.order("get_default_device_pinned_mem_limit 0"), "1500M");
    assert_eq!(machine.order("get_default_active_thread_percentage"), "50.0");
    let limits = |memory, percentage| {
        let environment =
            [("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", memory), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage)];
        let client = Client::start(&machine, &environment);
        (client.device["memoryLimitMiB"].clone(), client.device["activeThreadPercentage"].clone())
    };
    assert_eq!(limits("0=4G", "80"), (1500.into(), 50.0.into()));
    assert_eq!(limits("0=1G", "25"), (1024.into(), 25.0.into()));
    // A server that runs keeps its limits until it is told other ones.
    machine.order("set_default_device_pinned_mem_limit 0 3G");
    assert_eq!(limits("0=4G", "80").0, 1500);
    let server = machine.order("get_server_list");
    machine.order(&format!("set_device_pinned_mem_limit {server} 0 3G"));
    machine.order(&format!("set_active_thread_percentage {server} 60"));
    assert_eq!(limits("0=4G", "80"), (3072.into(), 60.0.into()));
    for wrong in ["set_default_active_thread_percentage 0", "set_default_active_thread_percentage 101"] {
        assert!(machine.order(wrong).contains("Invalid"), "{wrong}");
    }
}

#[test]
fn a_client_reports_its_part_of_the_multiprocessors() {
    let machine = Machine::new("hgx-h100-80gb");
    machine.start();
    let client = Client::start(&machine, &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25")]);
    assert_eq!(client.device["multiprocessors"], 33);
}

#[test]
fn the_forty_ninth_client_is_refused() {
    let machine = Machine::new("t4");
    machine.start();
    let clients: Vec<Client> = (0..48).map(|_| Client::start(&machine, &[])).collect();
    let refused = Client::start(&machine, &[]);
    assert_eq!(refused.device["error"], "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED");
    assert!(clients.iter().all(|client| client.device["mpsServer"].is_u64()));
}

/// A seventh of a card takes a seventh of its clients; of the partition beside it they are no business.
#[test]
fn a_partition_takes_clients_by_its_compute_instance() {
    let machine = Machine::new("hgx-h100-80gb");
    let smi = |arguments: &[&str]| {
        let output = machine.program("nvidia-smi").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    };
    smi(&["-i", "0", "-mig", "1"]);
    smi(&["mig", "-i", "0", "-cgi", "1g.10gb,3g.40gb", "-C"]);
    let listed = smi(&["-L"]);
    for (profile, most) in [("1g.10gb", 48 / 7), ("3g.40gb", 48 * 3 / 7)] {
        let line = listed.lines().find(|line| line.contains(profile)).unwrap();
        let uuid = line.split_once("UUID: ").unwrap().1.trim_end_matches(')');
        let mut daemon = machine.program("nvidia-cuda-mps-control");
        assert!(daemon.args(["-d", "-M"]).env("CUDA_VISIBLE_DEVICES", uuid).status().unwrap().success());
        let clients: Vec<Client> = (0..most).map(|_| Client::start(&machine, &[])).collect();
        assert!(clients.iter().all(|client| client.device["mpsServer"].is_u64()), "{profile}");
        let refused = Client::start(&machine, &[]);
        assert_eq!(refused.device["error"], "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "{profile}");
        assert_eq!(refused.device["code"], 808, "{}", refused.device);
        drop(clients);
        assert_eq!(machine.order("quit"), "");
    }
}
