//! The rules, without clock and network: the next request, and the meaning of an answer.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

use super::{Leadership, LeaseOptions};

/// A holder may ask to be trusted for longer than we are, up to this. Without a limit, one wrong number would keep
/// everybody from leading for ever.
const LONGEST_TRUST: Duration = Duration::from_secs(300);

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    Read,
    Create(Box<LeaseSpec>),
    /// With the resource version of its base.
    Update(Box<Lease>),
}

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing until then.
    Wait(Instant),
    /// Ask, and wait for the answer until then.
    Send { request: Request, until: Instant },
}

/// One candidate.
#[derive(Debug)]
pub(super) struct Election {
    options: LeaseOptions,
    /// The Lease as last read.
    known: Option<Lease>,
    /// Since when the Lease is known in this state, or absent.
    since: Option<Instant>,
    /// Our knowledge is the answer to the request just before.
    is_fresh: bool,
    /// The Lease may have changed by a request of ours without an answer.
    is_doubtful: bool,
    /// Our term as the leader: `leaseTransitions`, and the end of the term.
    term: Option<(i32, Instant)>,
    next: Instant,
}

/// The holder of the Lease; `None` after a release.
pub(super) fn holder(lease: &Lease) -> Option<&String> {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()).filter(|holder| !holder.is_empty())
}

fn transitions(lease: &Lease) -> i32 {
    lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0).max(0)
}

impl Election {
    pub(super) fn new(options: LeaseOptions, now: Instant) -> Self {
        Self { options, known: None, since: None, is_fresh: false, is_doubtful: true, term: None, next: now }
    }

    pub(super) fn leadership(&self) -> Leadership {
        match self.term {
            Some((transitions, until)) => Leadership::Leading { transitions, until },
            None => {
                let others = |holder: &&String| **holder != self.options.holder;
                Leadership::Following { holder: self.known.as_ref().and_then(holder).filter(others).cloned() }
            }
        }
    }

    /// Stops leading. Whether the Lease may name us.
    pub(super) fn resign(&mut self) -> bool {
        let is_ours = self.known.as_ref().and_then(holder) == Some(&self.options.holder);
        self.term.take().is_some() || is_ours || self.is_doubtful
    }

    /// The step at `now`; `wall` is written into the Lease, for people.
    pub(super) fn next(&mut self, now: Instant, wall: Timestamp) -> Step {
        self.term = self.term.filter(|(_, until)| now < *until);
        let is_fresh = std::mem::take(&mut self.is_fresh);
        if is_fresh {
            match self.wish(now, wall) {
                Ok(request) => return self.send(request, now),
                Err(until) => self.next = until,
            }
        }
        if now < self.next {
            let end = self.term.map(|(_, until)| until);
            return Step::Wait(end.map_or(self.next, |end| end.min(self.next)));
        }
        match &self.known {
            // Nobody else has written since our own write: no need to look.
            Some(lease) if self.term.is_some() && !self.is_doubtful => {
                let request = self.update(lease, wall);
                self.send(request, now)
            }
            _ => self.send(Request::Read, now),
        }
    }

    fn send(&mut self, request: Request, now: Instant) -> Step {
        // If no answer comes, the request may still have been carried out.
        self.is_doubtful = true;
        let until = now + self.options.renew_deadline / 2;
        Step::Send { request, until: self.term.map_or(until, |(_, end)| end.min(until)) }
    }

    /// The write due after a read of the Lease, or the time of the next read.
    fn wish(&self, now: Instant, wall: Timestamp) -> Result<Request, Instant> {
        let since = self.since.unwrap_or(now);
        let Some(lease) = &self.known else {
            // The leader does not know of the deletion.
            let end = since + self.options.duration;
            return match self.term {
                Some((transitions, _)) => Ok(self.create(transitions, wall)),
                None if self.since.is_none() || now >= end => Ok(self.create(0, wall)),
                None => Err(end.min(now + self.options.retry)),
            };
        };
        let is_ours = |held: &String| *held == self.options.holder;
        let end = since + self.trust(lease);
        match holder(lease) {
            Some(held) if !is_ours(held) && now < end => Err(end.min(now + self.options.retry)),
            _ => Ok(self.update(lease, wall)),
        }
    }

    /// How long the Lease's holder is trusted without a renewal.
    fn trust(&self, lease: &Lease) -> Duration {
        let asked = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        let asked = Duration::from_secs(u64::try_from(asked).unwrap_or(0));
        asked.min(LONGEST_TRUST).max(self.options.duration)
    }

    fn create(&self, transitions: i32, wall: Timestamp) -> Request {
        Request::Create(Box::new(self.held(LeaseSpec::default(), transitions, wall)))
    }

    /// The Lease, held by us: renewed, or taken over.
    fn update(&self, lease: &Lease, wall: Timestamp) -> Request {
        let spec = lease.spec.clone().unwrap_or_default();
        let is_ours = holder(lease) == Some(&self.options.holder);
        let spec = match is_ours {
            true => self.held(spec, transitions(lease), wall),
            false => {
                let spec = LeaseSpec { acquire_time: None, ..spec };
                self.held(spec, transitions(lease).saturating_add(1), wall)
            }
        };
        Request::Update(Box::new(Lease { spec: Some(spec), ..lease.clone() }))
    }

    fn held(&self, spec: LeaseSpec, transitions: i32, wall: Timestamp) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.options.holder.clone()),
            lease_duration_seconds: i32::try_from(self.options.duration.as_secs()).ok(),
            acquire_time: spec.acquire_time.or(Some(MicroTime(wall))),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(transitions),
            ..spec
        }
    }

    /// Takes an answer: the Lease as it is now, or an error: whether it was a conflict.
    pub(super) fn answered(
        &mut self,
        request: &Request,
        answer: Result<Option<Lease>, bool>,
        sent: Instant,
        now: Instant,
    ) {
        let lease = match answer {
            Ok(lease) => lease,
            // Another candidate was faster. Pause, so that two candidates do not collide each time.
            Err(true) => return self.next = now + self.options.retry / 8,
            Err(false) => return self.next = now.max(sent + self.options.retry),
        };
        self.is_doubtful = false;
        self.next = sent + self.options.retry;
        let is_ours = lease.as_ref().and_then(holder) == Some(&self.options.holder);
        let has_written = *request != Request::Read;
        match &lease {
            // From before the request was sent: others count from their first read of the renewal.
            Some(lease) if has_written && is_ours => {
                self.term = Some((transitions(lease), sent + self.options.renew_deadline));
            }
            Some(_) if !is_ours => self.term = None,
            _ => {}
        }
        self.is_fresh = !has_written;
        self.observe(lease, now);
    }

    fn observe(&mut self, lease: Option<Lease>, now: Instant) {
        // With its resource version: a renewal is a change whatever the holder's clock says. Absent from the beginning
        // is no change: there is no leader to wait for.
        if self.known != lease {
            self.since = Some(now);
        }
        self.known = lease;
    }
}
