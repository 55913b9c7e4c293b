//! Watches, delivering events late, twice, or never.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tessera_cluster::{Key, Kind, Object};
use tessera_decide::Time;

use super::Server;
use crate::simulation::bug::Bug;
use crate::simulation::surroundings::Surroundings;

/// An event from a watch.
#[derive(Clone)]
pub enum Seen {
    Applied(Arc<Object>),
    Deleted(Kind, Key),
    /// The kind was listed completely, as of this time.
    Complete(Kind, Time),
}

#[derive(Clone)]
pub(super) enum Event {
    Applied(Arc<Object>),
    Deleted(Key),
    /// End of a list, with all listed keys and the time of the list.
    Listed(BTreeSet<Key>, Time),
}

/// The watch of one kind.
#[derive(Default)]
pub(super) struct Stream {
    /// Keys reported as existing.
    known: BTreeSet<Key>,
    pending: VecDeque<(Time, Event)>,
    last: Time,
    /// Broken until then: events in between are lost, and a list follows.
    broken_until: Option<Time>,
    /// Events are held back until then, and all delivered afterwards.
    silent_until: Time,
}

impl Stream {
    fn push(&mut self, around: &mut Surroundings, event: Event) {
        if self.broken_until.is_some() {
            return;
        }
        if around.fault(1) {
            self.pending.clear();
            self.broken_until = Some(around.now + around.between(200, 8_000));
            return;
        }
        let delay = if around.fault(10) { around.between(500, 5_000) } else { around.between(0, 300) };
        self.last = self.last.max(around.now + delay);
        if around.fault(5) {
            self.pending.push_back((self.last, event.clone()));
        }
        self.pending.push_back((self.last, event));
    }
}

impl Server {
    pub(super) fn tell(&mut self, around: &mut Surroundings, kind: Kind, event: Event) {
        for watch in &mut self.watches {
            if let Some(stream) = watch.get_mut(&kind) {
                stream.push(around, event.clone());
            }
        }
    }

    /// Starts watching all kinds; pass the returned number to [`Self::poll`].
    pub fn watch(&mut self, around: &mut Surroundings) -> usize {
        self.watches.push(BTreeMap::new());
        let watch = self.watches.len() - 1;
        self.watch_anew(around, watch);
        watch
    }

    /// Restarts all watches with nothing known, as for a new process.
    pub fn watch_anew(&mut self, around: &mut Surroundings, watch: usize) {
        for kind in self.kinds.clone() {
            let begins = Some(around.now + around.between(0, 2_000));
            self.watches[watch].insert(kind, Stream { broken_until: begins, ..Stream::default() });
        }
    }

    /// Restarts the watch of a kind with a list; keys reported before are kept.
    pub fn list_anew(&mut self, around: &mut Surroundings, watch: usize, kind: Kind) {
        if let Some(stream) = self.watches[watch].get_mut(&kind) {
            stream.pending.clear();
            stream.silent_until = Time::ZERO;
            stream.broken_until = Some(around.now + around.between(0, 1_000));
        }
    }

    /// Holds back events of a kind until then, unless the watch is restarted first.
    pub fn silence(&mut self, watch: usize, kind: Kind, until: Time) {
        if let Some(stream) = self.watches[watch].get_mut(&kind) {
            stream.silent_until = until;
        }
    }

    /// Events due now.
    pub fn poll(&mut self, around: &mut Surroundings, watch: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        let count = self.kinds.len();
        let first = around.rng.usize(0..count);
        for number in 0..count {
            let kind = self.kinds[(first + number) % count];
            let begins = self.watches[watch].get(&kind).and_then(|stream| stream.broken_until);
            let list: Option<Vec<Arc<Object>>> =
                begins.filter(|begins| *begins <= around.now).map(|_| self.of_kind(kind).cloned().collect());
            let Some(stream) = self.watches[watch].get_mut(&kind) else { continue };
            if let Some(list) = list {
                stream.broken_until = None;
                let at = stream.last.max(around.now + around.between(0, 500));
                stream.last = at;
                let keys = list.iter().map(|object| Key::from(object.metadata())).collect();
                stream.pending.extend(list.into_iter().map(|object| (at, Event::Applied(object))));
                stream.pending.push_back((at, Event::Listed(keys, around.now)));
            }
            if stream.silent_until > around.now {
                continue;
            }
            while stream.pending.front().is_some_and(|(at, _)| *at <= around.now) {
                let Some((_, event)) = stream.pending.pop_front() else { break };
                match event {
                    Event::Applied(object) => {
                        stream.known.insert(Key::from(object.metadata()));
                        seen.push(Seen::Applied(object));
                    }
                    Event::Deleted(key) => {
                        stream.known.remove(&key);
                        seen.push(Seen::Deleted(kind, key));
                    }
                    Event::Listed(keys, made) => {
                        if !around.has(Bug::RelistWithoutDeletions) {
                            let gone = stream.known.difference(&keys).cloned();
                            seen.extend(gone.map(|key| Seen::Deleted(kind, key)));
                        }
                        stream.known = keys;
                        seen.push(Seen::Complete(kind, made));
                    }
                }
            }
        }
        seen
    }
}
