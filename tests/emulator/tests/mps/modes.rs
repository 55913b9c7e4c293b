//! Compute modes and time slices.

use crate::client::Client;
use crate::daemon::Machine;

#[test]
fn an_exclusive_card_lets_one_process_in_or_one_server() {
    let machine = Machine::new("t4");
    assert!(machine.program("nvidia-smi").args(["-c", "EXCLUSIVE_PROCESS"]).status().unwrap().success());
    assert_eq!(machine.card(0)["computeMode"], 3);
    let alone = Client::start(&machine, &[]);
    assert!(alone.device["mpsServer"].is_null());
    assert_eq!(Client::start(&machine, &[]).device["error"], "CUDA_ERROR_DEVICE_UNAVAILABLE");
    machine.start();
    assert!(machine.order("start_server -uid 0").contains("in use"));
    drop(alone);
    assert_eq!(machine.order("start_server -uid 0"), "");
    let client = Client::start(&machine, &[]);
    assert!(client.device["mpsServer"].is_u64());
    let without = Client::start(&machine, &[("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")]);
    assert_eq!(without.device["error"], "CUDA_ERROR_DEVICE_UNAVAILABLE", "past the server there is no way");
}

#[test]
fn a_killed_process_leaves_its_card() {
    let machine = Machine::new("t4");
    let mut client = Client::start(&machine, &[]);
    client.order("allocate 1000");
    assert_eq!(machine.processes(), ["compute"]);
    drop(client);
    crate::daemon::until("it is off the card", || machine.processes().is_empty());
}

#[test]
fn time_slices_are_set_by_card_where_the_card_has_them() {
    let machine = Machine::new("hgx-a100-80gb");
    let uuid = machine.card(0);
    assert_eq!(uuid["timeSlice"], 0);
    let policy = |arguments: &[&str]| {
        machine.program("nvidia-smi").arg("compute-policy").args(arguments).output().unwrap()
    };
    assert!(policy(&["-i", "2", "--set-timeslice", "3"]).status.success());
    assert_eq!(
        (machine.card(2)["timeSlice"].clone(), machine.card(1)["timeSlice"].clone()),
        (3.into(), 0.into())
    );
    let listed = policy(&["-i", "2", "-l"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("LONG"));
    assert_eq!(policy(&["--set-timeslice", "4"]).status.code(), Some(2));
}

#[test]
fn a_card_without_time_slices_refuses_in_the_words_of_the_real_tool() {
    let machine = Machine::new("p4");
    let set =
        machine.program("nvidia-smi").args(["compute-policy", "-i", "0", "--set-timeslice", "1"]).output();
    let set = set.unwrap();
    assert_eq!(set.status.code(), Some(3));
    let said = [set.stdout, set.stderr].concat();
    assert_eq!(
        String::from_utf8_lossy(&said).trim(),
        "Failed to set timeslice policy with value Short for GPU 0 : Not Supported\n\
         Failed to set timeslice for requested devices : Not Supported"
    );
    assert_eq!(machine.card(0)["timeSlice"], 0);
}
