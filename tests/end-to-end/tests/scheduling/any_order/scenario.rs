//! Scenarios: nodes with their configurations, and claims that come and go. Small values shrink to simple ones.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use tessera_api::Offer;
use tessera_api::offer::{
    Mps, OfHeldCards, Partitioning, PartitioningMode, PlacementOrder, Sharing, TimeSliceInterval, TimeSlicing,
};

use crate::DRIVER;

#[derive(Clone, Debug)]
pub struct Scenario {
    pub nodes: Vec<NodeSpec>,
    pub steps: Vec<Step>,
}

/// A node: its machine, number of cards, and configuration.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Index among the emulator's machines.
    pub machine: Index,
    pub state: MigState,
    pub one_card: bool,
    pub config: ConfigSpec,
}

/// The state in which an administrator has left the cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MigState {
    Off,
    On,
    /// With an instance of the smallest profile, and one of the largest profile that fits beside it.
    ByHand,
}

/// A configuration whose profiles are chosen once the machine is known.
#[derive(Clone, Debug)]
pub struct ConfigSpec {
    whole_cards: bool,
    partitions: Option<Vec<Index>>,
    on_demand: bool,
    highest: bool,
    mps: Option<MpsSpec>,
    replicas: Option<u32>,
}

/// Whether cards too, whether static partitions, profiles, default shares, most clients.
type MpsSpec = (bool, bool, Vec<Index>, u32, Option<u32>);

#[derive(Clone, Debug)]
pub enum Step {
    Arrive(Arrival),
    Depart(Index),
}

/// A pod: its claims, and the node that is tried first.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub first_node: Index,
    pub claims: Vec<Vec<RequestSpec>>,
}

/// A request: one alternative, or several in order.
#[derive(Clone, Debug)]
pub struct RequestSpec {
    pub alternatives: Vec<Ask>,
}

#[derive(Clone, Debug)]
pub struct Ask {
    pub class: &'static str,
    pub count: i64,
    pub capacity: Vec<(&'static str, String)>,
    pub selector: Option<String>,
}

impl ConfigSpec {
    /// The configuration, on a machine with these profiles.
    pub fn on(&self, profiles: &[String]) -> Offer {
        let pick = |chosen: &[Index]| -> Vec<String> {
            if profiles.is_empty() {
                return Vec::new();
            }
            let mut names: Vec<String> =
                chosen.iter().map(|index| profiles[index.index(profiles.len())].clone()).collect();
            names.sort();
            names.dedup();
            names
        };
        let partitioning = Partitioning {
            mode: if self.on_demand { PartitioningMode::OnDemand } else { PartitioningMode::None },
            profiles: self.partitions.as_ref().filter(|_| self.on_demand).map(|chosen| pick(chosen)),
            placement_order: if self.highest {
                PlacementOrder::HighestStart
            } else {
                PlacementOrder::Balanced
            },
            of_held_cards: OfHeldCards::default(),
        };
        let mps = self.mps.as_ref().map(|(cards, is_static, partitions, default_shares, max_clients)| {
            let partitions = pick(partitions);
            let cards = *cards || partitions.is_empty();
            Mps {
                cards,
                static_partitions: cards && *is_static,
                partitions,
                default_shares: *default_shares,
                max_clients: *max_clients,
            }
        });
        let time_slicing =
            self.replicas.map(|replicas| TimeSlicing { replicas, interval: TimeSliceInterval::Default });
        let config = Offer {
            whole_cards: self.whole_cards,
            partitioning,
            sharing: Sharing { mps, time_slicing, ..Sharing::default() },
            ..Offer::default()
        };
        config.check().unwrap();
        config
    }
}

impl Ask {
    /// As in a claim.
    pub fn to_json(&self) -> Value {
        let class =
            if self.class.is_empty() { DRIVER.to_owned() } else { format!("{}.{DRIVER}", self.class) };
        let class = if self.class == "any" { "any".to_owned() } else { class };
        let mut request =
            json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": self.count});
        if let Some(selector) = &self.selector {
            request["selectors"] = json!([{"cel": {"expression": selector}}]);
        }
        if !self.capacity.is_empty() {
            let requests: serde_json::Map<String, Value> =
                self.capacity.iter().map(|(name, amount)| ((*name).to_owned(), json!(amount))).collect();
            request["capacity"] = json!({"requests": requests});
        }
        request
    }
}

pub fn any() -> impl Strategy<Value = Scenario> {
    let step = prop_oneof![
        3 => arrival().prop_map(Step::Arrive),
        1 => any_index().prop_map(Step::Depart),
    ];
    (vec(node(), 1..=3), vec(step, 1..=80)).prop_map(|(nodes, steps)| Scenario { nodes, steps })
}

fn any_index() -> impl Strategy<Value = Index> {
    proptest::prelude::any::<Index>()
}

fn node() -> impl Strategy<Value = NodeSpec> {
    let state = prop_oneof![4 => Just(MigState::Off), 4 => Just(MigState::On), 1 => Just(MigState::ByHand)];
    (any_index(), state, proptest::bool::ANY, config())
        .prop_map(|(machine, state, one_card, config)| NodeSpec { machine, state, one_card, config })
}

fn config() -> impl Strategy<Value = ConfigSpec> {
    let boolean = || proptest::bool::ANY;
    let profiles = || vec(any_index(), 0..=3);
    let mps = (
        boolean(),
        proptest::bool::weighted(0.2),
        profiles(),
        prop_oneof![3 => 1..=8_u32, 1 => 1..=100_u32],
        proptest::option::of(1..=70_u32),
    );
    (
        boolean(),
        proptest::option::of(profiles()),
        proptest::bool::weighted(0.8),
        boolean(),
        proptest::option::weighted(0.85, mps),
        proptest::option::of(2..=12_u32),
    )
        .prop_map(|(whole_cards, partitions, on_demand, highest, mps, replicas)| ConfigSpec {
            whole_cards,
            partitions,
            on_demand,
            highest,
            mps,
            replicas,
        })
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let requests = || vec(request(), 1..=3);
    let claims = prop_oneof![4 => vec(requests(), 1), 1 => vec(requests(), 2)];
    // Many pods want one thing.
    let one = ask().prop_map(|ask| vec![vec![RequestSpec { alternatives: vec![ask] }]]);
    (any_index(), prop_oneof![2 => one, 1 => claims])
        .prop_map(|(first_node, claims)| Arrival { first_node, claims })
}

fn request() -> impl Strategy<Value = RequestSpec> {
    prop_oneof![2 => vec(ask(), 1), 1 => vec(ask(), 2..=3)]
        .prop_map(|alternatives| RequestSpec { alternatives })
}

fn ask() -> impl Strategy<Value = Ask> {
    let class = prop_oneof![
        4 => Just("mps"),
        2 => Just("timeslice"),
        1 => Just(""),
        2 => Just("mig"),
        1 => Just("any"),
    ];
    let count = prop_oneof![4 => Just(1_i64), 1 => 2..=3_i64];
    let capacity =
        prop_oneof![vec((capacity_name(), quantity()), 0), vec((capacity_name(), quantity()), 1..=2)];
    let capacity = capacity.prop_map(|mut capacity| {
        capacity.sort();
        capacity.dedup_by(|one, other| one.0 == other.0);
        capacity
    });
    (class, count, capacity, proptest::option::weighted(0.2, selector())).prop_map(
        |(class, count, capacity, selector)| {
            // The class of everything has no selector, and this one would match no devices of other drivers.
            let selector = if class == "any" { None } else { selector };
            Ask { class, count, capacity, selector }
        },
    )
}

fn capacity_name() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        6 => Just("memory"),
        6 => Just("compute"),
        4 => Just("clients"),
        1 => Just("slots"),
        1 => Just("gpu.tessera.dev/memory"),
        1 => Just("multiprocessors"),
    ]
}

/// Quantities as people write them, and invalid ones.
fn quantity() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (1..=60_u32).prop_map(|number| number.to_string()),
        4 => (1..=30_000_u32).prop_map(|mebibytes| format!("{mebibytes}Mi")),
        2 => (1..=90_u32).prop_map(|gibibytes| format!("{gibibytes}Gi")),
        1 => (1..=200_u32).prop_map(|gigabytes| format!("{gigabytes}G")),
        1 => (1..=50_000_u32).prop_map(|thousandths| format!("{thousandths}m")),
        1 => (1..=9_999_u32).prop_map(|number| format!("{}.{:03}Gi", number / 1000, number % 1000)),
        1 => proptest::sample::select(vec!["0", "-1", "1n", "1e9", "0.5", "12.5", "1e-3", "1Ti"]).prop_map(str::to_owned),
        // kube-scheduler turns these into negative amounts where a step makes it round.
        1 => proptest::sample::select(vec!["8Ei", "9223372036854775807", "1e30", "9223372036720558081"])
            .prop_map(str::to_owned),
    ]
}

fn selector() -> impl Strategy<Value = String> {
    let own = |text: &str| format!("device.attributes[\"{DRIVER}\"].{text}");
    prop_oneof![
        Just(own("?profile.orValue(\"\") != \"\"")),
        Just(own("?profile.orValue(\"\") == \"\"")),
        Just(own("?memoryMiB.orValue(0) >= 20000")),
        Just(format!("device.capacity[\"{DRIVER}\"].memory.compareTo(quantity(\"16Gi\")) >= 0")),
    ]
}
