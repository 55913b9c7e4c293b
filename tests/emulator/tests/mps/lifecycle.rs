//! How daemons and servers begin and end.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use crate::client::Client;
use crate::daemon::{Machine, kill, until};

#[test]
fn a_daemon_leaves_the_files_that_the_real_one_leaves() {
    let machine = Machine::new("t4");
    let nobody = machine.shell("get_server_list");
    assert_eq!(String::from_utf8_lossy(&nobody.stdout).trim(), "Cannot find MPS control daemon process");
    assert_eq!(nobody.status.code(), Some(1));
    assert!(machine.start().status.success());
    let mode = |name| fs::metadata(machine.pipe().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        ["control", "control_lock", "control_privileged", "log", "nvidia-cuda-mps-control.pid"].map(mode),
        [0o666, 0o666, 0o755, 0o777, 0o666]
    );
    let kind = |name| fs::metadata(machine.pipe().join(name)).unwrap().file_type();
    assert!(kind("control").is_socket() && kind("control_privileged").is_socket() && kind("log").is_fifo());
    let again = machine.start();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("An instance of this daemon is already running"));
    let log = fs::read_to_string(machine.log().join("control.log")).unwrap();
    assert!(log.contains("Starting control daemon using socket"), "{log}");

    assert_eq!(machine.order("quit"), "");
    assert_eq!(machine.pid(), None);
    assert!(machine.pipe().join("control").exists());
    assert_eq!(machine.order("get_server_list"), "Cannot find MPS control daemon process");
    assert!(machine.start().status.success(), "what a daemon left does not keep the next from starting");
}

#[test]
fn a_server_begins_with_the_first_client_or_by_order_and_holds_the_card() {
    let machine = Machine::new("t4");
    machine.start();
    assert_eq!(machine.order("get_server_list"), "");
    assert_eq!(machine.order("start_server -uid 0"), "");
    let server = machine.order("get_server_list");
    assert_eq!(machine.order(&format!("get_server_status {server}")), "ACTIVE");
    assert_eq!(machine.processes(), ["compute"]);
    let client = Client::start(&machine, &[]);
    assert_eq!(client.device["mpsServer"].to_string(), server);
    assert_eq!(machine.order(&format!("get_client_list {server}")), client.child.id().to_string());
    assert_eq!(machine.processes(), ["compute", "mps"]);
    drop(client);
    until("the client is gone", || machine.processes() == ["compute"]);
    assert_eq!(machine.order("quit"), "");
    assert_eq!(machine.processes(), [""; 0]);
}

#[test]
fn quit_waits_for_clients_or_ends_them_after_its_time() {
    let machine = Machine::new("t4");
    machine.start();
    let mut client = Client::start(&machine, &[]);
    let pid = machine.pid();
    assert_eq!(machine.order("quit -t 0"), "");
    assert_eq!(client.says()["error"], "CUDA_ERROR_MPS_RPC_FAILURE");
    assert_eq!(machine.pid(), None);
    assert!(!fs::exists(format!("/proc/{}", pid.unwrap())).unwrap_or(false) || machine.pid().is_none());
    assert_eq!(machine.processes(), [""; 0]);

    machine.start();
    let client = Client::start(&machine, &[]);
    std::thread::scope(|scope| {
        let quit = scope.spawn(|| machine.order("quit"));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!quit.is_finished(), "a client is there");
        drop(client);
        assert_eq!(quit.join().unwrap(), "");
    });
}

#[test]
fn a_dead_servers_clients_are_lost_and_the_next_client_gets_another() {
    let machine = Machine::new("t4");
    machine.start();
    let mut client = Client::start(&machine, &[]);
    client.order("allocate 100");
    kill(client.device["mpsServer"].as_i64().unwrap() as i32);
    assert_eq!(client.says()["error"], "CUDA_ERROR_MPS_RPC_FAILURE");
    until("the dead are off the card", || machine.processes().is_empty());
    let next = Client::start(&machine, &[]);
    assert_ne!(next.device["mpsServer"], client.device["mpsServer"]);
}

#[test]
fn clients_of_a_dead_daemon_go_on_and_nobody_new_comes() {
    let machine = Machine::new("t4");
    machine.start();
    let mut client = Client::start(&machine, &[]);
    kill(machine.pid().unwrap());
    until("the daemon is gone", || machine.order("get_server_list").starts_with("Cannot find"));
    assert_eq!(client.order("allocate 10")["holdsMiB"], 10);
    assert_eq!(machine.processes(), ["compute", "mps"]);
    drop(client);
    until("the server has ended after its last client", || machine.processes().is_empty());
}

#[test]
fn one_faulting_client_ends_all_and_then_the_server_takes_new_ones() {
    let machine = Machine::new("t4");
    machine.start();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::start(&machine, &[])).collect();
    assert_eq!(clients[1].order("fault")["error"], "CUDA_ERROR_LAUNCH_FAILED");
    assert_eq!(clients[0].says()["error"], "CUDA_ERROR_LAUNCH_FAILED");
    assert_eq!(clients[2].says()["error"], "CUDA_ERROR_LAUNCH_FAILED");
    until("all are gone", || machine.processes() == ["compute"]);
    let next = Client::start(&machine, &[]);
    assert_eq!(next.device["mpsServer"], clients[0].device["mpsServer"]);
}

#[test]
fn after_a_fault_nobody_new_comes_until_all_processes_have_ended() {
    let machine = Machine::new("t4");
    machine.start();
    let (mut notebook, mut faulty) = (Client::start(&machine, &[]), Client::start(&machine, &[]));
    notebook.order("linger");
    assert_eq!(faulty.order("fault")["error"], "CUDA_ERROR_LAUNCH_FAILED");
    assert_eq!(notebook.says()["error"], "CUDA_ERROR_LAUNCH_FAILED");
    drop(faulty);
    let server = machine.order("get_server_list");
    let status = format!("get_server_status {server}");
    let only = || machine.order(&format!("get_client_list {server}")) == notebook.child.id().to_string();
    until("the other has gone", only);
    assert_eq!(machine.order(&status), "FAULT");
    assert_eq!(Client::start(&machine, &[]).device["error"], "CUDA_ERROR_MPS_SERVER_NOT_READY");
    assert_eq!(machine.processes(), ["compute", "mps"], "its process is still there");
    drop(notebook);
    until("the server has recovered", || machine.order(&status) == "ACTIVE");
    assert_eq!(Client::start(&machine, &[]).device["mpsServer"].to_string(), server);
}

#[test]
fn once_quit_is_answered_the_next_daemon_starts() {
    let machine = Machine::new("t4");
    for round in 0..30 {
        let started = machine.start();
        assert!(started.status.success(), "{round}: {}", String::from_utf8_lossy(&started.stderr));
        assert_eq!(machine.order("quit"), "");
    }
}
