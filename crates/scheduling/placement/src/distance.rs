//! Distance between nodes, and the order of areas to try for pods talking to each other.

use std::collections::BTreeMap;

use crate::score::Score;

/// The parts of a cluster containing a node, the narrowest first: its NVLink domain, then the values of topology keys. `None` where
/// the node has no such part.
pub type Path = Vec<Option<String>>;

/// A node able to take pods.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Name of the node.
    pub name: String,
    /// Cost of the first pod there.
    pub score: Score,
    /// Estimated number of the pods fitting on the node.
    pub pods: usize,
    /// Location of the node.
    pub path: Path,
}

/// Nodes to try together.
#[derive(Debug)]
pub struct Area {
    /// In filling order, with neighbours next to each other.
    pub nodes: Vec<String>,
    /// Whether the area contains all candidates.
    pub is_all: bool,
}

/// Whether an NVLink domain spans several machines; the domain of a single machine is named by a card's address.
pub fn spans_machines(domain: &str) -> bool {
    // `<clusterUUID>.<cliqueId>`, see tessera_api::attribute::NVLINK_DOMAIN.
    domain.split_once('.').is_some_and(|(cluster, _)| cluster.len() == 36 && !cluster.contains(':'))
}

/// Areas to try for `pods` pods: narrow levels before wide ones, within a level the area with the least spare room first, and all
/// nodes last. Where partners of the pods already run, only areas containing them.
pub fn areas(candidates: Vec<Candidate>, levels: usize, partners: &[Path], pods: usize) -> Vec<Area> {
    let mut areas = Vec::new();
    for level in 0..levels {
        let mut parts: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
        for candidate in &candidates {
            if let Some(part) = &candidate.path[level] {
                parts.entry(part).or_default().push(candidate);
            }
        }
        let has_partners = |part: &str| partners.iter().all(|path| path[level].as_deref() == Some(part));
        parts.retain(|part, nodes| has_partners(part) && room(nodes) >= pods);
        let mut parts: Vec<Vec<&Candidate>> = parts.into_values().collect();
        parts.sort_by_key(|nodes| room(nodes));
        areas.extend(parts.into_iter().map(|nodes| Area { nodes: fill(nodes, level, pods), is_all: false }));
    }
    let nodes = fill(candidates.iter().collect(), levels, pods);
    areas.push(Area { nodes, is_all: true });
    areas
}

/// Estimated number of pods fitting on the nodes.
fn room(nodes: &[&Candidate]) -> usize {
    nodes.iter().map(|node| node.pods).sum()
}

/// Filling order of the nodes of one area at `level`: one part of the level below after another. Next is the tightest part with
/// room for all remaining pods, else the largest.
fn fill(nodes: Vec<&Candidate>, level: usize, pods: usize) -> Vec<String> {
    if level == 0 {
        return side_by_side(nodes, pods);
    }
    let mut parts: BTreeMap<Option<&str>, Vec<&Candidate>> = BTreeMap::new();
    for node in nodes {
        parts.entry(node.path[level - 1].as_deref()).or_default().push(node);
    }
    let mut parts: Vec<(usize, Vec<&Candidate>)> =
        parts.into_values().map(|nodes| (room(&nodes), nodes)).collect();
    let mut left = pods;
    let mut order = Vec::new();
    while !parts.is_empty() {
        let enough = parts.iter().enumerate().filter(|(_, (room, _))| *room >= left);
        let tightest = enough.min_by_key(|(_, (room, _))| *room).map(|(place, _)| place);
        let largest =
            || parts.iter().enumerate().rev().max_by_key(|(_, (room, _))| *room).map(|(place, _)| place);
        let Some(next) = tightest.or_else(largest) else { break };
        let (room, nodes) = parts.remove(next);
        order.extend(fill(nodes, level - 1, left));
        left = left.saturating_sub(room);
    }
    order
}

/// The cheapest nodes with enough room for the pods, sorted by name, followed by the others.
fn side_by_side(mut nodes: Vec<&Candidate>, pods: usize) -> Vec<String> {
    nodes.sort_by_cached_key(|node| (node.score, natural(&node.name)));
    let mut taken = 0;
    let enough = nodes.iter().take_while(|node| {
        let is_needed = taken < pods;
        taken += node.pods;
        is_needed
    });
    let enough = enough.count();
    nodes[..enough].sort_by_cached_key(|node| natural(&node.name));
    nodes.into_iter().map(|node| node.name.clone()).collect()
}

/// Natural sort key: `node-2` sorts before `node-10`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts: Vec<(u64, String)> = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (text, after) = after.split_at(letters);
        parts.push((number.parse().unwrap_or(0), text.to_owned()));
        rest = after;
    }
    parts
}
