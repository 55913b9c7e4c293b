//! Leader election over a `coordination.k8s.io/v1` Lease, with the rules of client-go's `leaderelection`.
//!
//! Of the crates on crates.io only `kube-lease-manager` 0.13 works with kube 5. It compares the Lease's times with this
//! machine's wall clock, takes over by patches without a resource version (so two may succeed), and has no timeouts.
//! Hence our own.

mod election;
mod requests;
#[cfg(test)]
mod simulation;

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use election::{Election, Step};
use requests::{Failure, Leases};

/// Time limit for giving up the Lease at the shutdown.
const RELEASE: Duration = Duration::from_secs(3);

/// The Lease and the durations of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name. An absent Lease is created; no Lease is ever deleted.
    pub name: String,
    /// Our identity, unique among running processes. The successor of an ended process, such as a restarted container
    /// of the same pod, may reuse its identity, and continues its term at once.
    pub holder: String,
    /// A Lease unchanged for this long may be taken over. Whole seconds, at least one.
    pub duration: Duration,
    /// Who could not renew for this long stops leading; shorter than `duration`.
    pub renew_deadline: Duration,
    /// Time between two renewals, or two looks at the Lease; shorter than `renew_deadline`.
    pub retry: Duration,
}

impl LeaseOptions {
    /// With the times of Kubernetes' own components: 15, 10 and 2 seconds. When a leader is killed, another leads at
    /// most 17 seconds later.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, holder: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            holder: holder.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    fn check(&self) -> Result<(), LeaseOptionsError> {
        if self.holder.is_empty() {
            return Err(LeaseOptionsError::NoHolder);
        }
        let is_ordered =
            !self.retry.is_zero() && self.retry < self.renew_deadline && self.renew_deadline < self.duration;
        if !is_ordered {
            return Err(LeaseOptionsError::Order);
        }
        if self.duration.subsec_nanos() != 0 || i32::try_from(self.duration.as_secs()).is_err() {
            return Err(LeaseOptionsError::Duration(self.duration));
        }
        Ok(())
    }
}

/// Options that make leading unsafe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseOptionsError {
    /// The holder is empty, the mark of a released Lease.
    #[error("the holder of a Lease needs a name")]
    NoHolder,
    /// The times are not in order.
    #[error("the times of a Lease must be 0 < retry < renew deadline < duration")]
    Order,
    /// The API has whole seconds.
    #[error("the duration of a Lease is a whole number of seconds, not {0:?}")]
    Duration(Duration),
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Not us.
    Following {
        /// Who, as far as known.
        holder: Option<String>,
    },
    /// We lead, until `until` unless renewed.
    Leading {
        /// The Lease's `leaseTransitions`: how often it has changed hands.
        transitions: i32,
        /// From then on somebody else may lead.
        until: Instant,
    },
}

impl Leadership {
    /// Until when we may write as the leader; `None` where we do not lead. Compare with the clock immediately before
    /// each write: the time passes silently while this process is stopped or starved.
    #[must_use]
    pub fn may_write_until(&self) -> Option<Instant> {
        match self {
            Self::Leading { until, .. } => Some(*until),
            Self::Following { .. } => None,
        }
    }

    /// The current term: how often the Lease has changed hands; `None` where we do not lead.
    #[must_use]
    pub fn transitions(&self) -> Option<i32> {
        match self {
            Self::Leading { transitions, .. } => Some(*transitions),
            Self::Following { .. } => None,
        }
    }

    /// Whether we may write at `now`.
    #[must_use]
    pub fn may_write(&self, now: Instant) -> bool {
        self.may_write_until().is_some_and(|until| now < until)
    }

    /// Whether `other` says anything new but a renewal.
    fn is_the_same_role(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leading { transitions, .. }, Self::Leading { transitions: other, .. }) => {
                transitions == other
            }
            (one, other) => one == other,
        }
    }
}

/// Takes part in the election until `shutdown`, and publishes the leader in `leadership`. Receivers are notified when
/// the leader changes; a renewal only changes the value they `borrow`.
///
/// At the shutdown the Lease is released, and another candidate leads at its next read. So cancel `shutdown` only after
/// the end of all writes as the leader.
///
/// Two never lead at once. All times are measured with each process's own monotonic clock: the leader's from before its
/// renewal request, everybody else's from their first read of the renewal. Every write carries the resource version of
/// its base. Exceptions: a Lease given away by hand, or deleted just before a candidate starts (or several times in a
/// row), and a leader on a suspended machine. Such a leader finds out at its next renewal.
///
/// Requests to an absent, slow or refusing API server are retried; each different error is logged once.
///
/// # Errors
/// [`LeaseOptionsError`], at once.
pub async fn follow(
    client: Client,
    options: LeaseOptions,
    leadership: watch::Sender<Leadership>,
    shutdown: CancellationToken,
) -> Result<(), LeaseOptionsError> {
    options.check()?;
    let leases = Leases::new(client, &options);
    let mut candidate =
        Candidate { election: Election::new(options, Instant::now()), leases, leadership, trouble: None };
    shutdown.run_until_cancelled(candidate.take_part()).await;
    candidate.withdraw().await;
    Ok(())
}

struct Candidate {
    election: Election,
    leases: Leases,
    leadership: watch::Sender<Leadership>,
    /// The last failure, while it lasts.
    trouble: Option<String>,
}

impl Candidate {
    async fn take_part(&mut self) {
        loop {
            let step = self.election.next(Instant::now(), Timestamp::now());
            self.tell(self.election.leadership());
            match step {
                Step::Wait(until) => tokio::time::sleep_until(until.into()).await,
                Step::Send { request, until } => {
                    let sent = Instant::now();
                    let answer = tokio::time::timeout_at(until.into(), self.leases.send(&request)).await;
                    let answer = answer.unwrap_or_else(|_| Err(Failure::Silence(until - sent)));
                    self.log(answer.as_ref().err());
                    self.election.answered(
                        &request,
                        answer.map_err(|failure| failure.is_conflict()),
                        sent,
                        Instant::now(),
                    );
                }
            }
        }
    }

    /// Stops leading, and lets others lead.
    async fn withdraw(&mut self) {
        let was_leading = self.election.resign();
        self.tell(self.election.leadership());
        if was_leading {
            match tokio::time::timeout(RELEASE, self.leases.release()).await {
                Ok(Ok(())) => tracing::info!("released the Lease {}", self.leases),
                Ok(Err(failure)) => tracing::warn!("cannot release the Lease {}: {failure}", self.leases),
                Err(_) => {
                    tracing::warn!("cannot release the Lease {}: no answer within {RELEASE:?}", self.leases)
                }
            }
        }
    }

    fn tell(&self, now: Leadership) {
        self.leadership.send_if_modified(|known| {
            let is_new = !known.is_the_same_role(&now);
            if is_new {
                match &now {
                    Leadership::Leading { transitions, .. } => tracing::info!(transitions, "leading"),
                    Leadership::Following { holder } => tracing::info!(holder, "not leading"),
                }
            }
            *known = now;
            is_new
        });
    }

    fn log(&mut self, failure: Option<&Failure>) {
        // Losing a race is how an election goes.
        let failure = failure.filter(|failure| !failure.is_conflict()).map(ToString::to_string);
        if failure != self.trouble {
            match &failure {
                Some(failure) => tracing::warn!("no word about the Lease {}: {failure}", self.leases),
                None => tracing::info!("the Lease {} can be used again", self.leases),
            }
            self.trouble = failure;
        }
    }
}

#[cfg(test)]
mod tests;
