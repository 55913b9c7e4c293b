//! Partitions, on cards as described by the driver.

use serde_json::{Value, json};
use tessera_api::ProfileSpelling;
use tessera_placement::node_cards::CardState;
use tessera_placement::value::{Partitions, Placements, RequestMix};

use super::devices::Devices;
use super::known_machines::address;

/// A profile of a model: its spelling and its placements in the order of publication, as bits.
struct Profile {
    spelling: ProfileSpelling,
    compute: u64,
    placements: Vec<u64>,
}

/// The plain profiles of a model.
fn profiles(model: &str) -> Vec<Profile> {
    let text = include_str!("../../../../base/inventory/tests/data/mig-profiles.txt");
    let lines = text.lines().skip_while(|line| !line.starts_with(&format!("model {model} ")));
    let lines = lines.skip(1).take_while(|line| !line.starts_with("model"));
    lines
        .map(|line| {
            let columns: Vec<&str> = line.split('|').collect();
            let words: Vec<&str> = columns[0].split_whitespace().collect();
            let size: u32 = words[11].parse().unwrap();
            let slices = |start: &str| ((1u64 << size) - 1) << start.parse::<u32>().unwrap();
            Profile {
                spelling: ProfileSpelling::of_profile(words[0]).unwrap(),
                compute: words[2].parse().unwrap(),
                placements: columns[2].split_whitespace().map(slices).collect(),
            }
        })
        .filter(|profile| !profile.spelling.has_attributes())
        .collect()
}

fn placements(profiles: &[Profile]) -> Vec<(ProfileSpelling, u64)> {
    let of = |profile: &Profile| -> Vec<_> {
        profile.placements.iter().map(|slices| (profile.spelling.clone(), *slices)).collect()
    };
    profiles.iter().flat_map(of).collect()
}

/// Chooses card and placement for a profile.
type Choose = fn(&[u64], &Profile, &Partitions<'_>) -> Option<(usize, u64)>;

fn first_fit(cards: &[u64], profile: &Profile, _: &Partitions<'_>) -> Option<(usize, u64)> {
    cards.iter().enumerate().find_map(|(card, used)| {
        let free = profile.placements.iter().find(|slices| **slices & used == 0)?;
        Some((card, *free))
    })
}

fn least_loss(cards: &[u64], profile: &Profile, room: &Partitions<'_>) -> Option<(usize, u64)> {
    let all = cards.iter().enumerate().flat_map(|(card, used)| {
        profile
            .placements
            .iter()
            .filter(move |slices| **slices & used == 0)
            .map(move |slices| (card, *used, *slices))
    });
    all.min_by_key(|(card, used, slices)| (room.loss(*used, *slices), *card, slices.leading_zeros()))
        .map(|(card, _, slices)| (card, slices))
}

/// Accepted fraction of the requested compute, in thousandths: requests of a fixed mix at a load of 0.9 of all compute slices, each
/// dropped if it does not fit.
fn accepted(shares: &[(usize, u32)], choose: Choose) -> u64 {
    const CARDS: usize = 30;
    let profiles = profiles("A100-40GB");
    let all = placements(&profiles);
    let total: u32 = shares.iter().map(|(_, share)| share).sum();
    let mean: f64 =
        shares.iter().map(|(at, share)| profiles[*at].compute as f64 * f64::from(*share)).sum::<f64>()
            / f64::from(total);
    let at_once = 0.9 * 7.0 * CARDS as f64 / mean;
    let mut random = fastrand::Rng::with_seed(14);
    let mut mix = RequestMix::default();
    let mut cards = [0u64; CARDS];
    let mut running: Vec<(f64, usize, u64)> = Vec::new();
    let (mut now, mut asked, mut got) = (0.0, 0, 0);
    for _ in 0..12_000 {
        now -= (1.0 - random.f64()).ln() / at_once;
        running.retain(|(end, card, slices)| {
            let is_over = *end <= now;
            if is_over {
                cards[*card] &= !slices;
                mix.departed();
            }
            !is_over
        });
        let mut which = random.u32(..total);
        let (at, _) = shares
            .iter()
            .find(|(_, share)| {
                let is_it = which < *share;
                which = which.wrapping_sub(*share);
                is_it
            })
            .unwrap();
        let profile = &profiles[*at];
        mix.arrived(&profile.spelling);
        asked += profile.compute;
        let duration = -(1.0 - random.f64()).ln();
        if let Some((card, slices)) =
            choose(&cards, profile, &Placements::new(all.iter().cloned()).with(&mix))
        {
            cards[card] |= slices;
            got += profile.compute;
            running.push((now + duration, card, slices));
        }
    }
    got * 1_000 / asked
}

/// The purpose of the rule: more requests fit.
#[test]
fn more_partitions_fit_than_first_fit_finds_room_for() {
    let all = profiles("A100-40GB");
    let at = |name: &str| all.iter().position(|profile| profile.spelling.as_str() == name).unwrap();
    let (one, two, three, seven) = (at("1g5gb"), at("2g10gb"), at("3g20gb"), at("7g40gb"));
    for mix in [
        vec![(one, 60), (seven, 40)],
        vec![(one, 40), (two, 25), (three, 25), (seven, 10)],
        vec![(one, 30), (two, 30), (three, 40)],
    ] {
        let (by_value, by_order) = (accepted(&mix, least_loss), accepted(&mix, first_fit));
        println!("{mix:?}: {by_value} by value, {by_order} by order");
        assert!(
            by_value >= by_order + 5 && by_value > 900,
            "{mix:?}: {by_value} by value, {by_order} by order"
        );
    }
}

fn node(cards: usize) -> Devices {
    let profiles = profiles("A100-40GB");
    let mut devices: Vec<Value> = Vec::new();
    let mut sets: Vec<Value> = Vec::new();
    for card in 0..cards {
        let counter_set = format!("card-{card}");
        let counters = |slices: u64| -> serde_json::Map<String, Value> {
            let numbers = (0..8).filter(|slice| slices >> slice & 1 == 1);
            numbers.map(|slice| (format!("memory-slice-{slice}"), json!({"value": "1"}))).collect()
        };
        sets.push(json!({"name": counter_set, "counters": counters(0xff)}));
        for (profile, slices) in placements(&profiles) {
            devices.push(json!({
                "name": format!("gpu-{:02x}-00-mig-{profile}-{}", 0x10 + card, slices.trailing_zeros()),
                "attributes": {"profile": {"string": profile.as_str()}},
                "consumesCounters": [{"counterSet": counter_set, "counters": counters(slices)}],
            }));
        }
    }
    Devices::new(&devices, &sets)
}

fn ask(profile: &str) -> String {
    format!(r#"device.attributes["gpu.tessera.dev"].profile == "{profile}""#)
}

/// A half goes beside a small partition where no other half fits anyway; small ones stay together.
#[test]
fn partitions_are_taken_where_they_hurt_least() {
    let mut node = node(3);
    for _ in 0..100 {
        for profile in ["1g5gb", "3g20gb", "7g40gb"] {
            node.mix.arrived(&profile.parse().unwrap());
            node.mix.departed();
        }
    }
    // Card 0: one slice of its second half is in use.
    node.states = [(address(0), CardState { used: 125, slices: 1 << 6 })].into_iter().collect();
    assert_eq!(node.place(None, 1, &ask("3g20gb")), ["gpu-10-00-mig-3g20gb-0"]);
    assert_eq!(node.place(None, 1, &ask("1g5gb"))[0].split_at(9).0, "gpu-10-00");
    assert_eq!(node.place(None, 2, &ask("3g20gb")), ["gpu-10-00-mig-3g20gb-0", "gpu-11-00-mig-3g20gb-4"]);
}

/// If the room is unaffected, the first cards fill up, so that the last can become empty.
#[test]
fn partitions_that_cost_the_same_go_to_the_first_card() {
    let mut node = node(3);
    for _ in 0..100 {
        for profile in ["1g5gb", "7g40gb"] {
            node.mix.arrived(&profile.parse().unwrap());
            node.mix.departed();
        }
    }
    let used = |slices: u64| CardState { used: 125, slices };
    node.states = [(address(1), used(1 << 6)), (address(2), used(1))].into_iter().collect();
    assert_eq!(node.place(None, 1, &ask("1g5gb")), ["gpu-11-00-mig-1g5gb-5"]);
}
