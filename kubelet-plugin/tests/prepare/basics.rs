//! Prepare and Unprepare of whole cards.

use std::fs;
use std::sync::Arc;

use serde_json::json;
use tessera_dra_kubelet::{ClaimReference, PreparedDevice};
use tessera_inventory::Machine;
use tessera_inventory::machine::Card;
use tessera_kubelet_plugin::prepare::{Operation, Phase, PrepareError};
use tessera_nvml::Architecture;

use crate::support::{Behaviour, Node, claim, names, prepare, result, unprepare};

fn device(request: &str, device: &str, claim: &ClaimReference) -> PreparedDevice {
    PreparedDevice {
        request_names: vec![request.into()],
        pool_name: "gpu.tessera.dev/node-a".into(),
        device_name: device.into(),
        cdi_device_ids: vec![format!("gpu.tessera.dev/claim={}-{device}", claim.uid)],
        share_id: None,
    }
}

/// The first device of a request, with the metadata of all the request's devices.
fn first_device(request: &str, name: &str, claim: &ClaimReference) -> PreparedDevice {
    let mut first = device(request, name, claim);
    first.cdi_device_ids.push(format!("gpu.tessera.dev/metadata={}_{request}", claim.uid));
    first
}

/// kubernetes/kubernetes#140212: the kubelet unprepares a claim still in use by another pod.
#[tokio::test]
async fn a_claim_is_not_undone_under_a_pod_that_runs() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    let uid = "0b4e5c1a-0d4f-4a6b-8c7d-9e0f1a2b3c4d";
    let reserved = |uid: &str| json!({"resource": "pods", "name": "train", "uid": uid});
    let devices = json!({"results": [result("gpus", "gpu-01-00-mig-1g10gb-0")]});
    let status =
        json!({"allocation": {"devices": devices}, "reservedFor": [reserved("ended"), reserved(uid)]});
    node.api.put_status(&claim, status);
    prepare(&preparer, &claim).await.unwrap();
    let cgroups = node.path().join("driver/sys/fs/cgroup");
    let pod = cgroups.join(format!("kubepods/pod{uid}"));
    fs::create_dir_all(&pod).unwrap();
    fs::write(cgroups.join("cgroup.controllers"), "").unwrap();
    fs::write(pod.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    let error = unprepare(&preparer, &claim).await.unwrap_err();
    assert!(matches!(error, PrepareError::PodsRun { .. }) && error.may_pass(), "{error}");
    assert!(error.to_string().contains("train"), "{error}");
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-a"]);

    // A pod's end never hangs on an unavailable API server.
    node.api.behave(Behaviour::Status(503, "away"));
    unprepare(&preparer, &claim).await.unwrap();
    node.api.behave(Behaviour::Good);
    prepare(&preparer, &claim).await.unwrap();
    fs::write(pod.join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
    unprepare(&preparer, &claim).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_claim_is_prepared_once_and_undone() {
    let node = Node::new(2);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus/big", "gpu-01-00"), ("gpus/big", "gpu-02-00")]);

    let expected = [first_device("gpus", "gpu-01-00", &claim), device("gpus", "gpu-02-00", &claim)];
    assert_eq!(prepare(&preparer, &claim).await.unwrap(), expected);
    let written = fs::metadata(node.record_path(&claim)).unwrap().modified().unwrap();
    let asked = node.cards.calls();
    assert_eq!(prepare(&preparer, &claim).await.unwrap(), expected);
    assert_eq!(fs::metadata(node.record_path(&claim)).unwrap().modified().unwrap(), written);
    assert_eq!(node.cards.calls(), asked + 2, "one look at each card, whether it is still the same");

    let spec = node.spec(&claim);
    assert_eq!(spec["kind"], "gpu.tessera.dev/claim");
    let found: Vec<_> = spec["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| {
            let mut edits = device["containerEdits"].clone();
            // Where the test may make device nodes.
            edits["deviceNodes"][0].as_object_mut().unwrap().remove("hostPath");
            (device["name"].clone(), edits)
        })
        .collect();
    let edits = |variable: &str, node: &str, minor: u32| json!({"env": [variable], "deviceNodes": [{"path": node, "type": "c", "major": 195, "minor": minor, "fileMode": 0o666}]});
    assert_eq!(
        found,
        [
            (json!("uid-a-gpu-01-00"), edits("GPU_DEVICE_01_00=GPU-0", "/dev/nvidia0", 0)),
            (json!("uid-a-gpu-02-00"), edits("GPU_DEVICE_02_00=GPU-1", "/dev/nvidia1", 1)),
        ]
    );
    assert_eq!(node.settled()["uid-a"].len(), 2);

    unprepare(&preparer, &claim).await.unwrap();
    assert!(node.settled().is_empty());
    unprepare(&preparer, &claim).await.unwrap();
}

#[tokio::test]
async fn the_record_holds_our_results_and_nothing_of_other_drivers() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    let mut foreign = result("nic", "nic-0");
    foreign["driver"] = "nic.example.com".into();
    foreign["pool"] = "secret-pool".into();
    node.api.put(&claim, vec![foreign, result("gpus", "gpu-01-00")]);
    assert_eq!(prepare(&preparer, &claim).await.unwrap(), [first_device("gpus", "gpu-01-00", &claim)]);
    let record = node.record(&claim);
    assert!(!record.to_string().contains("nic"), "{record}");
    assert_eq!((&record["namespace"], &record["name"]), (&json!("ns"), &json!("a")));
    assert_eq!(record["devices"][0]["cardUuid"], "GPU-0");
}

#[tokio::test]
async fn claims_of_one_call_are_answered_one_by_one() {
    let node = Node::new(2);
    let preparer = node.start().await;
    let (good, bad, gone) = (claim("good"), claim("bad"), claim("gone"));
    node.api.allocate(&good, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&bad, &[("gpus", "gpu-0f-00")]);
    let answers = preparer.prepare(vec![good.clone(), bad.clone(), gone.clone()]).await;
    assert_eq!(answers.len(), 3);
    assert!(answers[&good.uid].is_ok());
    assert!(matches!(answers[&bad.uid], Err(PrepareError::Hardware { .. })));
    assert!(matches!(answers[&gone.uid], Err(PrepareError::Gone { .. })));
    let error = answers[&gone.uid].as_ref().unwrap_err().to_string();
    assert!(error.contains("ns/gone (uid-gone)"), "{error}");
    assert_eq!(node.settled().len(), 1);
}

#[tokio::test]
async fn two_claims_never_hold_one_card() {
    let node = Node::new(2);
    let preparer = node.start().await;
    let (first, second) = (claim("first"), claim("second"));
    node.api.allocate(&first, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&second, &[("gpus", "gpu-02-00"), ("gpus", "gpu-01-00")]);
    prepare(&preparer, &first).await.unwrap();
    let error = prepare(&preparer, &second).await.unwrap_err();
    assert_eq!(error.reason(), "held");
    let error = error.to_string();
    assert!(error.contains("gpu-01-00") && error.contains("ns/first (uid-first)"), "{error}");
    assert_eq!(node.settled().len(), 1);

    unprepare(&preparer, &first).await.unwrap();
    prepare(&preparer, &second).await.unwrap();
    assert_eq!(node.settled()["uid-second"].len(), 2);
}

#[tokio::test]
async fn racing_claims_for_one_card_have_one_winner() {
    let node = Node::new(1);
    let preparer = node.start().await;
    let claims: Vec<_> = (0..16).map(|number| claim(&format!("c{number}"))).collect();
    for claim in &claims {
        node.api.allocate(claim, &[("gpus", "gpu-01-00")]);
    }
    let answers = preparer.prepare(claims).await;
    assert_eq!(answers.values().filter(|answer| answer.is_ok()).count(), 1);
    assert!(answers.values().flat_map(Result::as_ref).all(|devices| devices.len() == 1));
    assert!(
        answers.values().filter_map(|answer| answer.as_ref().err()).all(|error| error.reason() == "held")
    );
    assert_eq!(node.settled().len(), 1);
}

#[tokio::test]
async fn admin_access_looks_and_does_not_hold() {
    let node = Node::new(1);
    let preparer = node.start().await;
    let (user, admin) = (claim("user"), claim("admin"));
    let mut watching = result("watch", "gpu-01-00");
    watching["adminAccess"] = true.into();
    node.api.put(&admin, vec![watching]);
    node.api.allocate(&user, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &admin).await.unwrap();
    prepare(&preparer, &user).await.unwrap();
    assert_eq!(preparer.held_devices().await.unwrap().into_iter().collect::<Vec<_>>(), ["gpu-01-00"]);
    unprepare(&preparer, &user).await.unwrap();
    assert!(preparer.held_devices().await.unwrap().is_empty());
    assert_eq!(node.settled().len(), 1);

    // Admin access covers all existing devices, in any mode of the card.
    node.cards.architecture(0, Architecture::AMPERE);
    node.cards.admin_mode(0, true);
    unprepare(&preparer, &admin).await.unwrap();
    prepare(&preparer, &admin).await.unwrap();
    assert!(matches!(prepare(&preparer, &user).await, Err(PrepareError::MigMode { .. })));
}

#[tokio::test]
async fn a_share_id_is_passed_through() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    let share = |id: &str| {
        let mut share = result("gpus", "gpu-01-00");
        share["shareID"] = id.into();
        share
    };
    node.api.put(&claim, vec![share("s-1"), share("s-2")]);
    let devices = prepare(&preparer, &claim).await.unwrap();
    let shares: Vec<_> = devices.iter().map(|device| device.share_id.as_deref().unwrap()).collect();
    assert_eq!(shares, ["s-1", "s-2"]);
    assert_eq!(devices[1].cdi_device_ids, ["gpu.tessera.dev/claim=uid-a-gpu-01-00-s-2"]);
    assert_eq!(node.spec(&claim)["devices"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_card_must_be_the_one_that_was_published() {
    let node = Node::new(2);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    let mut card = Card::new("0000:01:00.0".parse().unwrap());
    card.uuid = Some("GPU-0".into());
    let machine = Machine { cards: vec![card], ..Machine::default() };
    node.published.send_replace(Some(Arc::new(machine)));

    node.cards.change(0, |card| card.uuid = "GPU-new".into());
    let error = prepare(&preparer, &claim).await.unwrap_err();
    assert_eq!(error.reason(), "other_card");
    assert!(error.to_string().contains("GPU-new"), "{error}");
    node.cards.change(0, |card| card.uuid = "GPU-0".into());
    prepare(&preparer, &claim).await.unwrap();
}

#[tokio::test]
async fn trouble_with_the_hardware_is_told_and_leaves_nothing() {
    let node = Node::new(2);
    let preparer = node.start().await;
    let (claim, other) = (claim("a"), claim("b"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    node.api.allocate(&other, &[("gpus", "gpu-02-00")]);

    node.cards.architecture(0, Architecture::AMPERE);
    node.cards.admin_mode(0, true);
    let error = prepare(&preparer, &claim).await.unwrap_err();
    assert!(matches!(&error, PrepareError::MigMode { uuid, .. } if uuid == "GPU-0"), "{error}");
    assert!(error.to_string().contains("nvidia-smi -i GPU-0 -mig 0"), "{error}");

    node.cards.admin_mode(0, false);
    node.cards.lose(0);
    let error = prepare(&preparer, &claim).await.unwrap_err();
    assert!(error.to_string().contains("GPU is lost"), "{error}");
    assert!(node.settled().is_empty());

    // The other card's claim, and claims already prepared, need no driver.
    prepare(&preparer, &other).await.unwrap();
    node.hardware.send_replace(None);
    prepare(&preparer, &other).await.unwrap();
    assert!(matches!(prepare(&preparer, &claim).await, Err(PrepareError::NoDriver { .. })));
    unprepare(&preparer, &other).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_claim_of_the_same_name_with_another_uid_is_another_claim() {
    let node = Node::new(2);
    let preparer = node.start().await;
    let old = claim("a");
    let new = ClaimReference { uid: "uid-new".into(), ..old.clone() };
    node.api.allocate(&old, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &old).await.unwrap();

    node.api.allocate(&new, &[("gpus", "gpu-02-00")]);
    assert!(
        matches!(prepare(&preparer, &old).await, Err(PrepareError::Replaced { found, .. }) if found == "uid-new")
    );
    prepare(&preparer, &new).await.unwrap();
    assert_eq!(node.settled().len(), 2);
    unprepare(&preparer, &old).await.unwrap();
    assert_eq!(node.settled().keys().collect::<Vec<_>>(), ["uid-new"]);
}

#[tokio::test]
async fn a_claim_that_was_allocated_anew_moves() {
    let node = Node::new(2);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &claim).await.unwrap();
    node.api.allocate(&claim, &[("gpus", "gpu-02-00")]);
    assert_eq!(prepare(&preparer, &claim).await.unwrap(), [first_device("gpus", "gpu-02-00", &claim)]);
    assert_eq!(node.settled()["uid-a"].first().unwrap(), "gpu-02-00");
}

#[tokio::test]
async fn what_an_earlier_boot_prepared_is_dropped_and_prepared_anew() {
    let node = Node::new(1);
    let (stays, goes) = (claim("stays"), claim("goes"));
    let preparer = node.start().await;
    node.api.allocate(&goes, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &goes).await.unwrap();
    drop(preparer);

    node.boot("boot-2");
    let preparer = node.start().await;
    assert!(node.settled().is_empty());
    // The claim from before the reboot does not block another.
    node.api.allocate(&stays, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &stays).await.unwrap();
    drop(preparer);

    // Even if the plugin survives a supposed reboot, the boot id in the record decides.
    node.boot("boot-3");
    let preparer = node.start().await;
    prepare(&preparer, &stays).await.unwrap();
    assert_eq!(node.record(&stays)["bootId"], "boot-3");
    unprepare(&preparer, &stays).await.unwrap();
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn a_cdi_spec_that_someone_removed_comes_back() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00")]);
    prepare(&preparer, &claim).await.unwrap();
    let spec = node.spec(&claim);
    fs::remove_dir_all(node.path().join("cdi")).unwrap();
    prepare(&preparer, &claim).await.unwrap();
    assert_eq!(node.spec(&claim), spec);
    let metadata = node.path().join("kubelet/plugins/gpu.tessera.dev/device-metadata");
    fs::remove_dir_all(&metadata).unwrap();
    prepare(&preparer, &claim).await.unwrap();
    assert_eq!(node.settled().len(), 1, "the metadata is there again");
    fs::remove_dir_all(&metadata).unwrap();
    preparer.restore_specs().await.unwrap();
    assert_eq!(node.settled().len(), 1, "and without the kubelet");

    fs::remove_file(node.spec_path(&claim)).unwrap();
    drop(preparer);
    let preparer = node.start().await;
    preparer.restore_specs().await.unwrap();
    assert_eq!(node.spec(&claim), spec);

    // A reloaded driver numbers its cards anew.
    node.cards.change(0, |card| card.minor = 5);
    preparer.restore_specs().await.unwrap();
    assert_eq!(node.spec(&claim)["devices"][0]["containerEdits"]["deviceNodes"][0]["path"], "/dev/nvidia5");
}

#[tokio::test]
async fn only_our_own_stale_cdi_specs_are_swept() {
    let node = Node::new(1);
    let directory = node.path().join("cdi");
    fs::create_dir_all(&directory).unwrap();
    let foreign = ["nvidia.yaml", "k8s.gpu.nvidia.com-claim_u.yaml", "other.dev-claim_u.json"];
    let own = [
        "gpu.tessera.dev-claim_u.json",
        ".gpu.tessera.dev-claim_v.json.new",
        "gpu.tessera.dev-metadata_w.json",
        ".gpu.tessera.dev-metadata_x.json.new",
    ];
    for name in foreign.iter().chain(&own) {
        fs::write(directory.join(name), "{}").unwrap();
    }
    // Left by a crash before anything else of a claim is written.
    let metadata = node.path().join("kubelet/plugins/gpu.tessera.dev/device-metadata");
    fs::create_dir_all(&metadata).unwrap();
    for name in ["y_gpus.json", ".z_gpus.json.new"] {
        fs::write(metadata.join(name), "{}").unwrap();
    }
    node.start().await;
    assert_eq!(fs::read_dir(&metadata).unwrap().count(), 0);
    let mut expected = foreign.map(str::to_owned);
    expected.sort();
    assert_eq!(names(&directory), expected);
}

#[tokio::test]
async fn garbage_from_the_socket_touches_nothing() {
    let node = Node::new(1);
    let preparer = node.start().await;
    let good = claim("a");
    for bad in [
        ClaimReference { uid: "../../../escape".into(), ..good.clone() },
        ClaimReference { uid: String::new(), ..good.clone() },
        ClaimReference { namespace: "a/b".into(), ..good.clone() },
        ClaimReference { name: "..".into(), ..good },
    ] {
        assert!(matches!(prepare(&preparer, &bad).await, Err(PrepareError::Reference { .. })));
        assert!(matches!(unprepare(&preparer, &bad).await, Err(PrepareError::Reference { .. })));
    }
    assert!(node.api.requests().is_empty());
    assert!(node.settled().is_empty());
}

#[tokio::test]
async fn every_phase_is_told_to_the_observer() {
    let node = Node::new(1);
    let (preparer, claim) = (node.start().await, claim("a"));
    node.api.allocate(&claim, &[("gpus", "gpu-01-00-mig-1g10gb-0")]);
    prepare(&preparer, &claim).await.unwrap();
    let phases = node.seen.phases();
    for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Wait) {
        assert!(phases.contains(&(phase, true)), "{phase:?}");
    }
    prepare(&preparer, &crate::support::claim("gone")).await.unwrap_err();
    unprepare(&preparer, &claim).await.unwrap();
    assert_eq!(
        node.seen.claims(),
        [
            (Operation::Prepare, "success"),
            (Operation::Prepare, "claim_gone"),
            (Operation::Unprepare, "success")
        ]
    );
    assert!(node.seen.phases().contains(&(Phase::Claim, true)));
}
