//! Borrowed devices: what a team uses beyond its guarantee, and may have to give back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_api::gpu_quota::BORROW_LABEL;
use tessera_cluster::gang::GangId;
use tessera_cluster::worth::Worth;
use tessera_cluster::{CardClass, Cluster, Hold, Holder, Key};
use tessera_placement::Time;
use tessera_placement::take_limit::Rule;
use tessera_placement::victims::Unit;

use super::{TeamId, Teams};
use crate::gangs::Gangs;
use crate::group::Member;
use crate::nominations::at;
use crate::world::World;

/// How many devices a team may have with those of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Allowance {
    /// Any number: the priority class of the pods is exempt.
    Unlimited,
    /// As many as the limits of the team and its parent allow.
    Limits,
    /// No more than is guaranteed to the team: the group does not borrow.
    Guarantee,
    /// As many as the limits allow, and no more than is guaranteed to the parent.
    ParentGuarantee,
}

/// Whether the pod may use devices beyond its team's guarantee: devices are not lent without a way to take them back.
pub(crate) fn may_borrow(cluster: &Cluster, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(BORROW_LABEL)).is_none_or(|value| value != "false")
        && !cluster.objects().budgets_of(pod).any(|(_, budget)| budget.never_allows_any())
}

/// The allowance of these pods; without any quota, [`Allowance::Limits`].
pub(crate) fn allowance(World { teams, cluster, .. }: &World, open: &[&Member]) -> Allowance {
    if teams.is_empty() || open.is_empty() {
        Allowance::Limits
    } else if open.iter().all(|member| teams.is_exempt(&member.pod)) {
        Allowance::Unlimited
    } else if open.iter().all(|member| may_borrow(cluster, &member.pod)) {
        Allowance::Limits
    } else {
        Allowance::Guarantee
    }
}

/// What the team of these pods has of their limits, for its members, and which budget keeps the pods from borrowing.
pub(crate) fn limit_text(world: &World, open: &[&Member]) -> String {
    let World { teams, cluster, .. } = world;
    let Some(first) = open.first() else { return String::new() };
    let allowance = allowance(world, open);
    let text = teams.limit_text(cluster, &first.key.namespace, allowance);
    let never = |member: &&Member| {
        let mut budgets = cluster.objects().budgets_of(&member.pod);
        budgets.find(|(_, budget)| budget.never_allows_any()).map(|(key, _)| key.name.clone())
    };
    match open.iter().find_map(never).filter(|_| allowance == Allowance::Guarantee) {
        Some(budget) => {
            format!("{text}; it does not borrow: PodDisruptionBudget {budget} never allows its eviction")
        }
        None => text,
    }
}

/// The unit's devices, as counted by the rule.
pub(crate) fn charge_of(cluster: &Cluster, unit: &Unit, rule: &Rule) -> u64 {
    let is_counted = |pod: &Key| rule.namespaces.contains(&pod.namespace);
    if unit.pods.iter().any(is_counted) { rule.of(worths(cluster, unit)) } else { 0 }
}

/// Units that may be taken back.
#[derive(Debug, Default)]
pub(crate) struct Reclaimable {
    /// By unit: its rank, the first to go with the least; `None` for a unit that stays.
    pub ranks: Vec<Option<i32>>,
    /// By unit: whether it is within the guarantee of its team's parent, so that none but the parent's own teams take it back.
    pub is_in_family: Vec<bool>,
    /// When time alone adds a unit.
    pub next: Option<Time>,
}

/// Who holds what of these units: by team, in the order of borrowing. Holds until an object changes, and so for a round.
#[derive(Debug, Default)]
pub(crate) struct Borrowers {
    /// By unit: its team.
    team_of: Vec<TeamId>,
    /// By unit: its place in the order of borrowing.
    place_of: Vec<usize>,
    /// Units of each team, in the order of borrowing, without those of exempt pods.
    of_teams: BTreeMap<TeamId, Vec<usize>>,
    /// By team: use of what is guaranteed to it, and the units beyond with this use.
    beyond: BTreeMap<TeamId, (Vec<u64>, Vec<usize>)>,
}

impl Borrowers {
    /// The holders of these units. The order of borrowing: those that never borrow, then by priority and age, then pods that their gangs do
    /// not need.
    pub fn of(World { teams, cluster, .. }: &World, gangs: &Gangs, units: &[Unit]) -> Self {
        let team = |unit: &Unit| unit.pods.first().and_then(|pod| teams.team_of(&pod.namespace));
        let mut found = Borrowers { team_of: units.iter().map(team).collect(), ..Borrowers::default() };
        if teams.is_empty() {
            return found;
        }
        let mut order: Vec<usize> = (0..units.len()).collect();
        order.sort_by_cached_key(|place| {
            let unit = &units[*place];
            let is_surplus = is_surplus(cluster, gangs, unit);
            (is_surplus, borrows(cluster, unit), Reverse(unit.priority), unit.created.clone(), *place)
        });
        found.place_of = vec![0; units.len()];
        for (place, unit) in order.into_iter().enumerate() {
            found.place_of[unit] = place;
            // Preempted by an exempt pod, a team must not take the devices back from it.
            if !pods(cluster, &units[unit]).all(|pod| teams.is_exempt(pod)) {
                found.of_teams.entry(found.team_of[unit]).or_default().push(unit);
            }
        }
        found
    }

    /// The unit's team.
    pub fn team_of(&self, unit: usize) -> TeamId {
        self.team_of[unit]
    }

    /// Indices of the team's units.
    pub fn of_team(&self, team: TeamId) -> impl Iterator<Item = usize> {
        (0..self.team_of.len()).filter(move |unit| self.team_of[*unit] == team)
    }

    /// The team's units beyond its guarantee now. Only charges change within a round.
    fn beyond(
        &mut self,
        world: &World,
        gangs: &Gangs,
        team: TeamId,
        (units, leaving): (&[Unit], &[bool]),
    ) -> &[usize] {
        let used = world.teams.get(team).map_or_else(Vec::new, |team| {
            team.guarantees().iter().map(|rule| rule.taken(&world.cluster)).collect()
        });
        if self.beyond.get(&team).is_none_or(|(known, _)| *known != used) {
            let of_team = self.of_teams.get(&team).cloned().unwrap_or_default();
            let beyond = borrowed(world, gangs, team, (units, leaving), of_team);
            self.beyond.insert(team, (used, beyond));
        }
        &self.beyond[&team].1
    }

    /// The units beyond the guarantee of the family, among those beyond a guarantee of its teams.
    fn beyond_family(
        &mut self,
        world: &World,
        gangs: &Gangs,
        family: TeamId,
        (units, leaving): (&[Unit], &[bool]),
    ) -> BTreeSet<usize> {
        let of_family = |team: &TeamId| world.teams.family(*team) == family;
        let teams: Vec<TeamId> = self.of_teams.keys().copied().filter(of_family).collect();
        let mut all = Vec::new();
        for team in teams {
            all.extend(self.beyond(world, gangs, team, (units, leaving)));
            // Pods that are ending fill no guarantee, their parent's neither.
            all.extend(self.of_teams[&team].iter().filter(|place| leaving[**place]));
        }
        all.sort_unstable_by_key(|unit| self.place_of[*unit]);
        borrowed(world, gangs, family, (units, leaving), all).into_iter().collect()
    }

    /// The team's units that may be taken back now for teams of its own parent (`is_family`), or of others.
    pub fn may_go(
        &mut self,
        world: &World,
        gangs: &Gangs,
        now: Time,
        (team, is_family): (TeamId, bool),
        (units, leaving): (&[Unit], &[bool]),
    ) -> BTreeSet<usize> {
        let beyond = self.beyond(world, gangs, team, (units, leaving)).iter().copied();
        let from = |unit: &usize| taken_back_from(&world.teams, &world.cluster, team, &units[*unit]);
        let mut found: BTreeSet<usize> =
            beyond.filter(|unit| from(unit).is_some_and(|from| from <= now)).collect();
        if !is_family && !found.is_empty() {
            let of_family = self.beyond_family(world, gangs, world.teams.family(team), (units, leaving));
            found.retain(|unit| of_family.contains(unit));
        }
        found
    }

    /// The units that may be taken back now. `leaving`: by unit, whether its pods are already ending; such units are not taken back.
    pub fn reclaimable(
        &mut self,
        world: &World,
        gangs: &Gangs,
        now: Time,
        (units, leaving): (&[Unit], &[bool]),
    ) -> Reclaimable {
        let World { teams, cluster, .. } = world;
        let (ranks, is_in_family) = (vec![None; units.len()], vec![false; units.len()]);
        let mut found = Reclaimable { ranks, is_in_family, next: None };
        // The team furthest above its share gives back first.
        let mut order: Vec<TeamId> = self.of_teams.keys().copied().collect();
        order.sort_by_cached_key(|team| Reverse(teams.place_now(cluster, *team)));
        let mut families: BTreeMap<TeamId, Vec<usize>> = BTreeMap::new();
        let mut keys: Vec<(usize, bool, i32, usize)> = Vec::new();
        for (rank, team) in order.into_iter().enumerate() {
            let of_family = families.entry(teams.family(team)).or_default();
            for place in self.beyond(world, gangs, team, (units, leaving)) {
                of_family.push(*place);
                match taken_back_from(teams, cluster, team, &units[*place]) {
                    Some(from) if from <= now => {
                        let is_needed = !is_surplus(cluster, gangs, &units[*place]);
                        keys.push((rank, is_needed, units[*place].priority, *place));
                    }
                    Some(from) => found.next = found.next.into_iter().chain([from]).min(),
                    None => {}
                }
            }
        }
        for (family, of_family) in families {
            let beyond = self.beyond_family(world, gangs, family, (units, leaving));
            for place in of_family {
                found.is_in_family[place] = !beyond.contains(&place);
            }
        }
        keys.sort_unstable();
        // Units alike but for their age share a rank: the youngest of them goes.
        for (rank, alike) in
            keys.chunk_by(|one, other| (one.0, one.1, one.2) == (other.0, other.1, other.2)).enumerate()
        {
            for (.., place) in alike {
                found.ranks[*place] = i32::try_from(rank).ok();
            }
        }
        found
    }
}

/// Whether the unit is of a gang that goes on without. One that never borrows is as any other.
fn is_surplus(cluster: &Cluster, gangs: &Gangs, unit: &Unit) -> bool {
    !unit.is_gang && gang_of(gangs, unit).is_some() && borrows(cluster, unit)
}

fn gang_of<'g>(gangs: &'g Gangs, unit: &Unit) -> Option<&'g GangId> {
    gangs.of(unit.pods.first()?)
}

/// Of these units, in the order of borrowing, those beyond the team's guarantee. Units that are leaving are neither beyond it nor fill it:
/// they are about to go.
fn borrowed(
    World { teams, cluster, .. }: &World,
    gangs: &Gangs,
    team: TeamId,
    (units, leaving): (&[Unit], &[bool]),
    mut of_team: Vec<usize>,
) -> Vec<usize> {
    let Some(team) = teams.get(team) else {
        of_team.retain(|place| !leaving[*place]);
        return of_team;
    };
    let guaranteed = team.guarantees();
    let of_unit = |place: &usize, rule: &Rule| charge_of(cluster, &units[*place], rule);
    // Claims of nobody who can be asked, such as kube-scheduler's own, come first within the guarantee.
    let of_units =
        |rule: &Rule| of_team.iter().map(|place| of_unit(place, rule)).fold(0, u64::saturating_add);
    let mut sums: Vec<u64> =
        guaranteed.iter().map(|rule| rule.taken(cluster).saturating_sub(of_units(rule))).collect();
    of_team.retain(|place| !leaving[*place]);
    let mut gangs_beyond: BTreeSet<&GangId> = BTreeSet::new();
    of_team.retain(|place| {
        let gang = gang_of(gangs, &units[*place]);
        let more: Vec<u64> = guaranteed.iter().map(|rule| of_unit(place, rule)).collect();
        let after: Vec<u64> = sums.iter().zip(&more).map(|(sum, more)| sum.saturating_add(*more)).collect();
        let is_covered = more.iter().any(|more| *more > 0);
        // A gang that ends leaves none of its pods behind.
        let is_beyond = gang.is_some_and(|gang| gangs_beyond.contains(gang));
        let is_within = is_covered
            && !is_beyond
            && guaranteed.iter().zip(&after).all(|(rule, after)| *after <= rule.most);
        match is_within {
            true => sums = after,
            false => gangs_beyond.extend(gang),
        }
        !is_within
    });
    of_team
}

fn pods<'c>(cluster: &'c Cluster, unit: &'c Unit) -> impl Iterator<Item = &'c Pod> {
    unit.pods.iter().filter_map(|key| cluster.objects().pods.get(key)).map(AsRef::as_ref)
}

fn borrows(cluster: &Cluster, unit: &Unit) -> bool {
    pods(cluster, unit).all(|pod| may_borrow(cluster, pod))
}

fn worths<'c>(cluster: &'c Cluster, unit: &'c Unit) -> impl Iterator<Item = (&'c CardClass, Worth)> {
    let holds = unit.claims.iter().filter_map(|claim| cluster.hold(&Holder::Claim(claim.clone())));
    holds.flat_map(Hold::charge)
}

/// When the kubelet took the pod in; before, when the pod was bound.
fn started(pod: &Pod) -> Option<Time> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let bound = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "True");
    let time = status.start_time.as_ref().or(bound.and_then(|bound| bound.last_transition_time.as_ref()))?;
    Some(at(time.0))
}

/// When the unit, which borrows, may be taken back: after its team's least runtime. `None` for one that is not bound.
/// A pod that is not to borrow comes first within the guarantee: a label put on later is of no use.
fn taken_back_from(teams: &Teams, cluster: &Cluster, team: TeamId, unit: &Unit) -> Option<Time> {
    if unit.claims.is_empty() {
        return None;
    }
    let min_runtime = teams.get(team).map(|team| team.min_runtime).unwrap_or_default();
    let all: Option<Vec<Time>> = pods(cluster, unit).map(started).collect();
    Some((all?.into_iter().max()? + min_runtime).max(teams.reclaim_from()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use k8s_openapi::api::resource::v1::ResourceClaim;
    use serde_json::{Value, json};
    use tessera_cluster::{Asker, GpuQuota, Object};

    use super::*;
    use crate::observe;
    use crate::state::State;

    fn claim(name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": "nlp", "uid": name }, "spec": { "devices": { "requests": [] } },
            "status": { "allocation": { "devices": { "results": [
                { "request": "r", "driver": "gpu.tessera.dev", "pool": "a", "device": name }] } },
                "reservedFor": [{ "resource": "pods", "name": "n0", "uid": "n0" }] } })
    }

    /// An answer is kept only as long as the team uses as much.
    #[test]
    fn what_is_borrowed_follows_the_teams_use() {
        let mut state = State::new("gpu.tessera.dev", Asker::new(|| "share".to_owned()));
        let quota = json!({ "metadata": { "name": "nlp" }, "spec": { "minRuntimeSeconds": 0,
            "namespaceSelector": { "matchLabels": { "team": "nlp" } },
            "amounts": [{ "name": "cards", "unit": "Cards", "guaranteed": 1 }] } });
        let namespace = json!({ "metadata": { "name": "nlp", "labels": { "team": "nlp" } } });
        let pod = json!({ "metadata": { "name": "n0", "namespace": "nlp", "uid": "n0" },
            "spec": { "nodeName": "a", "containers": [] }, "status": { "startTime": "1970-01-01T00:00:00Z" } });
        let objects: [Object; 4] = [
            serde_json::from_value::<Namespace>(namespace).unwrap().into(),
            serde_json::from_value::<GpuQuota>(quota).unwrap().into(),
            serde_json::from_value::<Pod>(pod).unwrap().into(),
            serde_json::from_value::<ResourceClaim>(claim("gpu-01-00")).unwrap().into(),
        ];
        let apply = |state: &mut State, object: Object| {
            observe::apply(state, Time::ZERO, object).unwrap();
            state.world.teams.follow(&mut state.world.cluster, "gpu.tessera.dev", Time::ZERO);
        };
        objects.into_iter().for_each(|object| apply(&mut state, object));
        let key = |name| Key::new("nlp", name);
        let (pods, claims) = (vec![key("n0")], vec![key("gpu-01-00")]);
        let units = [Unit { pods, claims, priority: 0, is_gang: false, created: None }];
        let mut borrowers = Borrowers::of(&state.world, &state.gangs, &units);
        let mut may_go = |state: &State| {
            let team = (state.world.teams.team_of("nlp"), false);
            borrowers.may_go(&state.world, &state.gangs, Time::from_secs(1000), team, (&units, &[false]))
        };
        assert_eq!(may_go(&state), BTreeSet::new());
        apply(&mut state, serde_json::from_value::<ResourceClaim>(claim("gpu-02-00")).unwrap().into());
        assert_eq!(may_go(&state), BTreeSet::from([0]));
    }
}
