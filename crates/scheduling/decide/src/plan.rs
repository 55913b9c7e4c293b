//! From a group to a plan: nodes and devices for its pods, before anything is written.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_allocator::inventory::SliceKind;
use tessera_api::gpu_pool::Allocation;
use tessera_cluster::{AllocationExt, CardClass, Cluster, Key, PodExt};
use tessera_placement::demand::Demand;
use tessera_placement::fit::Fit;
use tessera_placement::fleet::{Fleet, NodeIndex};
use tessera_placement::reason::Reason;
use tessera_placement::score::Way;
use tessera_placement::seats::{self, NoSeats, Places};
use tessera_placement::statement::{Base, Statement};
use tessera_placement::take_limit::TakeLimit;
use tessera_placement::view::View;
use tessera_placement::{Time, spread};

use crate::group::{Group, Member, Placement};
use crate::nodes::{self, NodeFilter, Ranked};
use crate::open_seats::{self, FreeNodes};
use crate::state::State;
use crate::wait_reason::WaitReason;
use crate::world::World;
use crate::{leadership, teams};

/// Limit on kinds of nodes tried for devices within a team's limit.
const MOST_KINDS: usize = 16;

/// Limit on pools named in a reason.
const MOST_POOLS: usize = 3;

/// What may be done for the open pods of a group.
pub(crate) enum Plan<'m> {
    /// Allocate managed cards. Empty if as many pods as fit have their devices already.
    Allocate(Vec<Placement<'m>>),
    /// Propose this node to kube-scheduler, which allocates the devices.
    Steer { node: String, why: String },
    /// Only kube-scheduler can place the pod, or find out that nobody can.
    Leave(String),
    /// Nothing, for now.
    Wait(WaitReason),
    /// Managed cards suit, and no node has room; with the reason.
    NoRoom(String),
    /// Nodes have room, and the devices would exceed a limit of the team; with the reason.
    OverLimit(String),
}

/// Plans the open pods: all of them or, if not all fit, as many as do, but at least `needed`.
pub(crate) fn plan<'m>(
    state: &mut State,
    now: Time,
    group: &Group,
    open: &[&'m Member],
    needed: usize,
) -> Plan<'m> {
    match (group.is_alone(), open) {
        (true, [member]) => of_one(state, now, member),
        _ => of_gang(state, now, group, open, needed),
    }
}

fn of_gang<'m>(state: &mut State, now: Time, group: &Group, open: &[&'m Member], needed: usize) -> Plan<'m> {
    let allowance = teams::allowance(&state.world, open);
    let limit = state.world.teams.limit(group.id.namespace(), allowance);
    let members = open;
    let open =
        open_seats::open_seats(&state.world, &state.gangs, (&state.standing, &state.refusals), now, open);
    let partners = group.nodes();
    let filter = FreeNodes { now, open: &open, refusals: &state.refusals, standing: &state.standing };
    let mut place = |limit: Option<&TakeLimit>| {
        let (base, rankings, topology_keys) = state.world.base();
        let mut statement = Statement::new(Base { limit, ..base });
        let places = Places { topology_keys, partners: &partners };
        seats::place(&mut statement, rankings, &open.seats, needed, places, &filter)
    };
    let placed = place(limit.as_ref());
    if limit.is_some() && matches!(placed, Err(NoSeats::TooFew(..))) && place(None).is_ok() {
        return over_limit(&state.world, members);
    }
    match placed {
        Ok(placed) => Plan::Allocate(open_seats::placements(&state.world, &open, placed)),
        Err(NoSeats::Fatal(error)) => Plan::NoRoom(error),
        Err(NoSeats::NotManaged(seat)) => Plan::NoRoom(format!(
            "no card of a managed pool is what pod {} of the gang asks for: gangs need managed pools",
            open.seats[seat].key.name
        )),
        Err(NoSeats::TooFew(fit, sentence)) => Plan::NoRoom(format!(
            "gang {}: {fit} of {needed} pods that it needs fit now; for the next, {sentence}",
            group.name()
        )),
    }
}

/// The reason before this term may allocate.
pub(crate) fn too_early() -> WaitReason {
    WaitReason::Passing("waits until the controller knows all allocations".to_owned())
}

/// Why gangs get nothing in a fleet whose nodes report no card of a managed pool: no term ever allocates there.
pub(crate) fn no_managed_pool(world: &World) -> Option<WaitReason> {
    let reports = world.fleet.nodes().filter_map(|node| node.report.as_ref());
    let cards = reports.flat_map(|(_, report)| report.cards.values());
    let mut pools = BTreeMap::new();
    for card in cards {
        if card.allocation == Allocation::Managed {
            return None;
        }
        pools.extend(card.pool.as_deref().map(|pool| (pool, card.allocation)));
    }
    let shown =
        pools.iter().take(MOST_POOLS).map(|(pool, allocation)| format!("GpuPool {pool} is {allocation}"));
    let mut parts: Vec<String> = shown.collect();
    if pools.len() > MOST_POOLS {
        parts.push(format!("{} more", pools.len() - MOST_POOLS));
    }
    let pools = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    let text = format!(
        "gangs need cards of a pool with allocation Managed, and no node has any{pools}; without its gang labels each pod is placed alone"
    );
    Some(WaitReason::NoNode { text, keeps_place: false })
}

/// The best node for a pod.
enum Best {
    Node {
        way: Way,
        node: String,
        suitable: usize,
    },
    /// Explanation, and nodes with the devices but without other room. `is_managed`: managed cards suit.
    Nowhere {
        sentence: String,
        crowded: Vec<String>,
        is_managed: bool,
    },
    /// kube-scheduler would end its attempt with this error.
    Fatal(String),
}

fn of_one<'m>(state: &mut State, now: Time, member: &'m Member) -> Plan<'m> {
    let Some(demand) = &member.demand else { return Plan::Allocate(Vec::new()) };
    let (key, pod) = (&member.key, member.pod.as_ref());
    let shared: Vec<Key> = demand.shared().collect();
    if let Some(node) = state.ledger.pods.node_of_claims(&shared) {
        // The claim gets its devices with the first pod; this pod must follow to the same node.
        let why = format!("waits until another pod's claim has devices on {node}");
        return Plan::Wait(WaitReason::Passing(why));
    }
    let best = best_anywhere(state, now, demand, pod);
    let is_managed = match &best {
        Best::Node { way, .. } => *way == Way::Managed,
        Best::Nowhere { is_managed, .. } => *is_managed,
        Best::Fatal(_) => false,
    };
    state.waits.set_managed(key, is_managed);
    match best {
        Best::Node { way: Way::Managed, .. } if !leadership::may_allocate(&state.leadership) => {
            Plan::Wait(too_early())
        }
        Best::Node { way: Way::Managed, .. }
            if demand.subject.claims.iter().any(|wanted| wanted.made_from.is_some()) =>
        {
            Plan::Wait(WaitReason::Passing("its ResourceClaims do not exist yet".to_owned()))
        }
        Best::Node { way: Way::Managed, node, suitable } => of_managed(state, now, member, &node, suitable),
        Best::Node { way: Way::Steered, node, .. } if is_steered_over_limit(state, member, &node) => {
            over_limit(&state.world, &[member])
        }
        Best::Node { way: Way::Steered, node, suitable } => {
            let why = chosen(&node, suitable);
            Plan::Steer { node, why }
        }
        Best::Node { way: Way::Native, .. } => {
            Plan::Leave("only cards of pools with native allocation suit now".to_owned())
        }
        Best::Fatal(error) => Plan::Leave(error),
        Best::Nowhere { sentence, is_managed: true, .. } => Plan::NoRoom(sentence),
        Best::Nowhere { .. } if !pod.is_gated() => Plan::Leave(String::new()),
        Best::Nowhere { sentence, crowded, .. } => {
            if let Some(node) = crowded.iter().find(|node| could_preempt(&state.world, pod, node)) {
                Plan::Leave(format!(
                    "pods of lower priority could make room on {node}; that is kube-scheduler's part"
                ))
            } else if !nodes::is_ours(&mut state.world, demand) {
                Plan::Leave("no card of a steered pool is what it asks for".to_owned())
            } else {
                Plan::Wait(WaitReason::NoNode { text: sentence, keeps_place: false })
            }
        }
    }
}

/// The devices on the best node or, where its devices would exceed a limit of the team, on a node of another kind.
fn of_managed<'m>(state: &mut State, now: Time, member: &'m Member, best: &str, suitable: usize) -> Plan<'m> {
    let Some(demand) = &member.demand else { return Plan::Allocate(Vec::new()) };
    let allowance = teams::allowance(&state.world, &[member]);
    let limit = state.world.teams.limit(&member.key.namespace, allowance);
    let fit =
        |state: &mut State, index| nodes::fit_managed_cards(&mut state.world, demand, index, limit.as_ref());
    let mut found = state.world.fleet.find(best).map(|index| (index, fit(state, index)));
    let is_over = matches!(found, Some((_, Fit::Blocked(Reason::TeamLimit))));
    if let Some(limit) = limit.as_ref().filter(|_| is_over) {
        let others = one_of_each_kind(state, now, demand, &member.pod, limit);
        state.round.count_search(0, others.len());
        let mut fits = others.into_iter().map(|index| (index, fit(state, index)));
        found = fits.find(|(_, fit)| matches!(fit, Fit::Takes(_)));
        if found.is_none() {
            return over_limit(&state.world, &[member]);
        }
    }
    let Some((index, Fit::Takes(fit))) = found else { return Plan::Allocate(Vec::new()) };
    let node = state.world.fleet.node(index).name.clone();
    let why = chosen(&node, suitable);
    Plan::Allocate(vec![Placement { member, node, fit, why }])
}

/// The best node of each kind with free cards of which the limit leaves something, the best first. Nodes with several models are of a kind
/// where as much is free of each.
fn one_of_each_kind(
    state: &mut State,
    now: Time,
    demand: &Demand,
    pod: &Pod,
    limit: &TakeLimit,
) -> Vec<NodeIndex> {
    let filter = NodeFilter::new(&state.world, &state.gangs, &state.standing, &state.refusals, now, pod);
    let ranked = nodes::ranked(&mut state.world, demand);
    let free: Vec<NodeIndex> = ranked.free(&filter).map(|(_, index)| index).collect();
    let View { cluster, fleet, driver, .. } = ranked.view;
    let mut is_left: BTreeMap<CardClass, bool> = BTreeMap::new();
    let mut kinds: HashSet<(Vec<SliceKind>, Vec<u32>)> = HashSet::new();
    let mut nodes = Vec::new();
    for index in free {
        let mut free = free_by_class(fleet, index, cluster, driver);
        let is_one_model = free.len() == 1;
        free.retain(|class, free| {
            let left = || limit.leaves_any_of(cluster, class);
            *free > 0 && *is_left.entry(class.clone()).or_insert_with(left)
        });
        if free.is_empty() || kinds.len() >= MOST_KINDS {
            continue;
        }
        let kind = cluster.inventory().kinds_of_node(&fleet.node(index).name).collect();
        let free = if is_one_model { Vec::new() } else { free.into_values().collect() };
        if kinds.insert((kind, free)) {
            nodes.push(index);
        }
    }
    nodes
}

/// Free thousandths of the node's cards, by class.
fn free_by_class(
    fleet: &mut Fleet,
    index: NodeIndex,
    cluster: &Cluster,
    driver: &str,
) -> BTreeMap<CardClass, u32> {
    let cards = fleet.cards(index, cluster, driver).clone();
    let mut free: BTreeMap<CardClass, u32> = BTreeMap::new();
    for (address, class, _) in fleet.node(index).parts().into_iter().flat_map(|parts| parts.worths()) {
        let of_card = cards.cards.get(address).map_or(0, |card| u32::from(card.free(false)));
        *free.entry(class.clone()).or_default() += of_card;
    }
    free
}

/// Whether the devices that kube-scheduler would choose exceed a limit of the pod's team.
fn is_steered_over_limit(state: &mut State, member: &Member, node: &str) -> bool {
    let limit = state.world.teams.limit(&member.key.namespace, teams::allowance(&state.world, &[member]));
    let (Some(limit), Some(demand)) = (limit, &member.demand) else { return false };
    let Some(fit) = nodes::fit_by_scheduler(&mut state.world, demand, node) else { return false };
    let results: Vec<_> = fit.allocations.iter().flat_map(AllocationExt::results).cloned().collect();
    !limit.allows(&state.world.cluster, &state.world.driver, &results)
}

fn over_limit<'m>(world: &World, open: &[&Member]) -> Plan<'m> {
    Plan::OverLimit(teams::limit_text(world, open))
}

fn chosen(node: &str, suitable: usize) -> String {
    format!("best of {suitable} suitable nodes: {node}")
}

/// The best node without a recent refusal of this owner's pods: one with managed cards if the pod fits there now, else another.
fn best_anywhere(state: &mut State, now: Time, demand: &Demand, pod: &Pod) -> Best {
    let mut managed = None;
    if state.world.fleet.has_managed() {
        let filter = NodeFilter::new(&state.world, &state.gangs, &state.standing, &state.refusals, now, pod);
        match best(nodes::ranked(&mut state.world, demand), &filter) {
            best @ Best::Node { way: Way::Managed, .. } => return best,
            Best::Nowhere { is_managed: false, .. } => {}
            best => managed = Some(best),
        }
    }
    if !pod.is_gated() {
        return managed.unwrap_or(Best::Node { way: Way::Native, node: String::new(), suitable: 0 });
    }
    // kube-scheduler would find no device: skipping its ranking halves the number of rankings kept.
    if let Some(managed) = managed
        .take_if(|_| state.world.fleet.strict(&state.world.cluster, &state.world.driver).hides_everything)
    {
        return managed;
    }
    let filter = NodeFilter::without_queue(&state.standing, &state.refusals, now, pod);
    match (best(nodes::ranked_others(&mut state.world, demand), &filter), managed) {
        (Best::Nowhere { .. }, Some(managed)) => managed,
        (Best::Nowhere { sentence, crowded, .. }, None) => {
            Best::Nowhere { sentence, crowded, is_managed: false }
        }
        (native, _) => native,
    }
}

/// The best node neither reserved for others nor with a recent refusal of this owner's pods.
fn best(mut ranked: Ranked<'_>, filter: &NodeFilter<'_>) -> Best {
    let ranking = ranked.ranking;
    if let Some(error) = ranking.fatal() {
        return Best::Fatal(error.to_owned());
    }
    let Some((score, first)) = ranked.free(filter).next() else {
        let names = ranking.without_room().map(|index| ranked.view.fleet.node(index).name.clone());
        let crowded = names.collect();
        let is_managed = !ranking.is_empty();
        return Best::Nowhere { sentence: ranking.sentence(ranked.kept(filter)), crowded, is_managed };
    };
    let key = spread::topology_key(ranked.view.fleet, first).map(str::to_owned);
    let node = key.and_then(|key| {
        let candidates: Vec<_> = ranked.free(filter).collect();
        spread::least_used(&key, &candidates, &mut ranked.view)
    });
    let node = ranked.view.fleet.node(node.unwrap_or(first)).name.clone();
    Best::Node { way: score.way, node, suitable: ranking.suitable() }
}

/// Whether a pod of lower priority runs on the node and may be preempted by this pod.
fn could_preempt(world: &World, pod: &Pod, node: &str) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
    policy != Some("Never")
        && world.cluster.objects().pods.values().any(|other| {
            other.node_name() == Some(node) && !other.is_finished() && other.priority() < pod.priority()
        })
}
