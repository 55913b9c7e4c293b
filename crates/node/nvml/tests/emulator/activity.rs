//! What runs on cards.

use tessera_nvml::{Library, Nvml, Process, ProcessKind, Utilization};

use crate::machine::EmulatedMachine;

#[test]
fn processes_and_utilization() {
    let machine = EmulatedMachine::new("a30-x2");
    let library = Library::open_below(&machine.root()).unwrap();
    let card = library.addresses().unwrap()[1].clone().unwrap();
    assert_eq!(library.processes(card), Ok(Some(Vec::new())));

    machine.let_happen("process add --card 1 --pid 4711 --memory-mib 512 --kind compute");
    machine.let_happen("process add --card 1 --pid 42 --memory-mib 256 --kind mps");
    machine.let_happen("utilization --card 1 --gpu 87 --memory 40");
    let process = |pid, kind, mebibytes: u64| Process {
        pid,
        kind,
        used_memory: Some(mebibytes << 20),
        gpu_instance: None,
        compute_instance: None,
    };
    assert_eq!(
        library.processes(card),
        Ok(Some(vec![process(42, ProcessKind::Mps, 256), process(4711, ProcessKind::Compute, 512)]))
    );
    assert_eq!(library.utilization(card), Ok(Some(Utilization { gpu: 87, memory: 40 })));
    assert_eq!(library.memory(card).unwrap().unwrap().used, 768 << 20);
    let other = library.addresses().unwrap()[0].clone().unwrap();
    assert_eq!(library.processes(other), Ok(Some(Vec::new())));
}

#[test]
fn more_processes_than_the_first_call_has_room_for() {
    let machine = EmulatedMachine::new("t4");
    let library = Library::open_below(&machine.root()).unwrap();
    let card = library.addresses().unwrap()[0].clone().unwrap();
    for pid in 1..=150 {
        machine.let_happen(&format!("process add --card 0 --pid {pid}"));
    }
    let pids: Vec<u32> =
        library.processes(card).unwrap().unwrap().iter().map(|process| process.pid).collect();
    assert_eq!(pids, (1..=150).collect::<Vec<_>>());
}
