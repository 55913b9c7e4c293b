//! Budgets: whether a team has hours left, and the effect of a spent budget.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tessera_api::gpu_quota::WhenSpent;
use tessera_cluster::{Cluster, Holder, Key, PodExt};
use tessera_placement::Time;

use super::book::CardTime;
use super::hours::cards_of;
use super::{Team, TeamId, Teams};
use crate::holders;
use crate::nominations::at;

/// State of a budget at the last look, to notice changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BudgetState {
    is_spent: bool,
    /// End of the period.
    until: Time,
}

/// Cards of a pod to be started, and its deadline, if it has one.
pub(crate) struct Start {
    /// Millionths of a card.
    pub cards: u64,
    pub deadline: Option<Time>,
}

/// The pod's `activeDeadlineSeconds`.
pub(crate) fn deadline(pod: &Pod) -> Option<Time> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    u64::try_from(seconds).ok().map(Time::from_secs)
}

impl Team {
    fn budget(&self) -> Option<CardTime> {
        self.spec.budget.as_ref().map(|budget| CardTime::of_seconds(u64::from(budget.gpu_hours) * 3600))
    }

    fn budget_state(&self) -> BudgetState {
        let (Some(budget), Some(book)) = (self.budget(), &self.book) else { return BudgetState::default() };
        BudgetState { is_spent: book.used.all >= budget, until: book.span.end }
    }

    fn effect(&self) -> Option<WhenSpent> {
        Some(self.spec.budget.as_ref()?.when_spent)
    }

    /// Hours that its running pods take until their deadlines, within the period, and those that are ending may take. Of a shared claim
    /// the last deadline counts.
    fn reserved(&self, cluster: &Cluster, now: Time) -> CardTime {
        let objects = cluster.objects();
        let end = |pod: &Key| {
            let pod = objects.pods.get(pod).filter(|pod| !pod.is_finished())?;
            let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
            Some(started.map_or(now, |started| at(started.0)) + deadline(pod)?)
        };
        let mut sum = CardTime::default();
        for namespace in self.namespaces.iter() {
            let claims = objects.claims.range(Key::new(namespace, "")..);
            for (key, claim) in claims.take_while(|(key, _)| key.namespace == *namespace) {
                let Some(hold) = cluster.hold(&Holder::Claim(key.clone())) else { continue };
                let pods = holders::pods_holding(key, claim);
                let Some(end) = pods.iter().filter_map(end).max() else { continue };
                sum += CardTime::of(cards_of(hold), self.within_period(now, end));
            }
        }
        sum
    }

    /// The part of the time from now until then within the current period.
    fn within_period(&self, now: Time, end: Time) -> Time {
        let period_end = self.book.as_ref().map_or(Time::MAX, |book| book.span.end);
        end.min(period_end).saturating_sub(now)
    }

    /// Why its pods wait. Without the hours used: each change would make an Event.
    fn budget_text(&self, is_reserved: bool) -> String {
        let (Some(budget), Some(book)) = (&self.spec.budget, &self.book) else { return String::new() };
        let (name, until) = (&self.name, day(book.span.end));
        let hours = match budget.gpu_hours {
            1 => "1 GPU hour".to_owned(),
            hours => format!("{hours} GPU hours"),
        };
        let period = book.period.text(second(book.span.start));
        match is_reserved {
            true => format!(
                "what is left of team {name}'s {hours} of {period} is reserved until deadlines of its pods, or too \
                 little for this one's; more from {until}"
            ),
            false => format!("team {name} has used its {hours} of {period}; more from {until}"),
        }
    }

    /// Whether the team's budget is spent, and leaves it idle devices of others alone.
    pub fn only_borrows(&self) -> bool {
        self.budget_state.is_spent && self.effect() == Some(WhenSpent::LentOnly)
    }

    /// The effect of a spent budget, and its end.
    pub fn spent_text(&self) -> Option<String> {
        let (Some(budget), true) = (&self.spec.budget, self.budget_state().is_spent) else { return None };
        let until = day(self.book.as_ref()?.span.end);
        Some(match budget.when_spent {
            WhenSpent::Wait => format!("new pods wait until {until}"),
            WhenSpent::LentOnly => format!("nothing is guaranteed until {until}"),
        })
    }
}

fn second(time: Time) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

fn day(time: Time) -> String {
    Timestamp::from_second(second(time)).unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d").to_string()
}

impl Teams {
    /// Follows the budgets: while one with [`WhenSpent::LentOnly`] is spent, nothing is guaranteed to its team and the team's children.
    /// Returns whether a budget was spent, or a period began.
    pub fn follow_budgets(&mut self) -> bool {
        let mut is_change = false;
        for team in &mut self.teams {
            let budget_state = team.budget_state();
            is_change |= std::mem::replace(&mut team.budget_state, budget_state) != budget_state;
        }
        if is_change {
            let lent_only: Vec<bool> = self.teams.iter().map(Team::only_borrows).collect();
            for (place, team) in self.teams.iter_mut().enumerate() {
                let is_lent_only = lent_only[place] || team.parent.is_some_and(|parent| lent_only[parent]);
                for amount in &mut team.amounts {
                    amount.guaranteed = if is_lent_only { 0 } else { amount.entitled };
                }
            }
        }
        is_change
    }

    /// When a period of a budget ends.
    pub fn next_period(&self) -> Option<Time> {
        let with_budget = self.teams.iter().filter(|team| team.spec.budget.is_some());
        with_budget.filter_map(|team| Some(team.book.as_ref()?.span.end)).min()
    }

    /// Whether the namespace's team, or its parent, may have to wait for hours.
    pub fn has_budget(&self, namespace: &str) -> bool {
        let own = self.get(self.team_of(namespace));
        let parent = own.and_then(|team| self.get(team.parent));
        own.into_iter().chain(parent).any(|team| team.effect() == Some(WhenSpent::Wait))
    }

    /// Why a budget of the namespace's team, or of its parent, does not let these pods start, if so: never for exempt ones. Pods with a
    /// deadline need all their hours. `reserved`: by team, hours reserved in this round; those of pods that may start are added.
    pub fn over_budget(
        &self,
        cluster: &Cluster,
        reserved: &mut BTreeMap<TeamId, CardTime>,
        now: Time,
        (namespace, is_exempt): (&str, bool),
        starts: &[Start],
    ) -> Option<String> {
        // Devices of an administrator's access cost nothing.
        if !starts.is_empty() && starts.iter().all(|start| start.cards == 0) {
            return None;
        }
        let own = self.team_of(namespace);
        let teams = [own, self.get(own).and_then(|team| team.parent)];
        let mut needs = Vec::new();
        for id in teams {
            let Some(team) = self.get(id).filter(|team| team.effect() == Some(WhenSpent::Wait)) else {
                continue;
            };
            let (Some(budget), Some(book)) = (team.budget(), &team.book) else { continue };
            let reserved = *reserved.entry(id).or_insert_with(|| team.reserved(cluster, now));
            let mut need = CardTime::default();
            for start in starts {
                let time = start.deadline.map(|deadline| team.within_period(now, now + deadline));
                need += CardTime::of(start.cards, time.unwrap_or_default());
            }
            let mut taken = book.used.all;
            taken += reserved;
            let is_over = taken >= budget;
            taken += need;
            if (is_over || taken > budget) && !is_exempt {
                return Some(team.budget_text(book.used.all < budget));
            }
            needs.push((id, need));
        }
        for (id, need) in needs {
            *reserved.entry(id).or_default() += need;
        }
        None
    }
}
