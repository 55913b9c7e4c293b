//! Plays a scene with two replicas of the controller.

use tessera_decide::Time;

use super::api_server::{Server, Surroundings};
use super::replica::{Lease, Replica};
use super::scene::Stage;
use super::scheduler::Scheduler;
use super::{checks, kubernetes};

/// Start time of the processes. Cards have long been managed by then, and the first leader has finished fencing when the scene
/// begins.
const BEGIN: Time = Time::from_secs(60);
/// Virtual time per step.
const STEP: Time = Time::from_millis(200);
/// Step while nothing changes.
const LONG_STEP: Time = Time::from_secs(1);
/// The cluster counts as idle this long after the last change.
const IDLE: Time = Time::from_secs(3);
/// A run ends after this long without a change: longer than any wait without a wake-up time.
const QUIET: Time = Time::from_secs(40);
/// Everything must be quiet by then: refusals count for five minutes.
const LATEST: Time = Time::from_secs(700);

/// Result of a run.
pub struct Ended {
    pub violation: Option<String>,
    /// Number of writes by all replicas.
    pub writes: usize,
    pub log: Vec<String>,
}

/// State of a scene being played.
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

/// Plays until nothing changes any more.
pub fn until_quiet(around: Surroundings, server: Server, stage: Stage) -> Ended {
    let mut play = Play::new(around, server, stage);
    let mut changed = (play.around.now, play.server.version);
    // Time of the last change, whether or not replicas are away.
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
            // Intents caused by the last change come at once.
            checks::end(&mut play.around, &play.server, &play.replicas, changed.0 + IDLE);
            break;
        }
        if now > LATEST {
            play.around.violated(|| "it does not become quiet".to_owned());
        }
    }
    play.end()
}

/// Plays until `end`, for cases in which some component may retry forever.
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
