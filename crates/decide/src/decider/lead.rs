//! Terms of leadership, fresh lists of claims, and the handover of cards from kube-scheduler.

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_allocator::claim::Claim;
use tessera_api::managed::EPOCH_ANNOTATION;
use tessera_cluster::{ClaimExt, Key};
use tessera_placement::Time;

use super::Decider;
use super::claim::reference_of;
use crate::intent::{ClaimReference, Intent};
use crate::term::Term;

/// Pause after a failed write to claims.
const PAUSE: Time = Time::from_secs(2);

impl Decider {
    /// Starts a term of leadership. `epoch` differs from the epoch of every other term. Without a term, no managed
    /// card is allocated.
    pub fn lead(&mut self, now: Time, epoch: &str) {
        self.term = Some(Term::new(epoch.to_owned(), now));
        self.ledger.claims.forget_clears_and_fences();
        self.ledger.evictions.forget_sent();
        self.told_overlaps.clear();
        self.gangs.forget_times();
        self.to_check = self.fleet.nodes().map(|node| node.name.clone()).collect();
        self.unclaimed = self.cluster.objects().claims.keys().cloned().collect();
        self.queue.extend(self.waiting.keys().cloned());
    }

    /// Ends leadership.
    pub fn follow(&mut self) {
        self.term = None;
        self.ledger.claims.forget_fences();
        self.unclaimed.clear();
        self.to_note.clear();
        self.to_check.clear();
    }

    /// Latest taint time of cards that may be allocated now.
    pub(super) fn handed_over(&self) -> Option<Time> {
        self.lists.fresh?.checked_sub(self.handover)
    }

    /// Whether this term may allocate.
    pub(super) fn may_allocate(&self) -> bool {
        self.term.as_ref().is_some_and(|term| term.is_fenced && self.lists.are_as_of(term.since))
    }

    /// Requests the list and the fences missing before managed cards may be allocated.
    pub(super) fn prepare_term(&mut self, now: Time) -> Vec<Intent> {
        let Some(term) = &self.term else { return Vec::new() };
        if !self.fleet.has_managed() {
            return Vec::new();
        }
        let since = term.since;
        let mut intents = Vec::new();
        let is_due = self.fleet.next_handover().is_some_and(|tainted| tainted + self.handover <= now);
        let is_stale = !self.lists.are_as_of(since) || is_due;
        if is_stale && !self.lists.is_asked {
            self.lists.is_asked = true;
            intents.push(Intent::ListClaims);
        }
        if self.lists.are_as_of(since) {
            intents.extend(self.fence(now));
            intents.extend(self.settle(now));
        }
        intents
    }

    /// Fences writes with an unknown outcome, so they cannot arrive later.
    fn settle(&mut self, now: Time) -> Vec<Intent> {
        let Some(term) = self.term.as_mut().filter(|_| self.lists.not_before <= now) else {
            return Vec::new();
        };
        let mut intents = Vec::new();
        let open: Vec<Key> = self.ledger.claims.to_settle().map(|(claim, _)| claim.clone()).collect();
        for key in open {
            let Some(claim) = self.cluster.objects().claims.get(&key) else { continue };
            let is_refused = term.refused.contains_key(claim.metadata.uid.as_deref().unwrap_or_default());
            if !claim.has_devices() && !is_refused && self.ledger.claims.fence(&key) {
                term.settled += 1;
                let epoch = format!("{}#{}", term.epoch, term.settled);
                intents.push(Intent::Fence { claims: vec![reference_of(claim)], epoch });
            }
        }
        intents
    }

    /// Writes the epoch on claims without devices possibly known to an earlier leader.
    fn fence(&mut self, now: Time) -> Vec<Intent> {
        // The list was requested in this term and includes all claims known to earlier leaders: later claims need no fence.
        if self.term.as_ref().is_none_or(|term| term.is_fenced) {
            return Vec::new();
        }
        let claims: Vec<Box<ResourceClaim>> =
            self.cluster.objects().claims.values().filter(|claim| self.needs_fence(claim)).cloned().collect();
        let open: Vec<ClaimReference> =
            claims.iter().filter(|claim| self.may_be_ours(claim)).map(|claim| reference_of(claim)).collect();
        let Some(term) = &mut self.term else { return Vec::new() };
        if open.is_empty() {
            term.is_fenced = true;
            self.queue.extend(self.waiting.keys().cloned());
            return Vec::new();
        }
        if self.lists.not_before > now {
            return Vec::new();
        }
        let epoch = term.epoch.clone();
        let fresh = open.into_iter().filter(|claim| self.ledger.claims.fence(&claim.key));
        // One intent per claim: no claim waits for the answer to another.
        fresh.map(|claim| Intent::Fence { claims: vec![claim], epoch: epoch.clone() }).collect()
    }

    /// Ends a fence when the claim shows the epoch, possibly before the write's answer: nothing more is awaited then.
    pub(super) fn end_fence_seen(&mut self, key: &Key) {
        let claim = self.cluster.objects().claims.get(key);
        let annotations = claim.and_then(|claim| claim.metadata.annotations.as_ref());
        let epoch = annotations.and_then(|all| all.get(EPOCH_ANNOTATION));
        if self.term.as_ref().is_some_and(|term| term.wrote(epoch)) {
            self.ledger.claims.end_fence(key);
        }
    }

    fn needs_fence(&self, claim: &ResourceClaim) -> bool {
        let Some(term) = &self.term else { return false };
        let annotations = claim.metadata.annotations.as_ref();
        let epoch = annotations.and_then(|all| all.get(EPOCH_ANNOTATION));
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        !claim.has_devices()
            && claim.metadata.deletion_timestamp.is_none()
            && !term.wrote(epoch)
            && !term.fenced.contains(uid)
            && self.refusal_of(claim).is_none()
    }

    /// Whether the claim asks for any managed card.
    fn may_be_ours(&mut self, claim: &ResourceClaim) -> bool {
        let form = serde_json::to_string(&claim.spec).unwrap_or_default();
        if let Some(known) = self.term.as_ref().and_then(|term| term.asks.get(&form)) {
            return *known;
        }
        let Ok(asked) = Claim::try_from(claim) else { return false };
        if self.unanswered_of(std::slice::from_ref(&asked)).is_some() {
            // A superfluous fence does no harm.
            return true;
        }
        let nodes: Vec<String> = self.fleet.managed_nodes().map(|node| node.name.clone()).collect();
        let asks = nodes.iter().any(|node| {
            let node = self.cluster.objects().node(node);
            let claims = std::slice::from_ref(&asked);
            node.is_some_and(|node| {
                self.cluster.has_what_is_asked(node, claims, &self.driver, &mut self.asker).unwrap_or(true)
            })
        });
        if let Some(term) = &mut self.term {
            term.asks.insert(form, asks);
        }
        asks
    }

    pub(super) fn claims_listed(&mut self, asked_at: Time) {
        self.lists.is_asked = false;
        self.lists.fresh = self.lists.fresh.max(Some(asked_at));
        if let Some(then) = asked_at.checked_sub(self.handover) {
            self.fleet.hand_over(then);
        }
    }

    pub(super) fn claims_written(&mut self, now: Time, claims: &[Key], is_done: bool) {
        for claim in claims {
            let uid = self.cluster.objects().claims.get(claim).and_then(|claim| claim.metadata.uid.clone());
            let was_fencing = self.ledger.claims.end_fence(claim);
            if was_fencing {
                // The claim may have got devices meanwhile, and the fence in flight blocked their deallocation.
                self.unclaimed.insert(claim.clone());
                self.mark_claim(claim);
            }
            if let Some(term) = &mut self.term
                && was_fencing
                && is_done
            {
                let was_refused = uid.as_ref().and_then(|uid| term.refused.remove(uid)).is_some();
                term.fenced.extend(uid);
                if was_refused {
                    self.see_claim(now, claim);
                }
                if self.ledger.claims.is_uncertain(claim) {
                    self.end_allocation(claim);
                    self.see_claim(now, claim);
                }
            }
            if self.ledger.claims.end_clear(claim) {
                self.unclaimed.insert(claim.clone());
                self.see_claim(now, claim);
            }
        }
        if !is_done {
            self.lists.not_before = now + PAUSE;
        }
    }

    /// When to continue with missing lists, fences and retries.
    pub(super) fn next_of_term(&self) -> Option<Time> {
        let term = self.term.as_ref().filter(|_| self.fleet.has_managed())?;
        let handover = self.fleet.next_handover().map(|tainted| tainted + self.handover);
        let is_first = !self.lists.are_as_of(term.since);
        let list = handover.filter(|_| !is_first).or(is_first.then_some(Time::ZERO));
        let list = list.filter(|_| !self.lists.is_asked);
        let fence =
            (!is_first && !term.is_fenced && !self.ledger.claims.delays_fences()).then_some(Time::ZERO);
        let mut open = self.ledger.claims.to_settle();
        let is_uncertain = open.any(|(_, allocation)| !term.refused.contains_key(&allocation.uid));
        let settle = (!is_first && is_uncertain).then_some(Time::ZERO);
        let again = term.refused.values().map(|refused| refused.until).min();
        let write = fence.into_iter().chain(settle).min().map(|next| next.max(self.lists.not_before));
        list.into_iter().chain(write).chain(again).min()
    }
}
