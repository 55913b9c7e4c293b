//! Spreading over zones, racks or whatever a label of nodes names.

use std::collections::BTreeMap;

use tessera_cluster::Cluster;

use crate::fleet::{Fleet, NodeIndex};
use crate::score::Score;
use crate::view::View;

/// The label by whose values the node's pool spreads; of several pools, that of the first card that has one.
pub fn topology_key(fleet: &Fleet, node: NodeIndex) -> Option<&str> {
    let (_, report) = fleet.node(node).report.as_ref()?;
    report.cards.values().find_map(|card| card.placement.spread_topology_key.as_deref())
}

/// Of the nodes that suit as well as the first, best first, the one in the domain of which least is in use.
pub fn least_used(key: &str, candidates: &[(Score, NodeIndex)], view: &mut View<'_>) -> Option<NodeIndex> {
    let used = used_by_domain(key, view);
    let (first, _) = candidates.first()?;
    let equal = candidates.iter().take_while(|(score, _)| score.is_equal_but_for_use(first));
    // Compared without division: used of one times cards of the other. A domain always has the candidate's cards.
    let share = |index: NodeIndex| {
        let domain = domain(key, view.cluster, &view.fleet.node(index).name);
        let (used, cards) = used.get(domain).copied().unwrap_or((0, 1));
        (used, cards.max(1))
    };
    let least = equal.map(|(_, index)| (share(*index), *index)).reduce(|best, other| {
        let ((used, cards), (best_used, best_cards)) = (other.0, best.0);
        if used * best_cards < best_used * cards { other } else { best }
    });
    least.map(|(_, index)| index)
}

/// Thousandths of cards in use, and cards, of all nodes by the value of their label. Nodes without it are one domain.
fn used_by_domain<'v>(key: &str, view: &mut View<'v>) -> BTreeMap<&'v str, (u64, u64)> {
    let mut domains: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for index in 0..view.fleet.len() as NodeIndex {
        let domain = domain(key, view.cluster, &view.fleet.node(index).name);
        let cards = view.fleet.cards(index, view.cluster, view.driver);
        let sums = domains.entry(domain).or_default();
        *sums = (sums.0 + u64::from(cards.used()), sums.1 + cards.cards.len() as u64);
    }
    domains
}

fn domain<'c>(key: &str, cluster: &'c Cluster, node: &str) -> &'c str {
    let node = cluster.objects().node(node);
    let labels = node.and_then(|node| node.metadata.labels.as_ref());
    labels.and_then(|labels| labels.get(key)).map_or("", String::as_str)
}
