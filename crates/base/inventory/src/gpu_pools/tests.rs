use serde_json::{Value, json};
use tessera_api::facts::{GpuInstanceProfile, Placement};
use tessera_api::gpu_pool::Allocation;
use tessera_api::offer::{OnOveruse, PartitioningMode};

use super::*;
use crate::machine::{Card, Health, Mig};

const LABEL: &str = "nvidia.com/mig.config";

fn pci(bus: u8) -> PciBusId {
    PciBusId::new(0, bus, 0, 0).unwrap()
}

/// An A100 at 1, an H100 at 2.
fn machine() -> Arc<Machine> {
    let card = |bus, architecture: &str, memory_bytes| Card {
        architecture: Some(architecture.to_owned()),
        memory_bytes: Some(memory_bytes),
        ..Card::new(pci(bus))
    };
    Arc::new(Machine {
        driver_version: Some("580.95.05".to_owned()),
        cards: vec![card(1, "Ampere", 40 << 30), card(2, "Hopper", 80 << 30)],
        ..Machine::default()
    })
}

/// Labels and pools.
#[derive(Clone)]
struct Known {
    labels: BTreeMap<String, String>,
    pools: BTreeMap<String, (Time, Option<GpuPoolSpec>, Option<String>)>,
}

/// Pools by name, in the order of creation.
fn known(labels: Value, pools: &[(&str, Value)]) -> Known {
    let pool = |(position, (name, spec)): (usize, &(&str, Value))| {
        let created = serde_json::from_value(json!(format!("2026-11-21T10:00:{position:02}Z"))).unwrap();
        (name.to_string(), (created, Some(GpuPoolSpec::decode(spec).unwrap()), None))
    };
    Known {
        labels: serde_json::from_value(labels).unwrap(),
        pools: pools.iter().enumerate().map(pool).collect(),
    }
}

fn resolved_on(known: &Known, driver: &str, machine: &Arc<Machine>, has_layouts: bool) -> Resolution {
    resolved_by(known, driver, machine, has_layouts, "v1.37.2")
}

fn resolved_by(
    known: &Known,
    driver: &str,
    machine: &Arc<Machine>,
    has_layouts: bool,
    kubernetes: &str,
) -> Resolution {
    let pools = known.pools.iter().map(|(name, (created, spec, error))| {
        let (spec, error) = (spec.as_ref(), error.as_deref());
        (name.as_str(), GpuPool { created: Some(created), spec, error })
    });
    resolve(driver, &known.labels, &pools.collect(), machine, has_layouts, kubernetes)
}

fn resolved(known: &Known) -> Resolution {
    resolved_on(known, "gpu.tessera.dev", &machine(), true)
}

/// The deciding pools of the two cards, and the pools coming after.
fn decided(resolution: &Resolution) -> Vec<(Option<&str>, Vec<&str>)> {
    let text = |report: &'_ CardReport| report.outranked.clone();
    let cards = resolution.cards.iter();
    cards
        .map(|(card, report)| {
            assert_eq!(resolution.offers.of(*card).pool, report.pool);
            assert_eq!(text(report).len(), report.outranked.len());
            (report.pool.as_deref(), report.outranked.iter().map(String::as_str).collect())
        })
        .collect()
}

#[test]
fn without_pools_cards_are_offered_as_by_default() {
    let resolution = resolved(&known(json!({}), &[]));
    assert_eq!(decided(&resolution), [(None, vec![]), (None, vec![])]);
    assert_eq!(*resolution.offers.of(pci(1)).offer, tessera_api::Offer::default());
    assert_eq!(resolution.cards[&pci(1)].allocation, Allocation::Native);
}

#[test]
fn the_first_pool_that_selects_a_card_decides() {
    let hopper = r#"device.attributes["gpu.tessera.dev"].architecture == "Hopper""#;
    let large = r#"device.capacity["gpu.tessera.dev"].memory.compareTo(quantity("60Gi")) > 0"#;
    let pools = [
        ("z-old", json!({"offer": {"wholeCards": false}})),
        ("a-new", json!({})),
        ("hopper", json!({"cards": hopper, "priority": 1, "allocation": "Steered"})),
        ("large", json!({"cards": large, "priority": 2, "nodeSelector": {"matchLabels": {"zone": "a"}}})),
        ("elsewhere", json!({"priority": 9, "nodeSelector": {"matchLabels": {"zone": "b"}}})),
    ];
    let resolution = resolved(&known(json!({"zone": "a"}), &pools));
    let after = vec!["hopper", "z-old", "a-new"];
    assert_eq!(decided(&resolution), [(Some("z-old"), vec!["a-new"]), (Some("large"), after)]);
    assert!(!resolution.offers.of(pci(1)).offer.whole_cards);
    assert!(resolution.offers.of(pci(2)).offer.whole_cards);
    let resolution = resolved(&known(json!({}), &pools));
    assert_eq!(decided(&resolution)[1], (Some("hopper"), vec!["z-old", "a-new"]));
    assert_eq!(resolution.cards[&pci(2)].allocation, Allocation::Steered);
    assert_eq!(resolution.offers.of(pci(2)).allocation, Allocation::Steered, "what is published follows");
    assert!(resolution.pools.is_empty());
}

#[test]
fn an_expression_that_fails_takes_no_card_and_is_reported() {
    let domain = r#"device.attributes["gpu.tessera.dev"]"#;
    let pools = [
        ("syntax", json!({"cards": "device.", "priority": 4})),
        ("type", json!({"cards": "device.driver", "priority": 4})),
        (
            "costly",
            json!({"cards": format!("[{0}].all(a, [{0}].all(b, [{0}].all(c, a != b)))", ["0"; 400].join(",")), "priority": 4}),
        ),
        ("missing", json!({"cards": format!("{domain}.nothing == 1"), "priority": 3})),
        (
            "one",
            json!({"cards": format!(r#"{domain}.architecture == "Ampere" || {domain}.nothing == 1"#), "priority": 2}),
        ),
        ("rest", json!({})),
    ];
    let resolution = resolved(&known(json!({}), &pools));
    assert_eq!(decided(&resolution), [(Some("one"), vec!["rest"]), (Some("rest"), vec![])]);
    let error = |name: &str| resolution.pools[name].error.clone().unwrap();
    assert!(error("syntax").contains("compilation failed"), "{}", error("syntax"));
    assert!(error("type").contains("must evaluate to bool"));
    assert!(error("costly").contains("cost limit"), "{}", error("costly"));
    assert!(error("missing").contains("0000:01:00.0") && error("missing").contains("nothing"));
    assert!(error("one").contains("0000:02:00.0"));
    assert_eq!(resolution.pools.len(), 5);
}

#[test]
fn what_cannot_be_read_is_reported_and_the_last_spec_holds() {
    let mut known = known(json!({}), &[("kept", json!({"priority": 1})), ("never", json!({}))]);
    known.pools.get_mut("kept").unwrap().2 = Some("unknown field".to_owned());
    let never = known.pools.get_mut("never").unwrap();
    (never.1, never.2) = (None, Some("x".repeat(600)));
    let resolution = resolved(&known);
    assert_eq!(decided(&resolution)[0], (Some("kept"), vec![]));
    assert!(resolution.pools["kept"].error.as_ref().unwrap().contains("the last one holds: unknown field"));
    assert_eq!(resolution.pools["never"].error.as_ref().unwrap().len(), LONGEST_ERROR);
}

#[test]
fn a_layout_is_the_labels_where_the_node_has_it() {
    let pool = ("p", json!({"offer": {"layout": "all", "layoutFromNodeLabel": LABEL}}));
    let layout = |labels: Value, pool: &(&str, Value)| {
        let resolution = resolved(&known(labels, std::slice::from_ref(pool)));
        resolution.layouts.get(&pci(2)).cloned()
    };
    assert_eq!(layout(json!({}), &pool).as_deref(), Some("all"));
    assert_eq!(layout(json!({LABEL: ""}), &pool).as_deref(), Some("all"));
    assert_eq!(layout(json!({LABEL: "other"}), &pool).as_deref(), Some("other"));
    assert_eq!(layout(json!({LABEL: "other"}), &("p", json!({}))), None);
    let resolution = resolved_on(&known(json!({}), &[pool]), "d", &machine(), false);
    assert!(
        resolution.layouts.is_empty()
            && resolution.pools["p"].error.as_ref().unwrap().starts_with("offer.layout: there is no file")
    );
}

/// A partitioned card, or one with another offer, is selected as if whole.
#[test]
fn what_is_offered_of_a_card_does_not_decide_who_selects_it() {
    let mut machine = machine();
    let card = &mut Arc::make_mut(&mut machine).cards[1];
    card.health = Health::Lost;
    let hopper = r#"device.attributes["d"].architecture == "Hopper" && device.attributes["d"].type == "gpu""#;
    let known = known(json!({}), &[("p", json!({"cards": hopper, "offer": {"wholeCards": false}}))]);
    let resolution = resolved_on(&known, "d", &machine, true);
    assert_eq!(decided(&resolution), [(None, vec![]), (Some("p"), vec![])]);
}

#[test]
fn shares_that_are_very_small_or_very_many_are_advised_against() {
    let advice = |mps: Value| {
        let pool = json!({"cards": "device.attributes['gpu.tessera.dev'].architecture == 'Ampere'", "offer": {"sharing": {"mps": mps}}});
        let resolution = resolved(&known(json!({}), &[("shares", pool)]));
        resolution
            .pools
            .get("shares")
            .map(|said| (said.error.clone(), said.advice.clone().unwrap_or_default()))
    };
    assert_eq!(advice(json!({"defaultShares": 32})), None, "1280 MiB each");
    let of_many = "offer.sharing.mps.defaultShares: each of 33 shares of a card has 1241 MiB, of which the CUDA context of each program \
                   takes 300 to 500 MB; more than 32 hardly get anything done";
    assert_eq!(advice(json!({"defaultShares": 33})), Some((None, of_many.to_owned())));
    let (_, of_small) = advice(json!({"defaultShares": 100})).unwrap();
    assert!(of_small.contains("100 shares of a card has 409 MiB"), "{of_small}");
}

#[test]
fn the_report_says_what_the_controller_evicts_for() {
    let pool = json!({"offer": {"sharing": {"onOveruse": "Evict"}}, "idle": {"action": "Tell"}});
    let report = &resolved(&known(json!({}), &[("a", pool)])).cards[&pci(1)];
    assert_eq!((report.on_overuse, report.idle.is_some()), (OnOveruse::Evict, true));
    let report = &resolved(&known(json!({}), &[("a", json!({}))])).cards[&pci(1)];
    assert!(!serde_json::to_string(report).unwrap().contains("onOveruse"), "for controllers of before");
}

#[test]
fn cards_without_a_pool_are_partitioned_from_1_37_on() {
    let mut machine = machine();
    let profile = GpuInstanceProfile {
        name: "1g.10gb".to_owned(),
        id: 19,
        compute_slices: 1,
        max_instances: 7,
        memory_bytes: 10 << 30,
        multiprocessors: 16,
        copy_engines: 1,
        decoders: 1,
        encoders: 0,
        jpeg_engines: 1,
        ofa_engines: 0,
        placements: vec![Placement { start: 0, size: 1 }],
    };
    Arc::make_mut(&mut machine).cards[1].mig = Some(Mig { profiles: vec![profile], ..Mig::default() });
    let mode = |kubernetes: &str, pools: &[(&str, Value)]| {
        let resolution =
            resolved_by(&known(json!({}), pools), "gpu.tessera.dev", &machine, false, kubernetes);
        assert_eq!(resolution.kubernetes, kubernetes);
        let offers = [1, 2].map(|bus| resolution.offers.of(pci(bus)).offer.clone());
        assert!(offers.iter().all(|offer| offer.whole_cards));
        (offers[1].partitioning.mode, resolution.advice)
    };
    for newer in ["v1.37.0", "v1.38.0-alpha.2"] {
        assert_eq!(mode(newer, &[]), (PartitioningMode::OnDemand, None));
    }
    for older in ["v1.36.6", "v1.35.1+k3s1", ""] {
        let (mode, advice) = mode(older, &[]);
        assert_eq!(mode, PartitioningMode::None, "{older}");
        let advice = advice.unwrap();
        assert!(advice.starts_with("1 of its cards") && advice.contains(older), "{advice}");
    }
    assert_eq!(mode("v1.36.3", &[("all", json!({}))]), (PartitioningMode::OnDemand, None), "a pool says so");
}
