//! Spreading over zones, racks or other domains named by a node label.

use std::collections::BTreeMap;

use tessera_cluster::Cluster;

use crate::fleet::{Fleet, NodeIndex};
use crate::score::Score;
use crate::view::View;

/// Label key over whose values the node's pool spreads; with several pools, from the first card with a key.
pub fn topology_key(fleet: &Fleet, node: NodeIndex) -> Option<&str> {
    let (_, report) = fleet.node(node).report.as_ref()?;
    report.cards.values().find_map(|card| card.placement.spread_topology_key.as_deref())
}

/// Among the nodes suiting as well as the first, the best one in the least used domain.
pub fn least_used(key: &str, candidates: &[(Score, NodeIndex)], view: &mut View<'_>) -> Option<NodeIndex> {
    let used = used_by_domain(key, view);
    let (first, _) = candidates.first()?;
    let equal = candidates.iter().take_while(|(score, _)| score.is_equal_but_for_use(first));
    // Compared without division: used part of one times cards of the other. A domain always has the candidate's cards.
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

/// Used thousandths and number of cards by label value, over all nodes. Nodes without the label form one domain.
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
