//! Costs on nodes of the fleet equal those of node-value packing for the same plain numbers.

use tessera_api::PciBusId;
use tessera_cluster::usage::Room;
use tessera_placement::packing::{Demand, Learned, ModelSet, Node};
use tessera_placement::value::{CardValues, Packing, PlainCard, PlainNode};

const WHOLE: u16 = 1000;

fn address(card: usize) -> PciBusId {
    format!("0000:{:02x}:00.0", card + 1).parse().unwrap()
}

fn cards(node: &Node) -> Vec<PlainCard> {
    let plain =
        |(card, free): (usize, &u16)| PlainCard { address: address(card), model: node.model(), free: *free };
    node.cards().iter().enumerate().map(plain).collect()
}

fn room(cpu_milli: u64, memory_mib: u64) -> Room {
    Room { cpu_milli, memory_mib }
}

/// A fleet in use, similar to openb's.
fn fleet(random: &mut fastrand::Rng) -> Vec<Node> {
    let node = |_| {
        let (model, count, cpu) =
            [(0, 8, 96_000), (1, 2, 64_000), (2, 4, 96_000), (2, 1, 32_000)][random.usize(0..4)];
        let free: Vec<u16> =
            (0..count).map(|_| [0, 100, 190, 530, WHOLE, WHOLE][random.usize(0..6)]).collect();
        Node::in_use(model, &free, (random.u64(0..cpu), cpu), (200 << 10, 256 << 10)).unwrap()
    };
    (0..60).map(node).collect()
}

fn demands() -> Vec<Demand> {
    let demand = |cpu, cards, part, models| Demand::new(cpu, 1024, cards, part, models).unwrap();
    vec![
        demand(4_000, 1, 1000, ModelSet::ANY),
        demand(8_000, 1, 470, ModelSet::ANY),
        demand(12_000, 1, 810, ModelSet::ANY),
        demand(32_000, 4, 1000, ModelSet::ANY),
        demand(64_000, 8, 1000, ModelSet::ANY),
        demand(6_000, 1, 1000, ModelSet::NONE.with(2)),
    ]
}

#[test]
fn a_node_costs_what_packing_says() {
    let mut random = fastrand::Rng::with_seed(3);
    let nodes = fleet(&mut random);
    let mut packing = Packing::default();
    for model in ["a", "b", "c"] {
        packing.model(model);
    }
    let plain = |packing: &mut Packing, node: &Node| {
        let all = room(node.cpu_milli_in_all(), node.memory_mib_in_all());
        packing.node(&cards(node), (all, room(node.cpu_milli(), node.memory_mib())))
    };
    let mut ours: Vec<PlainNode> = nodes.iter().map(|node| plain(&mut packing, node)).collect();
    let mut learned = Learned::new(nodes.iter());
    let demands = demands();
    let (mut compared, mut unequal) = (0, 0);
    for round in 0..600 {
        if packing.look(ours.iter()) {
            ours.iter_mut().for_each(|node| node.revalue(&packing));
        }
        learned.look(nodes.iter());
        let demand = demands[random.usize(0..100) % demands.len()];
        packing.arrived(&[demand]);
        learned.arrived(&demand);
        if round % 3 == 0 {
            packing.departed();
            learned.departed();
        }
        if round % 20 != 0 {
            continue;
        }
        for (node, ours) in nodes.iter().zip(&ours).filter(|(node, _)| node.fits(&demand)) {
            let (wanted, cards) = learned.cost(learned.value(node), node, &demand);
            let mut after = node.clone();
            assert!(after.take(&demand, cards));
            let found = packing.cost(ours, after.cards(), demand.cpu_milli());
            assert_eq!(found, (wanted * 1e9).round() as i64, "round {round}: {demand:?} on {node:?}");
            compared += 1;
            unequal += usize::from(found != 0);
        }
    }
    assert!(compared > 200 && unequal > 100, "{compared} {unequal}");
}

/// Within one node, the card chosen by packing is taken.
#[test]
fn a_share_goes_where_what_is_left_is_wanted() {
    let mut packing = Packing::default();
    packing.model("");
    let share = |part| Demand::new(0, 0, 1, part, ModelSet::ANY).unwrap();
    let node = Node::in_use(0, &[700, 500, WHOLE], (64_000, 64_000), (1 << 10, 1 << 10)).unwrap();
    let ours = packing.node(&cards(&node), (room(64_000, 1 << 10), room(64_000, 1 << 10)));
    // Pods want 700 or 200: the first card can still hold a 700, the second cannot.
    for _ in 0..40 {
        packing.arrived(&[share(700), share(200)]);
    }
    assert!(packing.look(std::iter::once(&ours)));
    let cost = |card: usize| {
        let mut fresh = ours.clone();
        fresh.revalue(&packing);
        let values = CardValues { packing: &packing, node: &fresh, cpu_milli: 0 };
        values.cost(|address_of| if *address_of == address(card) { 200 } else { 0 })
    };
    assert!(cost(1) < cost(0), "{:?}", [0, 1, 2].map(cost));
}

/// A node with two models, or more cards than packing supports, counts as several.
#[test]
fn a_node_of_several_models_is_worth_the_sum() {
    let mut packing = Packing::default();
    let (one, other) = (packing.model("one"), packing.model("other"));
    let card = |card: usize, model: u8| PlainCard { address: address(card), model, free: WHOLE };
    let all: Vec<PlainCard> =
        (0..20).map(|number| card(number, if number < 18 { one } else { other })).collect();
    let enough = room(64_000, 1 << 20);
    let node = packing.node(&all, (enough, enough));
    assert_eq!(node.models().collect::<Vec<_>>(), [one, one, other]);
    assert_eq!((node.cards().count(), node.free().map(u32::from).sum::<u32>()), (20, 20_000));
    packing.look(std::iter::once(&node));
    let mut node = node;
    node.revalue(&packing);
    let mut free: Vec<u16> = node.free().collect();
    free[0] = 0;
    // One card less, and a little for the nineteen cards staying free.
    assert_eq!(packing.cost(&node, &free, 0), 1_000_000_000 + 237_500_000);
}
