//! Work in flight on claims, with phase and start time, for people looking for a hang.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::task;

use crate::prepare::{ClaimReference, Operation, Phase};

tokio::task_local! {
    /// The work of this task.
    static CURRENT: Listed;
}

/// Work on a claim.
#[derive(Clone, Debug)]
pub struct Activity {
    /// The kubelet's call.
    pub operation: Operation,
    /// The claim.
    pub claim: ClaimReference,
    /// Start of the work.
    pub since: Instant,
    /// Present phases and their start times, the innermost last; empty between two phases, or while waiting for earlier work on
    /// the claim.
    pub phases: Vec<(Phase, Instant)>,
    /// Its task.
    pub task: Option<task::Id>,
}

/// All work on claims.
#[derive(Clone, Debug, Default)]
pub(in crate::prepare) struct Activities(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    next: u64,
    running: BTreeMap<u64, Activity>,
}

/// Keeps an entry for work in the list until dropped.
struct Listed {
    activities: Activities,
    number: u64,
}

/// Keeps a phase open until dropped.
pub(in crate::prepare) struct Entered(Option<(Activities, u64)>);

impl Activities {
    /// Lists work on a claim while the work runs. Its phases must run in the same task.
    pub fn during<W: Future>(
        self,
        operation: Operation,
        claim: ClaimReference,
        work: W,
    ) -> impl Future<Output = W::Output> {
        let activities = self;
        async move {
            let (since, task) = (Instant::now(), task::try_id());
            let activity = Activity { operation, claim, since, phases: Vec::new(), task };
            let number = {
                let mut known = activities.known();
                let number = known.next;
                known.next += 1;
                known.running.insert(number, activity);
                number
            };
            CURRENT.scope(Listed { activities, number }, work).await
        }
    }

    /// All, in the order of their start.
    pub fn list(&self) -> Vec<Activity> {
        self.known().running.values().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.activities.known().running.remove(&self.number);
    }
}

/// Notes a new phase of this task's work on a claim. Work without a claim, as at a start, is not listed.
pub(in crate::prepare) fn enter(phase: Phase) -> Entered {
    let entered = CURRENT.try_with(|current| {
        if let Some(activity) = current.activities.known().running.get_mut(&current.number) {
            activity.phases.push((phase, Instant::now()));
        }
        (current.activities.clone(), current.number)
    });
    Entered(entered.ok())
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some((activities, number)) = &self.0
            && let Some(activity) = activities.known().running.get_mut(number)
        {
            activity.phases.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_listed_with_its_phases_until_it_ends_or_is_dropped() {
        let activities = Activities::default();
        let claim = ClaimReference { namespace: "ns".into(), name: "c".into(), uid: "u".into() };
        let phases = || -> Vec<Vec<Phase>> {
            let list = activities.list();
            list.iter().map(|activity| activity.phases.iter().map(|(phase, _)| *phase).collect()).collect()
        };
        let work = async {
            assert_eq!(phases(), [[]]);
            let _waiting = enter(Phase::Wait);
            {
                let _inner = enter(Phase::Lock);
                assert_eq!(phases(), [[Phase::Wait, Phase::Lock]]);
            }
            assert_eq!(phases(), [[Phase::Wait]]);
            std::future::pending::<()>().await;
        };
        let work = activities.clone().during(Operation::Prepare, claim, work);
        let late = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(late, work).await.is_err(), "it waits for ever");
        assert!(activities.list().is_empty());
        // Outside any work there is nothing to list.
        drop(enter(Phase::Cdi));
        assert!(activities.list().is_empty());
    }
}
