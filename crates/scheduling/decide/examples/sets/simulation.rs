//! Requests arrive, get cards, keep them for a time, and leave.

use std::collections::{BTreeSet, VecDeque};

use tessera_inventory::topology::CardSet;

use crate::arrivals::Request;

/// A policy choosing cards.
pub trait Policy {
    /// Starts another simulation with empty machines.
    fn begin(&mut self);

    /// The machine and the cards for a request. At least one machine has enough free cards.
    fn place(&mut self, id: usize, cards: usize, free: &[CardSet]) -> (usize, CardSet);

    /// The request returns its cards.
    fn end(&mut self, id: usize);
}

/// Handling of a request without room on any machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// The request is lost.
    None,
    /// The request waits and holds up all later requests.
    InOrder,
    /// The request waits. Later requests with room get their cards.
    Overtaking,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fate {
    /// The request.
    pub request: Request,
    /// The cards and the wait for them. `None` if the request was lost or still waits.
    pub got: Option<(CardSet, f64)>,
}

/// Machines and their free cards.
struct Machines<'p> {
    free: Vec<CardSet>,
    /// Upcoming ends: the time, as the bits of a non-negative float, and the request.
    ends: BTreeSet<(u64, usize)>,
    places: Vec<Option<(usize, CardSet)>>,
    policy: &'p mut dyn Policy,
}

/// Outcomes of the requests on machines with as many cards each. The first tenth, while machines fill up, is left out.
pub fn run(requests: &[Request], size: (usize, usize), queue: Queue, policy: &mut dyn Policy) -> Vec<Fate> {
    let (nodes, cards) = size;
    policy.begin();
    let mut machines = Machines {
        free: vec![CardSet::first(cards); nodes],
        ends: BTreeSet::new(),
        places: vec![None; requests.len()],
        policy,
    };
    let mut fates: Vec<Fate> = requests.iter().map(|request| Fate { request: *request, got: None }).collect();
    let mut waiting: VecDeque<usize> = VecDeque::new();
    for (id, request) in requests.iter().enumerate() {
        while let Some((end, ended)) = machines.ends.first().copied()
            && f64::from_bits(end) <= request.at
        {
            machines.end(end, ended);
            machines.serve(&mut waiting, f64::from_bits(end), queue, &mut fates);
        }
        waiting.push_back(id);
        machines.serve(&mut waiting, request.at, queue, &mut fates);
        if queue == Queue::None {
            waiting.clear();
        }
    }
    fates.split_off(requests.len() / 10)
}

impl Machines<'_> {
    fn end(&mut self, end: u64, id: usize) {
        self.ends.remove(&(end, id));
        let (node, cards) = self.places[id].take().expect("it has cards");
        self.free[node] = self.free[node] | cards;
        self.policy.end(id);
    }

    /// Gives cards to waiting requests in order of arrival.
    fn serve(&mut self, waiting: &mut VecDeque<usize>, now: f64, queue: Queue, fates: &mut [Fate]) {
        let mut most = self.most_free();
        let mut place = 0;
        while let Some(id) = waiting.get(place).copied().filter(|_| most > 0) {
            let Request { at, cards, service } = fates[id].request;
            if cards > most {
                if queue == Queue::InOrder {
                    return;
                }
                place += 1;
                continue;
            }
            let (node, set) = self.policy.place(id, cards, &self.free);
            assert!(set.len() == cards && self.free[node].includes(set), "{set:?} of {:?}", self.free[node]);
            self.free[node] = self.free[node] - set;
            self.places[id] = Some((node, set));
            self.ends.insert(((now + service).to_bits(), id));
            fates[id].got = Some((set, now - at));
            waiting.remove(place);
            most = self.most_free();
        }
    }

    fn most_free(&self) -> usize {
        self.free.iter().map(|free| free.len()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lowest free cards of the first machine.
    struct First;

    impl Policy for First {
        fn begin(&mut self) {}
        fn place(&mut self, _: usize, cards: usize, free: &[CardSet]) -> (usize, CardSet) {
            let node = free.iter().position(|free| free.len() >= cards).unwrap();
            (node, free[node].iter().take(cards).map(CardSet::single).collect())
        }
        fn end(&mut self, _: usize) {}
    }

    /// Waits on one machine with four cards: 3 in use until 10, then requests for 2, 1 and 2 arrive.
    fn waits(queue: Queue) -> Vec<Option<f64>> {
        let request = |at: f64, cards: usize, service: f64| Request { at, cards, service };
        let requests =
            [request(0.0, 3, 10.0), request(1.0, 2, 5.0), request(2.0, 1, 1.0), request(11.0, 2, 1.0)];
        let fates = run(&requests, (1, 4), queue, &mut First);
        fates.iter().map(|fate| fate.got.map(|(_, wait)| wait)).collect()
    }

    #[test]
    fn who_waits_for_whom() {
        assert_eq!(waits(Queue::None), [Some(0.0), None, Some(0.0), Some(0.0)]);
        assert_eq!(waits(Queue::InOrder), [Some(0.0), Some(9.0), Some(8.0), Some(0.0)]);
        assert_eq!(waits(Queue::Overtaking), [Some(0.0), Some(9.0), Some(0.0), Some(0.0)]);
    }
}
