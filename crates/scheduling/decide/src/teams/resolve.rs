//! Teams from the GpuQuotas and the labels of namespaces.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tessera_api::gpu_quota::GpuQuotaSpec;
use tessera_cluster::{Cluster, Objects};
use tessera_placement::Time;

use super::covered::Covered;
use super::{Amount, Team, Teams};

impl Teams {
    /// Follows the quotas and namespaces, if any changed, and charges for devices only while there are quotas.
    pub fn follow(&mut self, cluster: &mut Cluster, driver: &str, now: Time) {
        if std::mem::take(&mut self.is_outdated) {
            let (teams, of_namespaces) = resolve(cluster.objects(), driver);
            let before = Teams {
                teams: std::mem::replace(&mut self.teams, teams),
                of_namespaces: std::mem::replace(&mut self.of_namespaces, of_namespaces),
                ..Teams::default()
            };
            if !before.has_terms_of(self, cluster) {
                self.reclaim_from = now + self.grace;
            }
            self.take_books(before.teams);
            cluster.charge_for((!self.teams.is_empty()).then_some(driver));
        }
        cluster.charge_guessed_anew();
    }

    /// Goes on with the books of these teams, but for one with another kind of period.
    fn take_books(&mut self, before: Vec<Team>) {
        let mut books: HashMap<String, _> =
            before.into_iter().filter_map(|team| Some((team.name, team.book?))).collect();
        for team in &mut self.teams {
            team.book = books.remove(&team.name).filter(|book| book.period == team.period());
        }
    }

    /// Whether the quotas say the same, but for weights, and no namespace with devices has another team.
    fn has_terms_of(&self, other: &Self, cluster: &Cluster) -> bool {
        let terms = |team: &Team| (team.name.clone(), GpuQuotaSpec { weight: 1, ..team.spec.clone() });
        let name =
            |teams: &Self, namespace: &str| teams.get(teams.team_of(namespace)).map(|team| team.name.clone());
        self.teams.iter().map(terms).eq(other.teams.iter().map(terms))
            && cluster.charges().namespaces().all(|namespace| name(self, namespace) == name(other, namespace))
    }
}

fn resolve(objects: &Objects, driver: &str) -> (Vec<Team>, HashMap<String, usize>) {
    let quotas: Vec<_> = objects.quotas.iter().collect();
    let index: BTreeMap<&str, usize> =
        quotas.iter().enumerate().map(|(place, (key, _))| (key.name.as_str(), place)).collect();
    let mut problems: Vec<Vec<String>> = vec![Vec::new(); quotas.len()];
    let parent_of = |place: usize| {
        let parent = quotas[place].1.spec.parent.as_deref()?;
        Some(
            index.get(parent).copied().filter(|parent| quotas[*parent].1.spec.parent.is_none()).ok_or(parent),
        )
    };
    let parents: Vec<Option<usize>> = (0..quotas.len())
        .map(|place| match parent_of(place)? {
            Ok(parent) => Some(parent),
            Err(parent) => {
                problems[place].push(format!("its parent {parent} does not exist, or has a parent itself"));
                None
            }
        })
        .collect();
    // Of several quotas that select a namespace: by priority, then age, then name.
    let mut by_precedence: Vec<usize> = (0..quotas.len()).collect();
    by_precedence.sort_by_key(|place| {
        let (key, quota) = quotas[*place];
        (Reverse(quota.spec.priority), quota.metadata.creation_timestamp.clone(), &key.name)
    });
    let mut namespaces: Vec<Vec<String>> = vec![Vec::new(); quotas.len()];
    let mut of_namespaces = HashMap::new();
    let mut overlaps: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (key, labels) in &objects.namespaces {
        let selecting = |place: &&usize| quotas[**place].1.spec.selects_namespace(labels);
        let mut selecting = by_precedence.iter().filter(selecting);
        let Some(first) = selecting.next() else { continue };
        of_namespaces.insert(key.name.clone(), *first);
        namespaces[*first].push(key.name.clone());
        for other in selecting {
            *overlaps.entry((*first, *other)).or_default() += 1;
        }
    }
    let mut overlapping: Vec<Vec<String>> = vec![Vec::new(); quotas.len()];
    for ((first, other), count) in overlaps {
        let named = |place: usize| &quotas[place].0.name;
        let noun = if count == 1 { "namespace" } else { "namespaces" };
        overlapping[first]
            .push(format!("selects {count} {noun} that {} selects, too: this one decides", named(other)));
        overlapping[other]
            .push(format!("{} decides on {count} {noun} that this one selects, too", named(first)));
    }
    for (place, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            let own = namespaces[place].clone();
            namespaces[*parent].extend(own);
        }
    }
    let team = |(place, namespaces): (usize, Vec<String>)| {
        let (key, quota) = quotas[place];
        let problems = &mut problems[place];
        Team {
            name: key.name.clone(),
            weight: quota.spec.weight.into(),
            parent: parents[place],
            namespaces: Arc::from(namespaces),
            amounts: amounts(&quota.spec, driver, problems),
            spec: quota.spec.clone(),
            min_runtime: Time::from_secs(quota.spec.min_runtime_seconds.into()),
            problems: std::mem::take(problems),
            overlaps: std::mem::take(&mut overlapping[place]),
            book: None,
            budget_state: Default::default(),
        }
    };
    (namespaces.into_iter().enumerate().map(team).collect(), of_namespaces)
}

/// The amounts; one whose expression cannot be compiled covers nothing, so it limits nobody.
fn amounts(spec: &GpuQuotaSpec, driver: &str, problems: &mut Vec<String>) -> Vec<Amount> {
    let amount = |amount: &tessera_api::gpu_quota::Amount| {
        let covers = match Covered::new(driver, amount.cards.as_deref()) {
            Ok(covers) => covers,
            Err(error) => {
                problems.push(format!("amounts[{}].cards: {error}", amount.name));
                return None;
            }
        };
        Some(Amount {
            name: amount.name.clone(),
            unit: amount.unit,
            entitled: amount.guaranteed(),
            guaranteed: amount.guaranteed(),
            limit: amount.limit(),
            covers: Arc::new(covers),
        })
    };
    spec.amounts.iter().filter_map(amount).collect()
}
