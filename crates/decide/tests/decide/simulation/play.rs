//! Plays what happens in a scene, with two replicas of the controller.

use tessera_decide::Time;

use super::api_server::{Server, Surroundings};
use super::replica::{Lease, Replica};
use super::scene::Stage;
use super::scheduler::Scheduler;
use super::{checks, kubernetes};

/// When the processes start: what is managed has been so for long. Nor does the first of them fence what comes late, when the
/// scene begins.
const BEGIN: Time = Time::from_secs(60);
/// Virtual time between two looks at everything.
const STEP: Time = Time::from_millis(200);
/// The same while nothing changes.
const LONG_STEP: Time = Time::from_secs(1);
/// So long after the last change it counts as idle.
const IDLE: Time = Time::from_secs(3);
/// So long nothing may change any more: longer than anything waits that does not say so.
const QUIET: Time = Time::from_secs(40);
/// By then everything must be quiet: refusals count for five minutes.
const LATEST: Time = Time::from_secs(700);

/// What a run says.
pub struct Ended {
    pub violation: Option<String>,
    /// Writes of all replicas.
    pub writes: usize,
    pub log: Vec<String>,
}

/// What runs while a scene is played.
struct Play {
    around: Surroundings,
    server: Server,
    stage: Stage,
    scheduler: Scheduler,
    lease: Lease,
    replicas: [Replica; 2],
    seen: u64,
}

impl Play {
    fn new(mut around: Surroundings, mut server: Server, stage: Stage) -> Self {
        around.now = BEGIN;
        let scheduler = Scheduler::new(&mut around, &mut server);
        let replicas = [0, 1].map(|number| Replica::new(&mut around, &mut server, number));
        Play { around, server, stage, scheduler, lease: Lease::default(), replicas, seen: 0 }
    }

    fn step(&mut self, time: Time) {
        let (around, server) = (&mut self.around, &mut self.server);
        around.now += time;
        self.stage.step(around, server, &mut self.scheduler, &mut self.replicas);
        kubernetes::step(around, server, &mut self.seen);
        self.scheduler.step(around, server);
        for replica in &mut self.replicas {
            replica.step(around, server, &mut self.lease);
        }
        checks::gangs::look(around, server);
    }

    fn end(self) -> Ended {
        let writes = self.around.plan.map_or(0, |plan| plan.writes);
        Ended { violation: self.around.violation, writes, log: self.around.log.unwrap_or_default() }
    }
}

/// Until nothing changes any more.
pub fn until_quiet(around: Surroundings, server: Server, stage: Stage) -> Ended {
    let mut play = Play::new(around, server, stage);
    let mut changed = (play.around.now, play.server.version);
    // The last change, whoever is away.
    let mut active = play.around.now;
    while play.around.violation.is_none() {
        let is_idle = play.around.now > active + IDLE;
        play.step(if is_idle { LONG_STEP } else { STEP });
        let now = play.around.now;
        let will_go_on = |replica: &Replica| replica.is_busy() || replica.will_wake(&play.around);
        if changed.1 != play.server.version {
            active = now;
        }
        if changed.1 != play.server.version || !play.stage.is_over() || play.replicas.iter().any(will_go_on) {
            changed = (now, play.server.version);
        }
        if now > changed.0 + QUIET {
            // What follows from the last change is told at once.
            checks::end(&mut play.around, &play.server, &play.replicas, changed.0 + IDLE);
            break;
        }
        if now > LATEST {
            play.around.violated(|| "it does not become quiet".to_owned());
        }
    }
    play.end()
}

/// Until then: somebody may try again and again.
pub fn until(end: Time, around: Surroundings, server: Server, stage: Stage) -> Ended {
    let mut play = Play::new(around, server, stage);
    let mut changed = (play.around.now, play.server.version);
    while play.around.violation.is_none() && play.around.now < end {
        let is_idle = play.around.now > changed.0 + IDLE;
        play.step(if is_idle { LONG_STEP } else { STEP });
        if changed.1 != play.server.version {
            changed = (play.around.now, play.server.version);
        }
    }
    if play.around.violation.is_none() {
        checks::end(&mut play.around, &play.server, &play.replicas, end + LONG_STEP);
    }
    play.end()
}
