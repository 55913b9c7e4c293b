//! Cards reset by the plugin itself (`health.recovery: Reset`).

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use serde_json::json;
use tessera_fakes::poll::until_async;
use tessera_harness::kubelet_stand_in::{Claim, Plugin as Registered};

use crate::{
    node::{DRIVER, Node},
    plugin::Plugin,
};

/// A ready plugin with resets enabled.
async fn start(node: &Node, more: &[String]) -> (Plugin, Registered) {
    let policy = ["--health-policy".to_owned(), r#"{"recovery":"Reset"}"#.to_owned()];
    let plugin = Plugin::start(node.directory(), &[&node.arguments()[..], &policy, more].concat());
    let registered = node.register().await;
    plugin.ready().await;
    (plugin, registered)
}

/// Lets the card have an XID until its devices are tainted.
async fn xid(node: &Node, card: usize) {
    until_async("tainted", async || {
        // Listening to events starts a little after the cards were read.
        node.machine.let_happen(&format!("xid --card {card} 48"));
        tokio::time::sleep(Duration::from_millis(100)).await;
        !node.tainted().await.is_empty()
    })
    .await;
}

/// Since when the card counts, in the emulator's time: more than 0 after a reset.
fn counts_since(node: &Node, card: usize) -> u64 {
    let state = fs::read(node.machine.root().join("state/state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    state["cards"][card]["meter"]["since"].as_u64().unwrap_or_default()
}

async fn prepare(registered: &Registered, claim: &Claim) -> Result<Vec<String>, String> {
    let answers = registered.prepare(std::slice::from_ref(claim)).await.unwrap();
    let prepared = answers[&claim.uid].as_ref().map_err(Clone::clone)?;
    Ok(prepared.iter().flat_map(|device| device.cdi_device_ids.clone()).collect())
}

async fn unprepare(registered: &Registered, claim: &Claim) {
    registered.unprepare(std::slice::from_ref(claim)).await.unwrap()[&claim.uid].as_ref().unwrap();
}

#[tokio::test]
async fn a_card_is_reset_when_its_claim_has_ended_and_the_others_go_on() {
    let node = Node::new("resets", "l40s-x8").await;
    let (plugin, registered) = start(&node, &[]).await;
    let devices = node.devices().await;
    let (on_it, beside) = (node.claim(&[&devices[3]]).await, node.claim(&[&devices[5]]).await);
    let told = prepare(&registered, &beside).await.unwrap();
    prepare(&registered, &on_it).await.unwrap();

    xid(&node, 3).await;
    node.until_event("CardUnhealthy").await;
    plugin.logged("a reset of the card waits for claim").await;
    let mut tainted = node.tainted().await;
    tainted.sort();
    assert_eq!(tainted, ["recovery-action", "xid-48"].map(|name| (devices[3].clone(), name.to_owned())));
    assert_eq!(counts_since(&node, 3), 0, "a claim has the card");

    unprepare(&registered, &on_it).await;
    let mut seen = std::collections::BTreeSet::new();
    until_async("untainted", async || {
        let tainted = node.tainted().await;
        seen.extend(tainted.iter().map(|(device, _)| device.clone()));
        tainted.is_empty()
    })
    .await;
    assert!(counts_since(&node, 3) > 0 && counts_since(&node, 5) == 0);
    assert_eq!(seen, [devices[3].clone()].into(), "no other card was taken for lost");
    for reason in ["ResettingCard", "CardReset", "CardHealthy"] {
        node.until_event(reason).await;
    }
    assert!(plugin.log_text().contains("was successfully reset"), "{}", plugin.log_text());

    assert_eq!(prepare(&registered, &beside).await.unwrap(), told);
    assert_eq!(prepare(&registered, &on_it).await.map(|ids| ids.len()), Ok(told.len()));
    assert!(!plugin.log_text().contains("fell off the bus"), "{}", plugin.log_text());
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_claim_that_comes_while_a_card_is_reset_waits() {
    let node = Node::new("resets-slow", "l40s-x8").await;
    let (real, program) = (node.machine.root().join("bin/real"), node.machine.root().join("bin/nvidia-smi"));
    fs::rename(&program, &real).unwrap();
    // As long as a real card takes, and longer than the wait for a missing library.
    fs::write(&program, format!("#!/bin/sh\n/bin/sleep 15\nexec {} \"$@\"\n", real.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (plugin, registered) = start(&node, &[]).await;
    let devices = node.devices().await;
    xid(&node, 3).await;
    plugin.ready_line("[-] hardware: gpu-").await;
    assert!(plugin.get("/readyz").1.contains("is being reset"), "{}", plugin.get("/readyz").1);
    let (on_it, beside) = (node.claim(&[&devices[3]]).await, node.claim(&[&devices[5]]).await);
    let (one, other) = tokio::join!(prepare(&registered, &on_it), prepare(&registered, &beside));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    assert!(counts_since(&node, 3) > 0, "both were prepared after the reset");
    let others = |tainted: Vec<(String, String)>| tainted.into_iter().any(|(device, _)| device != devices[3]);
    assert!(!others(node.tainted().await));
    until_async("untainted", async || node.tainted().await.is_empty()).await;
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_reset_that_fails_is_told_and_the_card_stays_tainted() {
    let node = Node::new("resets-fail", "t4").await;
    let program = node.machine.root().join("bin/nvidia-smi");
    fs::write(&program, "#!/bin/sh\necho \"no reset of $3 today\"\nexit 19\n").unwrap();
    let (plugin, _registered) = start(&node, &[]).await;
    xid(&node, 0).await;
    node.until_event("CardNotReset").await;
    let pci = node.machine.cards()[0]["pci"].as_str().unwrap().to_owned();
    let words = format!(
        "was not reset: nvidia-smi: no reset of {pci} today (exit status: 19) (tried again in 1 min)"
    );
    assert!(plugin.log_text().contains(&words), "{}", plugin.log_text());
    plugin.ready().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(
        plugin.log_text().matches("is being reset; claims").count(),
        1,
        "it is not tried again at once"
    );
    assert!(!node.tainted().await.is_empty());
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_layout_is_made_again_after_a_reset_and_what_was_made_by_hand_is_left_alone() {
    let node = Node::new("resets-mig", "hgx-h100-80gb").await;
    for arguments in [&["-i", "1", "-mig", "1"][..], &["mig", "-i", "1", "-cgi", "3g.40gb", "-C"]] {
        let mut smi = std::process::Command::new(node.machine.root().join("bin/nvidia-smi"));
        assert!(smi.args(arguments).status().unwrap().success());
    }
    let file = node.directory().join("layouts.yaml");
    let text = r#"{version: v1, mig-configs: {halves: [
        {devices: [0], mig-enabled: true, mig-devices: {"4g.40gb": 1, "3g.40gb": 1}}]}}"#;
    fs::write(&file, text).unwrap();
    node.pool("halves", json!({"offer": {"layout": "halves"}})).await;
    let (plugin, _registered) =
        start(&node, &["--mig-layout-file".to_owned(), file.display().to_string()]).await;
    let devices = node.devices().await;
    for card in [0, 1] {
        xid(&node, card).await;
        node.machine.let_happen(&format!("xid --card {card} 48"));
    }
    plugin.logged("it has partitions that somebody made by hand").await;
    let by_hand: tessera_api::PciBusId = node.machine.cards()[1]["pci"].as_str().unwrap().parse().unwrap();
    let by_hand = tessera_api::DeviceName::Card(by_hand).to_string();
    until_async("the layout is there again", async || {
        let tainted = node.tainted().await;
        counts_since(&node, 0) > 0
            && tainted.iter().all(|(device, _)| device.starts_with(&by_hand))
            && node.devices().await == devices
    })
    .await;
    assert_eq!(counts_since(&node, 1), 0);
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn an_administrators_file_has_the_cards_let_go_of() {
    let node = Node::new("let-go", "l40s-x8").await;
    let plugin = node.plugin(None);
    let registered = node.register().await;
    plugin.ready().await;
    let devices = node.devices().await;
    let before = node.claim(&[&devices[5]]).await;
    prepare(&registered, &before).await.unwrap();
    let reset = || {
        let mut smi = std::process::Command::new(node.machine.root().join("bin/nvidia-smi"));
        smi.args(["--gpu-reset", "-i", "3"]).output().unwrap().status.success()
    };
    assert!(!reset(), "the plugin has the card open");

    let file = node.kubelet_directory().join("plugins").join(DRIVER).join("let-go");
    fs::write(&file, "").unwrap();
    plugin.ready_line("[-] hardware: the cards are let go of until").await;
    until_async("reset", async || reset()).await;
    let kept_away: Vec<_> = devices.iter().map(|device| (device.clone(), "let-go".to_owned())).collect();
    until_async("all tainted", async || node.tainted().await == kept_away).await;
    node.until_event("CardsLetGo").await;

    let claim = node.claim(&[&devices[3]]).await;
    let (prepared, ()) = tokio::join!(prepare(&registered, &claim), async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(node.tainted().await, kept_away, "nothing is lost");
        fs::remove_file(&file).unwrap();
    });
    prepared.expect("it waited");
    node.until_event("CardsTaken").await;
    until_async("untainted", async || node.tainted().await.is_empty()).await;
    plugin.ready().await;
    assert!(!plugin.log_text().contains("fell off the bus"), "{}", plugin.log_text());
    assert_eq!(plugin.terminate().await.code(), Some(0));
}
