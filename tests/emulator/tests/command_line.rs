//! `gpu-emulator` and the stub `nvidia-smi`, as people and scripts use them.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Output};

fn emulator(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-emulator")).args(arguments).output().expect("gpu-emulator runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes a machine in `directory`.
fn create(directory: &Path, arguments: &[&str]) -> String {
    let path = directory.display().to_string();
    let output = emulator(&[&["create", &path], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    path
}

fn smi(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(directory.join("bin/nvidia-smi")).args(arguments).output().expect("nvidia-smi runs")
}

#[test]
fn help_has_examples_and_exit_codes() {
    let help = text(&emulator(&["--help"]).stdout);
    for part in ["Examples:", "LD_LIBRARY_PATH", "Exit status"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    for command in [
        "create",
        "node",
        "fault",
        "xid",
        "lose",
        "restore",
        "process",
        "utilization",
        "reboot",
        "show",
        "link",
        "reset",
        "partition-time",
    ] {
        let output = emulator(&[command, "--help"]);
        assert!(output.status.success(), "{command}");
    }
}

#[test]
fn every_machine_is_listed_with_its_sources() {
    let listed = text(&emulator(&["hardware"]).stdout);
    let json: serde_json::Value =
        serde_json::from_slice(&emulator(&["hardware", "-o", "json"]).stdout).expect("JSON");
    for machine in json["machines"].as_array().expect("machines") {
        let name = machine["name"].as_str().expect("a name");
        assert!(listed.contains(name), "{name}");
        let sources = machine["sources"]["board"].as_object().expect("sources");
        assert!(sources.contains_key("memoryTotalMiB"), "{name}");
    }
}

#[test]
fn what_cannot_be_made_is_said_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().display().to_string();
    let refused = |arguments: &[&str], says: &str| {
        let output = emulator(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
        assert!(!directory.path().join("state").exists(), "nothing is left behind");
    };
    refused(&["create", &path, "--hardware", "hgx"], "hgx-h100-80gb");
    refused(&["create", &path, "--hardware", "t4", "--cards", "65"], "between 1 and 64");
    refused(&["create", &path, "--hardware", "t4", "--driver-version", "new"], "580.105.08");
    refused(&["create", &path, "--hardware", "t4", "--driver-version", "333.1"], "--cuda-version");
    refused(&["create", &path, "--hardware", "t4", "--clique", "1"], "NVLink fabric");
    refused(&["create", &path, "--hardware", "gb200-tray", "--cluster-uuid", "x"], "UUID such as");
    refused(&["create", "/proc/nowhere", "--hardware", "t4"], "/proc/nowhere");
    refused(&["show", &path], "gpu-emulator create");
    create(directory.path(), &["--hardware", "t4"]);
    let again = emulator(&["create", &path, "--hardware", "t4"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("holds an emulated machine already"));
}

#[test]
fn a_creation_that_was_cut_short_can_be_done_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    create(directory.path(), &["--hardware", "t4"]);
    std::fs::remove_file(directory.path().join("state/machine.json")).expect("removed");
    create(directory.path(), &["--hardware", "hgx-h100-80gb"]);
    assert_eq!(text(&smi(directory.path(), &["-L"]).stdout).lines().count(), 8);
}

#[test]
fn nodes_are_devices_with_the_drivers_numbers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    create(directory.path(), &["--hardware", "hgx-a100-80gb"]);
    let node = directory.path().join("dev/nvidia7");
    let kind = node.metadata().expect("it is there").file_type();
    // Without root they are plain files, which creation says.
    if rustix::process::geteuid().is_root() {
        assert!(kind.is_char_device());
        let device = rustix::fs::stat(&node).expect("it is there").st_rdev;
        assert_eq!((rustix::fs::major(device), rustix::fs::minor(device)), (195, 7));
    } else {
        assert!(kind.is_file());
    }
}

#[test]
fn two_seeds_make_two_machines() {
    let uuids = |seed: &str| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        create(directory.path(), &["--hardware", "hgx-h100-80gb", "--seed", seed]);
        text(&smi(directory.path(), &["-L"]).stdout)
    };
    assert_eq!(uuids("a"), uuids("a"));
    assert_ne!(uuids("a"), uuids("b"));
}

#[test]
fn the_stub_prints_what_scripts_ask_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = create(directory.path(), &["--hardware", "l40s-x8"]);
    assert!(
        emulator(&["process", "add", &path, "--card", "1", "--pid", "4711", "--memory-mib", "100"])
            .status
            .success()
    );
    let fields =
        ["--query-gpu=index,name,memory.used,memory.total,mig.mode.current", "--format=csv,noheader"];
    let rows = text(&smi(directory.path(), &fields).stdout);
    assert_eq!(rows.lines().nth(1), Some("1, NVIDIA L40S, 100 MiB, 46068 MiB, [N/A]"));
    let one =
        text(&smi(directory.path(), &["-i", "3", "--query-gpu=uuid,pci.bus_id", "--format=csv"]).stdout);
    assert_eq!(one.lines().count(), 2, "{one}");
    assert!(one.starts_with("uuid, pci.bus_id\nGPU-"), "{one}");
    let xml = text(&smi(directory.path(), &["-q", "-x"]).stdout);
    assert_eq!(xml.matches("<gpu id=").count(), 8);
    assert!(xml.contains("<total>46068 MiB</total>") && xml.contains("<pid>4711</pid>"), "{xml}");
    let versions = text(&smi(directory.path(), &["--version"]).stdout);
    assert_eq!(
        versions.lines().collect::<Vec<_>>(),
        [
            "NVIDIA-SMI version  : 580.105.08",
            "NVML version        : 580.105",
            "DRIVER version      : 580.105.08",
            "CUDA Version        : 13.0"
        ]
    );
    let table = text(&smi(directory.path(), &[]).stdout);
    assert!(table.contains("4711") && table.contains("Driver Version: 580.105.08"), "{table}");
    let width = table.lines().map(str::len).max();
    assert!(table.lines().all(|line| Some(line.len()) == width), "{table}");
    let unknown = smi(directory.path(), &["--query-gpu=colour", "--format=csv"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("colour"));
}

#[test]
fn the_stub_says_what_the_library_says() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = create(directory.path(), &["--hardware", "t4"]);
    assert!(emulator(&["lose", &path, "--card", "0"]).status.success());
    let output = smi(directory.path(), &["-L"]);
    assert_eq!(output.status.code(), Some(15));
    assert!(text(&output.stderr).contains("GPU is lost"));
    std::fs::remove_dir_all(directory.path().join("state")).expect("removed");
    assert_eq!(smi(directory.path(), &["-L"]).status.code(), Some(9), "no driver");
}

/// A machine in a temporary directory.
fn machine(hardware: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    create(directory.path(), &["--hardware", hardware]);
    directory
}

/// Runs `nvidia-smi`, which must answer with that exit code, and gives what it says where.
fn said(directory: &Path, arguments: &[&str], code: i32) -> String {
    let output = smi(directory, arguments);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "nvidia-smi {arguments:?}: {out}{error}");
    if code == 0 { out } else { out + &error }
}

#[test]
fn an_admin_partitions_a_card_by_hand() {
    let directory = machine("hgx-h100-80gb");
    let node = directory.path();
    said(node, &["mig", "-lgip"], 6);
    let enabled = said(node, &["-i", "0", "-mig", "1"], 0);
    assert!(
        enabled.starts_with("Enabled MIG Mode for GPU 0000") && enabled.ends_with("All done.\n"),
        "{enabled}"
    );
    assert_eq!(said(node, &["mig", "-lgi"], 6), "No GPU instances found: Not Found\n");
    let placements = said(node, &["mig", "-i", "0", "-lgipp"], 0);
    assert!(placements.contains("GPU  0 Profile ID 15 Placements: {0,2,4,6}:2\n"), "{placements}");
    assert!(placements.contains("GPU  0 Profile ID  0 Placement : {0}:8\n"), "{placements}");
    let made = said(node, &["mig", "-cgi", "9:4,1g.10gb+me:0", "-C"], 0);
    assert_eq!(
        made,
        "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.40gb (ID  9)\n\
         Successfully created compute instance ID  0 on GPU  0 GPU instance ID  2 using profile MIG 3g.40gb (ID  2)\n\
         Successfully created GPU instance ID  7 on GPU  0 using profile MIG 1g.10gb+me (ID 20)\n\
         Successfully created compute instance ID  0 on GPU  0 GPU instance ID  7 using profile MIG 1g.10gb+me (ID  0)\n"
    );
    let profiles = said(node, &["mig", "-lgip"], 0);
    assert!(profiles.contains("MIG 1g.10gb         19     3/7"), "{profiles}");
    assert!(profiles.contains("MIG 1g.10gb+me      20     0/1"), "{profiles}");
    let instances = said(node, &["mig", "-lgi"], 0);
    assert!(instances.contains("|   0  MIG 3g.40gb            9        2          4:4     |"), "{instances}");
    let listed = said(node, &["-L"], 0);
    assert!(listed.contains("\n  MIG 3g.40gb     Device  0: (UUID: MIG-"), "{listed}");
    let refused = said(node, &["mig", "-cgi", "0"], 23);
    assert!(
        refused
            .ends_with("Unable to create a GPU instance on GPU  0 using profile 0: Insufficient Resources\n")
    );
    let busy = said(node, &["mig", "-dgi", "-gi", "2"], 19);
    assert_eq!(busy, "Unable to destroy GPU instance ID  2 from GPU  0: In use by another client\n");
    let gone = said(node, &["mig", "-dci", "-gi", "2"], 0);
    assert_eq!(gone, "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  2\n");
    said(node, &["mig", "-cci", "0,1c.3g.40gb", "-gi", "2"], 0);
    let compute = said(node, &["mig", "-lci"], 0);
    assert!(compute.contains("MIG 1c.3g.40gb        0         1         1:1"), "{compute}");
    let profiles = said(node, &["mig", "-lcip", "-gi", "2"], 0);
    let full = profiles.lines().find(|line| line.contains(" MIG 3g.40gb ")).expect("the full width");
    assert!(full.contains(" 2* ") && full.contains(" 0/1 "), "{profiles}");
    assert!(said(node, &["-q", "-x"], 0).contains("<gpu_instance_id>2</gpu_instance_id>"));
    assert!(said(node, &[], 0).contains("1c.3g.40gb"));
    let shown = text(&emulator(&["show", &node.display().to_string()]).stdout);
    assert!(shown.contains("1g.10gb+me") && shown.contains("1 at 1:1"), "{shown}");
    said(node, &["mig", "-dci"], 0);
    said(node, &["mig", "-dgi"], 0);
    said(node, &["-mig", "0"], 0);
    said(node, &["mig", "-dgi"], 6);
    for wrong in [&["mig"][..], &["mig", "-cgi"], &["-mig", "2"], &["mig", "-C"]] {
        said(node, wrong, 2);
    }
    said(node, &["-mig", "1"], 0);
    for wrong in ["77", "nonsense", "9:x", ""] {
        assert!(said(node, &["mig", "-cgi", wrong], 2).contains("-lgip"), "{wrong}");
    }
}

#[test]
fn an_ampere_says_that_its_mode_waits() {
    let directory = machine("a30-x2");
    let pending = said(directory.path(), &["-i", "0", "-mig", "1"], 0);
    assert!(pending.starts_with("Warning: MIG mode is in pending enable state for GPU 0000"), "{pending}");
    assert!(pending.contains("GPU requires reset"), "{pending}");
    let fields = ["-i", "0", "--query-gpu=mig.mode.current,mig.mode.pending", "--format=csv,noheader"];
    assert_eq!(said(directory.path(), &fields, 0), "Disabled, Enabled\n");
}

#[test]
fn an_xml_log_says_what_kind_of_card_it_is_and_in_which_fabric() {
    let directory = machine("gb200-tray");
    let log = said(directory.path(), &["-q", "-x"], 0);
    for element in [
        "<product_brand>NVIDIA</product_brand>",
        "<product_architecture>Blackwell</product_architecture>",
        "<addressing_mode>ATS</addressing_mode>",
        "<mig_devices>None</mig_devices>",
        "<state>Completed</state>",
        "<cliqueId>2</cliqueId>",
    ] {
        assert_eq!(log.matches(element).count(), 4, "{element} in {log}");
    }
    let log = said(machine("a30-x2").path(), &["-q", "-x"], 0);
    assert!(
        log.contains("<addressing_mode>N/A</addressing_mode>")
            && log.contains("<clusterUuid>N/A</clusterUuid>")
    );
}

#[test]
fn whoever_stops_reading_ends_the_program_quietly() {
    for arguments in [&["hardware", "-o", "json"][..], &["hardware"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gpu-emulator"))
            .args(arguments)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("gpu-emulator runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn an_error_is_one_line_whatever_the_environment_asks_for() {
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-emulator"))
        .args(["show", "/nonexistent"])
        .env("RUST_BACKTRACE", "full")
        .output()
        .expect("gpu-emulator runs");
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
}

#[test]
fn a_node_becomes_a_machine_once_and_never_beside_real_cards() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (machine, sysfs) = (directory.path().join("machine"), directory.path().join("sys"));
    let device = sysfs.join("bus/pci/devices/0000:3b:00.0");
    std::fs::create_dir_all(&device).expect("sysfs");
    let path = machine.display().to_string();
    let sysfs = sysfs.display().to_string();
    let node = |hardware: &str| {
        emulator(&[
            "node",
            &path,
            "--hardware",
            hardware,
            "--seed",
            "node-a",
            "--cards",
            "2",
            "--sysfs",
            &sysfs,
        ])
    };
    let refused = |hardware: &str, says: &str| {
        let output = node(hardware);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains(says), "{error}");
    };
    let card = |class: &str| {
        std::fs::write(device.join("vendor"), "0x10de\n").expect("a file");
        std::fs::write(device.join("class"), class).expect("a file");
    };
    card("0x030200\n");
    refused("t4", "a real NVIDIA card at 0000:3b:00.0");
    // An NVSwitch, or a card's audio function, is no card.
    card("0x068000\n");
    let made = node("t4");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let uuids = text(&smi(&machine, &["-L"]).stdout);
    assert_eq!(uuids.lines().count(), 2, "{uuids}");
    assert!(node("t4").status.success());
    assert_eq!(text(&smi(&machine, &["-L"]).stdout), uuids, "it stays as it was");
    refused("dgx-1v", "an emulated t4 already");
}

#[test]
fn a_machine_has_the_names_that_the_simulator_knows_it_by() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = create(directory.path(), &["--hardware", "dgx-h100"]);
    let again = emulator(&["node", &path, "--hardware", "hgx-h100-80gb", "--sysfs", "/nonexistent"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("hgx-h100-80gb, as it was"), "{}", text(&again.stdout));
    assert!(text(&emulator(&["hardware"]).stdout).contains("dgx-h100"));
}

#[test]
fn topology_is_shown_as_people_ask_for_it() {
    let row = |hardware: &str, card: usize| {
        let matrix = said(machine(hardware).path(), &["topo", "-m"], 0);
        let row = matrix.lines().nth(card + 1).expect("a row").to_owned();
        row.split('\t').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    let of_nvlink = row("hgx-h100-80gb", 0);
    assert_eq!(of_nvlink[..3], ["GPU0", "X", "NV18"], "{of_nvlink:?}");
    let of_pcie = row("l40s-x8", 7);
    assert!(of_pcie[0] == "GPU7" && of_pcie[1] == "SYS" && of_pcie[8] == "X", "{of_pcie:?}");
    said(machine("t4").path(), &["topo"], 2);
}

#[test]
fn a_reset_is_refused_while_a_card_is_used_and_ends_what_waits_for_it() {
    let directory = machine("a30-x2");
    let node = directory.path();
    let path = node.display().to_string();
    said(node, &["-i", "0", "-mig", "1"], 0);
    let process = ["process", "add", &path, "--card", "0", "--pid", "1"];
    assert!(emulator(&process).status.success());
    let refused = said(node, &["--gpu-reset", "-i", "0"], 19);
    assert!(refused.contains("currently in use by another process"), "{refused}");
    assert!(emulator(&["process", "remove", &path, "--card", "0", "--pid", "1"]).status.success());
    let bus_id = said(node, &["--query-gpu=pci.bus_id", "--format=csv,noheader", "-i", "0"], 0);
    let short = bus_id.trim().strip_prefix("0000").expect("a domain of eight digits").to_lowercase();
    let done = said(node, &["-r", "-i", &short], 0);
    assert!(done.contains(" was successfully reset.\nAll done."), "{done}");
    let modes = ["--query-gpu=mig.mode.current,pstate,clocks.max.sm", "--format=csv,noheader", "-i", "0"];
    assert!(said(node, &modes, 0).starts_with("Enabled, P"), "{}", said(node, &modes, 0));
}

/// A program that tells a reset by counters that begin anew sees one.
#[test]
fn what_an_xid_began_ends_with_restore() {
    let directory = machine("hgx-h100-80gb");
    let path = directory.path().display().to_string();
    let since = || {
        let state = std::fs::read(directory.path().join("state/state.json")).expect("the state");
        let state: serde_json::Value = serde_json::from_slice(&state).expect("JSON");
        [2, 3].map(|card: usize| state["cards"][card]["meter"]["since"].as_u64().unwrap_or_default())
    };
    assert!(emulator(&["xid", &path, "--card", "2", "79"]).status.success());
    assert_eq!(since(), [0, 0]);
    assert!(emulator(&["restore", &path]).status.success());
    let [reset, other] = since();
    assert!(reset > 0 && other == 0, "{reset} {other}");
}

/// In a container the library lies elsewhere, and only the cards that it was given have nodes: here, none has.
#[test]
fn a_library_outside_its_machine_finds_it_by_the_variable() {
    let directory = machine("t4");
    let container = tempfile::tempdir().expect("a temporary directory");
    let (bin, lib) = (container.path().join("bin"), container.path().join("lib"));
    std::fs::create_dir(&bin).expect("a directory");
    std::fs::create_dir(&lib).expect("a directory");
    std::fs::copy(directory.path().join("bin/nvidia-smi"), bin.join("nvidia-smi")).expect("copied");
    let library = "libnvidia-ml.so.1";
    std::fs::copy(directory.path().join("lib").join(library), lib.join(library)).expect("copied");
    assert_eq!(smi(container.path(), &["-L"]).status.code(), Some(9), "no machine");
    let outcome = Command::new(bin.join("nvidia-smi"))
        .args(["--query-gpu=count", "--format=csv,noheader"])
        .env("GPU_EMULATOR_MACHINE", directory.path())
        .output()
        .expect("nvidia-smi runs");
    assert!(outcome.status.success(), "{}", text(&outcome.stderr));
    let cards = usize::from(Path::new("/dev/nvidia0").exists());
    assert_eq!(text(&outcome.stdout).lines().filter(|line| !line.is_empty()).count(), cards);
}
