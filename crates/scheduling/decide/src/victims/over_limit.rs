//! Victims for a group held up by a limit of its team alone: the group gets free devices, and others counted by the limit give theirs up.

use std::collections::BTreeSet;

use tessera_cluster::{AllocationExt, Key};
use tessera_placement::Time;
use tessera_placement::seats::{self, Places};
use tessera_placement::statement::{Base, Statement};
use tessera_placement::take_limit::{Rule, TakeLimit};
use tessera_placement::victims::{Units, key};

use super::Wanted;
use crate::group::Placement;
use crate::open_seats::{self, FreeNodes};
use crate::state::State;
use crate::teams;

/// Free devices for the pods needed, and the pods of the cheapest units without which no limit is exceeded.
pub(super) fn plan<'m>(
    state: &mut State,
    now: Time,
    wanted: &Wanted<'_, 'm>,
    units: &Units,
    may: &[bool],
) -> Option<(Vec<Placement<'m>>, BTreeSet<Key>)> {
    let limit = wanted.limit?;
    let mut freed = may.iter().zip(units.all()).filter(|(may, _)| **may).flat_map(|(_, unit)| {
        limit.rules.iter().map(|rule| teams::charge_of(&state.world.cluster, unit, rule))
    });
    if freed.all(|freed| freed == 0) {
        return None;
    }
    drop(freed);
    let needed = wanted.needed.clamp(1, wanted.open.len().max(1));
    let needed = wanted.open.get(..needed)?;
    let open =
        open_seats::open_seats(&state.world, &state.gangs, (&state.standing, &state.refusals), now, needed);
    let (base, rankings, topology_keys) = state.world.base();
    let uncounted = TakeLimit { rules: Vec::new(), only: limit.only.clone() };
    let mut statement = Statement::new(Base { limit: Some(&uncounted), ..base });
    let filter = FreeNodes { now, open: &open, refusals: &state.refusals, standing: &state.standing };
    let places = Places { topology_keys, partners: &BTreeSet::new() };
    let placed =
        seats::place(&mut statement, rankings, &open.seats, open.seats.len(), places, &filter).ok()?;
    drop(statement);
    state.round.count_search(0, open.seats.len());
    let takes = placed.iter().flat_map(|placed| &placed.takes.allocations);
    let takes: Vec<_> = takes.flat_map(AllocationExt::results).cloned().collect();
    let cluster = &state.world.cluster;
    let excess = limit.excess(cluster, &state.world.driver, &takes);
    let freed = |unit: &usize| -> Vec<u64> {
        let of_unit = |rule: &Rule| teams::charge_of(cluster, &units.all()[*unit], rule);
        limit.rules.iter().map(of_unit).collect()
    };
    let leaving = (0..units.all().len()).filter(|unit| units.is_leaving(*unit));
    let excess = leaving.fold(excess, |excess, unit| without(&excess, &freed(&unit)));
    let mut order: Vec<usize> = (0..units.all().len()).filter(|unit| may[*unit]).collect();
    order.sort_by_cached_key(|unit| key(&units.all()[*unit]));
    let mut chosen: Vec<(usize, Vec<u64>)> = Vec::new();
    let mut left = excess.clone();
    for unit in order {
        if is_none(&left) {
            break;
        }
        let freed = freed(&unit);
        let after = without(&left, &freed);
        if after != left {
            left = after;
            chosen.push((unit, freed));
        }
    }
    if !is_none(&left) {
        return None;
    }
    // Needless ones stay, the dearest first.
    for place in (0..chosen.len()).rev() {
        let others = chosen.iter().enumerate().filter(|(other, _)| *other != place);
        if is_none(&others.fold(excess.clone(), |excess, (_, (_, freed))| without(&excess, freed))) {
            chosen.remove(place);
        }
    }
    let pods = chosen.iter().flat_map(|(unit, _)| units.all()[*unit].pods.iter().cloned()).collect();
    Some((open_seats::placements(&state.world, &open, placed), pods))
}

fn without(excess: &[u64], freed: &[u64]) -> Vec<u64> {
    excess.iter().zip(freed).map(|(excess, freed)| excess.saturating_sub(*freed)).collect()
}

fn is_none(excess: &[u64]) -> bool {
    excess.iter().all(|excess| *excess == 0)
}
