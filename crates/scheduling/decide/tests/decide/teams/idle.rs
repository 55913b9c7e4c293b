//! Idle pods make room for other teams, too.

use super::*;

#[test]
fn a_guarantee_keeps_no_idle_pod() {
    let mut fed = teams(1, &["vision", "speech"]);
    let idle = json!({ "action": "WhenWanted", "graceSeconds": 0 });
    let pool = json!({ "pool": "main", "allocation": "Managed", "idle": idle });
    slices("a", 1, pool).into_iter().for_each(|slice| fed.apply(slice));
    fed.quota("vision", cards(1, None));
    fed.ask_in("vision", "v", "gpu", 1, |_| ());
    assert_eq!(fed.start(), ["v"]);
    fed.pass(120);
    fed.ask_in("speech", "s", "gpu", 1, |_| ());
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 0, "v is within its team's guarantee");
    let key = Key::new("vision", "v-gpus");
    let mut claim = serde_json::to_value(fed.decider.cluster().objects().claims[&key].as_ref()).unwrap();
    let condition = json!({ "type": "Idle", "status": "True", "reason": "BelowLimit", "message": "below 5%",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let device = json!({ "driver": DRIVER, "pool": format!("{DRIVER}/a"), "device": card(0), "conditions": [condition] });
    claim["status"]["devices"] = json!([device]);
    fed.apply_claim(claim);
    fed.pass(10);
    let intents = fed.decide();
    assert_eq!(nominated(&mut fed, &intents), 1);
    let intents = fed.decide();
    assert!(matches!(intents.first(), Some(Intent::Tell { .. })), "{intents:?}");
    assert_eq!(evicted(&fed.decide()), ["v"]);
}
