//! The state of publishing: the slices on the API server, the desired ones, and the writes in between.

mod carry_out;
mod read;

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::watcher::Event;
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use tessera_kube_util::events::{NodeEvents, Severity};

use tessera_kube_util::backoff::Backoff;

use crate::{
    condition::Condition,
    desired::{Desired, PoolIdentity},
    dispute,
    failure::{Attempt, Failure, FailureKind},
    lock::PublishLock,
    other_driver::OtherDriver,
    plan::{Plan, plan},
    rivalry::Rivalry,
    server::{Answer, Server},
    status::PublishStatus,
    store::{SliceMetadata, Store},
    target::{Target, dropped_features},
};

/// Most rounds of planning and writing in a row. Each reveals something (a missing feature, an invalid device, a
/// foreign change of a slice), so a few are enough unless the session does not converge.
const ROUNDS: usize = 12;
/// Concurrent requests. More would not be faster, and each needs a connection and the text of a slice.
const REQUESTS: usize = 8;

/// See the module.
pub struct Session {
    server: Server,
    events: NodeEvents,
    identity: PoolIdentity,
    store: Store,
    target: Target,
    owner: Option<OwnerReference>,
    /// The first request for the owner, sent at the start, concurrently with everything else.
    first_owner: Option<JoinHandle<Result<OwnerReference, Failure>>>,
    /// The pool's last known generation.
    generation: Option<i64>,
    /// Whether the features kept by the server are known, from a dry run or from answers to writes.
    probed: bool,
    /// Whether a dry run has shown if the server keeps taints.
    knows_taints: bool,
    /// The slices were as desired: any difference now was made by somebody else.
    synced: bool,
    backoff: Backoff,
    /// Number of conflicts since the slices were last as desired.
    conflicts: usize,
    rivalry: Rivalry,
    /// Another driver with our name, while there is one, and whether the Node has an Event about it.
    other: Option<(OtherDriver, bool)>,
    writing: Condition,
    watching: Condition,
    status: watch::Sender<PublishStatus>,
}

/// The action after a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// The slices are as desired: wait for an event.
    Rest,
    /// Try again after this time.
    After(Duration),
}

impl Session {
    /// Nothing is known and nothing desired yet.
    pub fn new(
        server: Server,
        events: NodeEvents,
        identity: PoolIdentity,
        status: watch::Sender<PublishStatus>,
    ) -> Self {
        let asked = server.clone();
        let node_name = identity.node_name.clone();
        let first_owner = tokio::spawn(async move { asked.owner(&node_name).await });
        Self {
            server,
            events,
            first_owner: Some(first_owner),
            target: Target::new(identity.clone()),
            identity,
            store: Store::default(),
            owner: None,
            generation: None,
            probed: false,
            knows_taints: false,
            synced: false,
            backoff: Backoff::default(),
            conflicts: 0,
            rivalry: Rivalry::default(),
            other: None,
            writing: Condition::new("publishing ResourceSlices"),
            watching: Condition::new("watching ResourceSlices"),
            status,
        }
    }

    /// Sets what is desired. Returns whether it is new.
    pub fn desire(&mut self, desired: &Desired) -> bool {
        let new = self.target.set(desired);
        if new {
            self.synced = false;
            self.backoff.reset();
            self.status.send_modify(|status| status.in_sync = false);
        }
        new
    }

    /// Whether enough is known to compare the server's slices with the desired ones.
    #[must_use]
    pub fn knows_server(&self) -> bool {
        self.store.is_complete()
    }

    /// Handles an event of the watch. Returns whether an unreachable server is back.
    pub fn observe(&mut self, event: Result<Event<SliceMetadata>, kube::runtime::watcher::Error>) -> bool {
        match event {
            Ok(event) => {
                // Comes before the first request.
                let begins = matches!(event, Event::Init);
                self.store.observe(event);
                if begins {
                    return false;
                }
                let back = self.watching.is_failing();
                self.watching.worked();
                back
            }
            Err(error) => {
                // An expired watch (410) is renewed with a list and is no failure.
                let failure = Failure::of_watch(&self.identity.node_name, &error);
                let expired =
                    matches!(&error, kube::runtime::watcher::Error::WatchError(status) if status.code == 410);
                if !expired {
                    self.watching.failed(&failure);
                    self.report(Some(failure.message()));
                }
                false
            }
        }
    }

    /// Plans and writes until the slices are as desired, or there is something to wait for.
    pub async fn round(&mut self, lock: &PublishLock) -> Next {
        for _ in 0..ROUNDS {
            if !lock.may_write() {
                return Next::Rest;
            }
            if let Err(failure) = self.read().await {
                return self.retry(failure);
            }
            if let Some(other) = OtherDriver::find(&self.identity, self.store.iter()) {
                return self.stand_back(other).await;
            }
            if self.other.take().is_some() {
                tracing::info!("the other driver's ResourceSlices are gone");
            }
            let plan = match self.plan().await {
                Ok(plan) => plan,
                Err(failure) => return self.retry(failure),
            };
            if plan.is_empty() {
                self.settle(&plan);
                return Next::Rest;
            }
            if std::mem::take(&mut self.synced) {
                let delay = self.repair(&plan);
                if !delay.is_zero() {
                    return Next::After(delay);
                }
                // The owner's UID changes if a node is deleted and comes back.
                self.owner = None;
                continue;
            }
            // Probe first: do not replace a predecessor's slices by ones whose fields the server drops, and do not
            // expose a device to the scheduler, even for a moment, without the taint meant to repel pods.
            let replaces = !std::mem::replace(&mut self.probed, true) && self.store.iter().next().is_some();
            if replaces || !self.knows_taints && self.target.keeps_away() {
                if let Err(failure) = self.probe_target().await {
                    self.probed = false;
                    return self.retry(failure);
                }
                continue;
            }
            if let Err(failure) = self.carry_out(plan, lock).await {
                return self.retry(failure);
            }
        }
        self.retry(Failure {
            attempt: Attempt::Update,
            name: format!("of pool {}", self.identity.pool_name),
            kind: FailureKind::Server,
            text: format!("they are not as written after {ROUNDS} rounds of writing"),
        })
    }

    /// Writes nothing while another driver with our name exists, and reports the conflict once. The watch reports
    /// changes of the other driver's slices.
    async fn stand_back(&mut self, other: OtherDriver) -> Next {
        let message = other.to_string();
        self.synced = false;
        self.status.send_modify(|status| status.in_sync = false);
        self.report(Some(message.clone()));
        let known = self.other.take().filter(|(known, _)| *known == other);
        if known.is_none() {
            tracing::error!("{message}");
        }
        let told = match known {
            Some((_, true)) => true,
            _ => self.events.send(Severity::Warning, "Publish", "AnotherDriver", &message).await,
        };
        self.other = Some((other, told));
        if told { Next::Rest } else { Next::After(self.backoff.delay()) }
    }

    /// Checks whether a server that dropped fields of some feature keeps them now.
    pub async fn probe(&mut self) -> bool {
        if self.target.missing().is_empty() {
            return false;
        }
        let before = self.target.missing().clone();
        if let Err(failure) = self.probe_target().await {
            tracing::debug!("cannot learn what the API server keeps by now: {}", failure.message());
            return false;
        }
        let changed = *self.target.missing() != before;
        if changed {
            tracing::info!(missing = ?self.target.missing(), "the API server keeps other features than before");
            self.synced = false;
        }
        changed
    }

    /// Finds out, without writing, which parts of the hardware's offer the server keeps.
    async fn probe_target(&mut self) -> Result<(), Failure> {
        let dropped = match self.target.probe() {
            None => BTreeSet::new(),
            Some(probe) => match self.server.dry_run(&probe).await {
                Ok(Answer { difference: Some(specs), .. }) => dropped_features(&specs.0, &specs.1),
                // An invalid slice is handled and reported when written.
                Ok(_) | Err(Failure { kind: FailureKind::Invalid { .. }, .. }) => BTreeSet::new(),
                Err(failure) => return Err(failure),
            },
        };
        self.knows_taints |= self.target.keeps_away();
        for message in self.target.learn_from_probe(dropped) {
            tracing::warn!("{message}");
        }
        Ok(())
    }

    async fn plan(&mut self) -> Result<Plan, Failure> {
        let owner = match &self.owner {
            Some(owner) => owner.clone(),
            None => {
                let first = match self.first_owner.take() {
                    Some(first) => first.await.ok().and_then(Result::ok),
                    None => None,
                };
                let owner = match first {
                    Some(owner) => owner,
                    None => self.server.owner(&self.identity.node_name).await?,
                };
                self.owner.insert(owner).clone()
            }
        };
        self.store.iter_mut().for_each(|slice| self.target.recognise(slice));
        let current: Vec<_> = self.store.iter().collect();
        Ok(plan(&self.identity, &owner, &current, self.target.slices(), self.generation))
    }

    /// Notes that the slices are as desired.
    fn settle(&mut self, plan: &Plan) {
        let news = !self.synced;
        self.synced = true;
        self.backoff.reset();
        self.conflicts = 0;
        self.writing.worked();
        self.generation = plan.generation.or(self.generation);
        let (slices, devices) = (self.target.slices().len(), self.target.devices());
        if news {
            tracing::info!(
                pool = self.identity.pool_name,
                generation = plan.generation,
                slices,
                devices,
                "published"
            );
        }
        self.status.send_if_modified(|status| {
            let mut now = status.clone();
            now.in_sync = true;
            now.generation = plan.generation;
            (now.slices, now.devices) = (slices, devices);
            std::mem::replace(status, now.clone()) != now
        });
        self.report(None);
    }

    /// Notes a foreign change of our slices. Returns the delay before the repair.
    fn repair(&mut self, plan: &Plan) -> Duration {
        let what = dispute::describe(plan, &self.store);
        let delay = self.rivalry.repair_after(Instant::now());
        if delay.is_zero() {
            tracing::warn!("{what}; putting it right");
        } else {
            tracing::warn!(?delay, "{what}, again and again; putting it right after a while");
            self.report(Some(format!("{what}, again and again")));
        }
        self.status.send_modify(|status| {
            status.repairs += 1;
            status.in_sync = false;
        });
        delay
    }

    /// Reports a failure. Returns the pause before the next try.
    fn failed(&mut self, failure: &Failure) -> Duration {
        self.writing.failed(failure);
        self.report(Some(failure.message()));
        self.status.send_modify(|status| status.in_sync = false);
        self.backoff.delay().max(failure.retry_after())
    }

    fn retry(&mut self, failure: Failure) -> Next {
        Next::After(self.failed(&failure))
    }

    /// Sets the status's current problem: `error`, or else the parts left out.
    fn report(&self, error: Option<String>) {
        let shortcomings = self.target.shortcomings();
        let last_error = error.or_else(|| (!shortcomings.is_empty()).then(|| shortcomings.join("; ")));
        let gates = self.target.missing().iter().map(|feature| feature.gate()).collect();
        self.status.send_if_modified(|status| {
            if status.last_error == last_error && status.missing_gates == gates {
                return false;
            }
            status.last_error = last_error;
            status.missing_gates = gates;
            true
        });
    }
}

/// Awaits all `requests`, [`REQUESTS`] at once; the results are in the same order.
async fn some_at_once<T>(requests: Vec<impl Future<Output = T>>) -> Vec<T> {
    stream::iter(requests).buffered(REQUESTS).collect().await
}
