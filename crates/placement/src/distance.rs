//! How far apart nodes are, and in which order to try parts of a cluster for pods that talk to each other.

use std::collections::BTreeMap;

use crate::score::Score;

/// The parts of a cluster that a node is in, the narrowest first: its NVLink domain, then the values of topology keys. `None`
/// where it is in none.
pub type Path = Vec<Option<String>>;

/// A node that could take pods.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Name of the node.
    pub name: String,
    /// What the first pod there costs.
    pub score: Score,
    /// About how many of the pods it takes.
    pub pods: usize,
    /// Where it is.
    pub path: Path,
}

/// Nodes to try together.
#[derive(Debug)]
pub struct Area {
    /// In the order in which they are to be filled: neighbours follow each other.
    pub nodes: Vec<String>,
    /// Whether these are all candidates.
    pub is_all: bool,
}

/// Whether an NVLink domain is more than one machine: that of a machine alone is named by a card's address.
pub fn spans_machines(domain: &str) -> bool {
    // `<clusterUUID>.<cliqueId>`, see tessera_api::attribute::NVLINK_DOMAIN.
    domain.split_once('.').is_some_and(|(cluster, _)| cluster.len() == 36 && !cluster.contains(':'))
}

/// The parts of the cluster to try for so many pods, the narrowest first, of those the one with the least room to spare; all
/// nodes last. Where partners of the pods have nodes already, only parts that these are in.
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

/// About how many pods the nodes take.
fn room(nodes: &[&Candidate]) -> usize {
    nodes.iter().map(|node| node.pods).sum()
}

/// Nodes of one part at `level` in the order in which they are to be filled by so many pods: part after part of the level below,
/// the one that takes all that are left with the least room to spare, else the one that takes most.
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

/// The nodes that lose least by it and take so many pods, in the order of their names, then the others.
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

/// A name as people sort it: `node-2` before `node-10`.
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
