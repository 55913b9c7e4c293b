//! Faults at writes of the controller, by number of the write.

use tessera_decide::Time;

/// A fault at a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Answered with 409, and not done.
    Conflict,
    /// Answered with 500, and not done.
    Error,
    /// Answered with 500 or 504, and done all the same.
    DoneAndError,
    /// The request never arrives, and nobody answers.
    RequestLost,
    /// Done, and nobody answers.
    AnswerLost,
    /// The request arrives when nobody waits for its answer any more; the same replica leads.
    Late,
    /// The sender crashes, and the request arrives when another replica leads.
    LateAfterCrash,
    /// The sender crashes as soon as the write is done, and is away until another replica leads.
    Crash,
    /// The sender crashes as soon as the write is done, and is back before another replica can lead.
    Restart,
    /// The sender pauses before sending, until another replica leads: leadership was checked before the pause.
    PauseBefore,
    /// The sender pauses as soon as the write is done, until another replica leads.
    PauseAfter,
}

/// Incident at a replica sending a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incident {
    /// The process ends, and another starts this much later.
    Crash(Time),
    /// The process pauses for this long.
    Pause(Time),
}

/// Delay after which nobody waits for an answer any more.
pub const LATE: Time = Time::from_secs(12);
/// By this long after its last renewal the lease has another holder, already writing.
pub const AWAY: Time = Time::from_secs(24);
/// Time for a container to restart.
pub const SOON: Time = Time::from_secs(2);

impl Fault {
    /// All faults.
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

    /// Faults tried in all pairs. The loop is told the same of an error as of a conflict; the others left out are gentler forms
    /// of a fault listed here.
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

    /// Extra delay of the request.
    pub fn delay(self) -> Time {
        match self {
            Fault::Late => LATE,
            Fault::LateAfterCrash | Fault::PauseBefore => AWAY,
            _ => Time::ZERO,
        }
    }

    /// Incident at the sender on sending.
    pub fn when_sent(self) -> Option<Incident> {
        match self {
            Fault::LateAfterCrash => Some(Incident::Crash(AWAY + LATE)),
            Fault::PauseBefore => Some(Incident::Pause(AWAY)),
            _ => None,
        }
    }

    /// Incident at the sender on arrival of the request.
    pub fn when_arrived(self) -> Option<Incident> {
        match self {
            Fault::Crash => Some(Incident::Crash(AWAY)),
            Fault::Restart => Some(Incident::Crash(SOON)),
            Fault::PauseAfter => Some(Incident::Pause(AWAY)),
            _ => None,
        }
    }
}

/// Faults by number of the write, counted over all replicas; the first write is 1.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub faults: Vec<(usize, Fault)>,
    /// Number of writes so far.
    pub writes: usize,
}

impl Plan {
    /// A plan with these faults.
    pub fn of(faults: &[(usize, Fault)]) -> Self {
        Plan { faults: faults.to_vec(), writes: 0 }
    }

    /// Faults at the next write; of two, the second prevails.
    pub fn next(&mut self) -> Vec<Fault> {
        self.writes += 1;
        let here = self.faults.iter().filter(|(number, _)| *number == self.writes);
        here.map(|(_, fault)| *fault).collect()
    }
}
