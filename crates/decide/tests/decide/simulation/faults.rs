//! Faults at writes of the controller that are told by number.

use tessera_decide::Time;

/// What goes wrong at a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with 409, and not done.
    Conflict,
    /// It is answered with 500, and not done.
    Error,
    /// It is answered with 500 or 504, and done all the same.
    DoneAndError,
    /// It never arrives, and nobody answers.
    RequestLost,
    /// It is done, and nobody answers.
    AnswerLost,
    /// It arrives when nobody waits for its answer any more; the same replica leads.
    Late,
    /// Its sender crashes, and it arrives when another replica leads.
    LateAfterCrash,
    /// Its sender crashes as soon as it was done, and is away until another leads.
    Crash,
    /// Its sender crashes as soon as it was done, and is back before another can lead.
    Restart,
    /// Its sender stands still before it leaves, until another leads: it was allowed to write when it looked.
    PauseBefore,
    /// Its sender stands still as soon as it was done, until another leads.
    PauseAfter,
}

/// What becomes of a replica that sends a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incident {
    /// It ends, and another process starts so much later.
    Crash(Time),
    /// It stands still for so long.
    Pause(Time),
}

/// So late nobody waits for an answer any more.
pub const LATE: Time = Time::from_secs(12);
/// So long after it was last renewed another replica has the lease and has begun to write.
pub const AWAY: Time = Time::from_secs(24);
/// So soon a container starts again.
pub const SOON: Time = Time::from_secs(2);

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 11] = [
        Fault::Conflict,
        Fault::Error,
        Fault::DoneAndError,
        Fault::RequestLost,
        Fault::AnswerLost,
        Fault::Late,
        Fault::LateAfterCrash,
        Fault::Crash,
        Fault::Restart,
        Fault::PauseBefore,
        Fault::PauseAfter,
    ];

    /// Those of which all pairs are tried. The loop is told of an error what it is told of a conflict; the others that are left
    /// out are gentler forms of one that is here.
    pub const PAIRED: [Fault; 8] = [
        Fault::Conflict,
        Fault::DoneAndError,
        Fault::RequestLost,
        Fault::AnswerLost,
        Fault::LateAfterCrash,
        Fault::Crash,
        Fault::PauseBefore,
        Fault::PauseAfter,
    ];

    /// How much longer than others it is on its way.
    pub fn delay(self) -> Time {
        match self {
            Fault::Late => LATE,
            Fault::LateAfterCrash | Fault::PauseBefore => AWAY,
            _ => Time::ZERO,
        }
    }

    /// What becomes of the sender when it is sent.
    pub fn when_sent(self) -> Option<Incident> {
        match self {
            Fault::LateAfterCrash => Some(Incident::Crash(AWAY + LATE)),
            Fault::PauseBefore => Some(Incident::Pause(AWAY)),
            _ => None,
        }
    }

    /// What becomes of the sender when it has arrived.
    pub fn when_arrived(self) -> Option<Incident> {
        match self {
            Fault::Crash => Some(Incident::Crash(AWAY)),
            Fault::Restart => Some(Incident::Crash(SOON)),
            Fault::PauseAfter => Some(Incident::Pause(AWAY)),
            _ => None,
        }
    }
}

/// Faults by the number of the write, of all replicas, at which they happen; the first write is 1.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub faults: Vec<(usize, Fault)>,
    /// Writes so far.
    pub writes: usize,
}

impl Plan {
    /// With these faults.
    pub fn of(faults: &[(usize, Fault)]) -> Self {
        Plan { faults: faults.to_vec(), writes: 0 }
    }

    /// What goes wrong at the next write; of two, the second is what becomes of it in the end.
    pub fn next(&mut self) -> Vec<Fault> {
        self.writes += 1;
        let here = self.faults.iter().filter(|(number, _)| *number == self.writes);
        here.map(|(_, fault)| *fault).collect()
    }
}
