//! The search used before plans by arithmetic: the shortest prefix of all units in the order of cost whose end makes room, without
//! those that turn out needless. Each step places all pods anew.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::scene::{PRIORITY, Scene, World};

/// Indices of the victims, if any make room.
pub fn fewest(scene: &Scene, needed: usize) -> Option<Vec<usize>> {
    let mut units: Vec<usize> =
        (0..scene.units.len()).filter(|unit| scene.units[*unit].priority < PRIORITY).collect();
    units.sort_by_key(|unit| {
        let unit = &scene.units[*unit];
        let devices = Reverse(unit.claims.len());
        (unit.priority, unit.is_gang, unit.pods.len(), devices, Reverse(unit.created.clone()))
    });
    let nodes_with = |gone: &[usize]| -> Option<BTreeSet<u32>> {
        let mut world = World::new(scene, gone);
        let waiting = scene.waiting_pods(&world);
        let placed = world.place(&waiting, needed)?;
        Some(placed.iter().map(|placed| placed.node).collect())
    };
    let enough = (1..=units.len()).find(|enough| nodes_with(&units[..*enough]).is_some())?;
    let mut victims = units[..enough].to_vec();
    let nodes = nodes_with(&victims)?;
    let near: Vec<usize> =
        victims.iter().copied().filter(|unit| !scene.nodes_of(*unit).is_disjoint(&nodes)).collect();
    if nodes_with(&near).is_some() {
        victims = near;
    }
    for place in (0..victims.len()).rev() {
        let mut without = victims.clone();
        without.remove(place);
        if nodes_with(&without).is_some() {
            victims = without;
        }
    }
    Some(victims)
}
