//! Candidates on a network with losses, delays and repetitions, at virtual time: never two leaders, and always one again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

use super::LeaseOptions;
use super::election::{Election, Request, Step, holder};

const CANDIDATES: usize = 3;
/// Until then there are faults; milliseconds.
const TROUBLED: u64 = 180_000;
/// How long a candidate is away at most.
const AWAY: u64 = 40_000;
/// By then somebody leads: the last is back, a dead leader's term is over, and late requests have done their harm.
const SETTLED: u64 = TROUBLED + AWAY + 30_000;
const END: u64 = SETTLED + 30_000;
/// How much faster a candidate's clock may be than another's, percent.
const CLOCKS: [u64; CANDIDATES] = [100, 101, 99];

type Answer = Result<Option<Lease>, bool>;

/// The API server.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

impl Server {
    fn carry_out(&mut self, request: &Request) -> Answer {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        let written = match (request, &self.lease) {
            (Request::Read, _) => return Ok(self.lease.clone()),
            (Request::Create(spec), None) => Lease { spec: Some((**spec).clone()), ..Lease::default() },
            (Request::Update(lease), Some(stored)) if version(lease) == version(stored) => (**lease).clone(),
            _ => return Err(true),
        };
        self.write(written)
    }

    fn write(&mut self, mut lease: Lease) -> Answer {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease);
        Ok(self.lease.clone())
    }

    /// Writes nonsense about the same holder.
    fn garble(&mut self, rng: &mut Rng) {
        let Some(mut lease) = self.lease.clone() else { return };
        if let Some(spec) = &mut lease.spec {
            spec.renew_time = None;
            spec.acquire_time = None;
            spec.lease_duration_seconds = rng.choice([None, Some(-5), Some(0), Some(1)]).flatten();
            spec.lease_transitions = rng.choice([None, Some(-1), Some(i32::MAX)]).flatten();
        }
        self.write(lease).unwrap();
    }
}

enum Event {
    /// The candidate of this life looks at its clock.
    Wake {
        candidate: usize,
        life: u64,
        ask: u64,
    },
    /// A request reaches the server.
    Arrive {
        candidate: usize,
        life: u64,
        ask: u64,
        request: Request,
        sent: u64,
    },
    Answer {
        candidate: usize,
        life: u64,
        ask: u64,
        request: Request,
        answer: Box<Answer>,
        sent: u64,
    },
    /// Nothing more is waited for.
    GiveUp {
        candidate: usize,
        life: u64,
        ask: u64,
        request: Request,
        sent: u64,
    },
    Crash {
        candidate: usize,
    },
    Start {
        candidate: usize,
    },
    /// The candidate shuts down in order, and releases the Lease.
    Stop {
        candidate: usize,
    },
    CutOff {
        candidate: usize,
        until: u64,
    },
    /// Somebody writes nonsense into the Lease.
    Garble,
    Delete,
}

struct World {
    rng: Rng,
    start: Instant,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    now: u64,
    server: Server,
    candidates: [Option<Election>; CANDIDATES],
    /// Counts starts of each candidate, and the requests of all: answers for an earlier count are void.
    lives: [u64; CANDIDATES],
    asks: [u64; CANDIDATES],
    cut_off: [u64; CANDIDATES],
    /// Terms seen, for the test's own sake.
    terms: usize,
    last_leader: Option<usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: Rng::with_seed(seed),
            start: Instant::now() + Duration::from_secs(1),
            events: BTreeMap::new(),
            count: 0,
            now: 0,
            server: Server::default(),
            candidates: Default::default(),
            lives: Default::default(),
            asks: Default::default(),
            cut_off: Default::default(),
            terms: 0,
            last_leader: None,
        };
        for candidate in 0..CANDIDATES {
            let at = world.rng.u64(0..3000);
            world.at(at, Event::Start { candidate });
        }
        // Who comes new to a deleted Lease cannot know of its leader: either nobody comes new, or nobody deletes.
        let deletes = world.rng.bool();
        if deletes {
            let at = world.rng.u64(60_000..TROUBLED);
            world.at(at, Event::Delete);
        }
        for _ in 0..world.rng.u64(0..12) {
            let (at, candidate) = (world.rng.u64(60_000..TROUBLED), world.rng.usize(0..CANDIDATES));
            let back = at + world.rng.u64(100..AWAY);
            match world.rng.u8(0..4) {
                0 if !deletes => {
                    world.at(at, Event::Crash { candidate });
                    world.at(back, Event::Start { candidate });
                }
                1 if !deletes => {
                    world.at(at, Event::Stop { candidate });
                    world.at(back, Event::Start { candidate });
                }
                2 => world.at(at, Event::Garble),
                _ => world.at(at, Event::CutOff { candidate, until: back.min(TROUBLED) }),
            }
        }
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.insert((time.max(self.now), self.count), event);
    }

    /// A candidate's own clock.
    fn clock(&self, candidate: usize, at: u64) -> Instant {
        self.start + Duration::from_micros(at * 10 * CLOCKS[candidate])
    }

    /// When a candidate's clock shows this.
    fn when(&self, candidate: usize, clock: Instant) -> u64 {
        let micros = u64::try_from(clock.saturating_duration_since(self.start).as_micros()).unwrap();
        micros.div_ceil(10 * CLOCKS[candidate])
    }

    /// Time on the network; `None` for a lost message.
    fn way(&mut self, candidate: usize) -> Option<u64> {
        if self.now >= TROUBLED {
            return Some(self.rng.u64(1..50));
        }
        if self.now < self.cut_off[candidate] || self.rng.u8(0..100) < 5 {
            return None;
        }
        Some(match self.rng.u8(0..100) {
            0..80 => self.rng.u64(1..50),
            80..95 => self.rng.u64(50..6000),
            // Long after the requester's timeout.
            _ => self.rng.u64(6000..25_000),
        })
    }

    fn step(&mut self, candidate: usize) {
        let wall = Timestamp::UNIX_EPOCH;
        let now = self.clock(candidate, self.now);
        self.asks[candidate] += 1;
        let (life, ask, sent) = (self.lives[candidate], self.asks[candidate], self.now);
        let Some(election) = &mut self.candidates[candidate] else { return };
        match election.next(now, wall) {
            Step::Wait(until) => {
                let at = self.when(candidate, until);
                self.at(at, Event::Wake { candidate, life, ask });
            }
            Step::Send { request, until } => {
                if let Some(way) = self.way(candidate) {
                    let request = request.clone();
                    self.at(self.now + way, Event::Arrive { candidate, life, ask, request, sent });
                }
                let at = self.when(candidate, until);
                self.at(at, Event::GiveUp { candidate, life, ask, request, sent });
            }
        }
    }

    fn is_current(&self, candidate: usize, life: u64, ask: u64) -> bool {
        self.lives[candidate] == life && self.asks[candidate] == ask && self.candidates[candidate].is_some()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake { candidate, life, ask } => {
                if self.is_current(candidate, life, ask) {
                    self.step(candidate);
                }
            }
            Event::Arrive { candidate, life, ask, request, sent } => {
                let answer = Box::new(self.server.carry_out(&request));
                if let Some(way) = self.way(candidate) {
                    let event = Event::Answer { candidate, life, ask, request, answer, sent };
                    self.at(self.now + way, event);
                }
            }
            Event::Answer { candidate, life, ask, request, answer, sent } => {
                self.answered(candidate, life, ask, &request, *answer, sent);
            }
            Event::GiveUp { candidate, life, ask, request, sent } => {
                self.answered(candidate, life, ask, &request, Err(false), sent);
            }
            Event::Crash { candidate } => self.candidates[candidate] = None,
            Event::Start { candidate } => {
                if self.candidates[candidate].is_none() {
                    self.lives[candidate] += 1;
                    let options = LeaseOptions::new("n", "l", format!("c{candidate}"));
                    let now = self.clock(candidate, self.now);
                    self.candidates[candidate] = Some(Election::new(options, now));
                    self.step(candidate);
                }
            }
            Event::Stop { candidate } => {
                if self.candidates[candidate].take().is_some_and(|mut election| election.resign()) {
                    self.release(candidate);
                }
            }
            Event::CutOff { candidate, until } => self.cut_off[candidate] = until,
            Event::Garble => self.server.garble(&mut self.rng),
            Event::Delete => self.server.lease = None,
        }
        self.check();
    }

    fn answered(
        &mut self,
        candidate: usize,
        life: u64,
        ask: u64,
        request: &Request,
        answer: Answer,
        sent: u64,
    ) {
        if !self.is_current(candidate, life, ask) {
            return;
        }
        let (sent, now) = (self.clock(candidate, sent), self.clock(candidate, self.now));
        if let Some(election) = &mut self.candidates[candidate] {
            election.answered(request, answer, sent, now);
            // The driver's next step of this candidate.
            self.step(candidate);
        }
    }

    fn release(&mut self, candidate: usize) {
        let Some(mut lease) = self.server.lease.clone() else { return };
        if holder(&lease).is_some_and(|holder| *holder == format!("c{candidate}"))
            && let Some(spec) = &mut lease.spec
        {
            spec.holder_identity = Some(String::new());
            self.server.write(lease).unwrap();
        }
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |candidate: &usize| {
            let now = self.clock(*candidate, self.now);
            let election = self.candidates[*candidate].as_ref();
            election.is_some_and(|election| election.leadership().may_write(now))
        };
        (0..CANDIDATES).filter(leads).collect()
    }

    fn check(&mut self) {
        let leaders = self.leaders();
        assert!(leaders.len() <= 1, "{leaders:?} lead at {} ms", self.now);
        if let Some(leader) = leaders.first()
            && self.last_leader != Some(*leader)
        {
            self.last_leader = Some(*leader);
            self.terms += 1;
        }
    }

    /// Number of changes of the leader.
    fn run(mut self) -> usize {
        let mut settled = None;
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > END {
                break;
            }
            self.now = time;
            self.handle(event);
            if self.now > SETTLED {
                let leaders = self.leaders();
                assert_eq!(leaders.len(), 1, "nobody leads at {} ms", self.now);
                assert_eq!(
                    *settled.get_or_insert(leaders[0]),
                    leaders[0],
                    "without a reason, the leader changes"
                );
            }
        }
        assert!(settled.is_some(), "nobody leads in the end");
        self.terms
    }
}

#[test]
fn at_most_one_leads_whatever_happens_and_one_does_when_nothing_happens() {
    let mut terms = 0;
    for seed in 0..1000 {
        let run = std::panic::catch_unwind(|| World::new(seed).run());
        terms += run.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(terms > 1500, "only {terms} terms: the faults are too harmless to say anything");
}
