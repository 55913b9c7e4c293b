//! Faults by chance.

use std::time::Duration;

use axum::http::Method;
use serde_json::json;

use super::{Act, refusal};

/// Random faults of requests.
pub struct Chance {
    rng: fastrand::Rng,
    /// No request gets through.
    is_cut_off: bool,
}

impl Chance {
    pub fn new(seed: u64) -> Self {
        Chance { rng: fastrand::Rng::with_seed(seed), is_cut_off: false }
    }

    pub fn never() -> Self {
        Chance { is_cut_off: true, ..Chance::new(0) }
    }

    /// Half of all requests get through as if nothing were wrong.
    pub fn act(&mut self, method: &Method, is_watch: bool) -> Option<Act> {
        if self.is_cut_off {
            return Some(Act::Hang);
        }
        let percent = self.rng.u32(0..100);
        let milliseconds = |least, most, rng: &mut fastrand::Rng| Duration::from_millis(rng.u64(least..most));
        if is_watch {
            return match percent {
                0..40 => Some(Act::Break(milliseconds(200, 5_000, &mut self.rng))),
                40..50 => Some(Act::Hang),
                50..55 => Some(expired()),
                55..60 => Some(refusal(410, "Expired")),
                60..65 => Some(refusal(500, "InternalError")),
                65..75 => Some(Act::Delay(milliseconds(100, 3_000, &mut self.rng))),
                _ => None,
            };
        }
        let is_read = *method == Method::GET;
        match percent {
            0..20 => Some(Act::Delay(milliseconds(50, 1_500, &mut self.rng))),
            // Later than a client waits.
            20..23 if !is_read => Some(Act::Delay(milliseconds(9_000, 14_000, &mut self.rng))),
            23..29 => Some(Act::Hang),
            29..35 => Some(Act::LoseAnswer),
            35..40 if is_read => Some(refusal(410, "Expired")),
            35..40 => Some(refusal(409, "Conflict")),
            40..45 => Some(refusal(500, "InternalError")),
            45..50 => Some(busy()),
            _ => None,
        }
    }
}

/// The event ending a watch at an expired version.
fn expired() -> Act {
    let Act::Status(_, status) = refusal(410, "Expired") else { return Act::Hang };
    Act::WatchEvent(json!({ "type": "ERROR", "object": status }))
}

/// As of a server with full queues.
fn busy() -> Act {
    let Act::Status(code, mut status) = refusal(429, "TooManyRequests") else { return Act::Hang };
    status["details"] = json!({ "retryAfterSeconds": 1 });
    Act::Status(code, status)
}
