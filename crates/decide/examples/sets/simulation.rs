//! Requests come, get cards, keep them for a time, and go.

use std::collections::{BTreeSet, VecDeque};

use tessera_inventory::topology::CardSet;

use crate::arrivals::Request;

/// Who chooses.
pub trait Policy {
    /// Another simulation begins, with empty machines.
    fn begin(&mut self);

    /// The machine and the cards for a request; at least one machine has enough of these free cards.
    fn place(&mut self, id: usize, cards: usize, free: &[CardSet]) -> (usize, CardSet);

    /// The request gives its cards back.
    fn end(&mut self, id: usize);
}

/// What becomes of a request that no machine has room for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// It is lost.
    None,
    /// It waits, and with it all that come after it.
    InOrder,
    /// It waits; others that fit get their cards.
    Overtaking,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fate {
    /// The request.
    pub request: Request,
    /// Its cards and how long it waited for them; `None` where it was lost, or still waits.
    pub got: Option<(CardSet, f64)>,
}

/// Machines with what is free of them.
struct Machines<'p> {
    free: Vec<CardSet>,
    /// What ends next: when, as the bits of a time that is not negative, and which request.
    ends: BTreeSet<(u64, usize)>,
    places: Vec<Option<(usize, CardSet)>>,
    policy: &'p mut dyn Policy,
}

/// What becomes of the requests on so many machines with so many cards. Those of the first tenth, when machines fill up, are
/// left out.
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

    /// Gives cards to those that wait, in the order of their arrival.
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

    /// On one machine with four cards: 3 until 10, then 2, 1, 2 arrive.
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
