//! Repeats attempts at a claim, with waits between them.

use std::sync::Arc;
use std::time::Duration;

use tessera_kube_util::backoff::Backoff;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{Instant, sleep, sleep_until};

use super::call::Call;
use super::steps::Attempt;
use crate::driver::Driver;
use crate::prepare::cards::{IfHeld, Worker};
use crate::prepare::tell::claim_events;
use crate::prepare::{ClaimReference, Operation, Phase, PrepareError, PrepareObserver, PreparedDevice};

/// Divisor of [`answer_within`](crate::prepare::PrepareOptions::answer_within) for the wait of a pod's end for a partition not
/// released by the driver. Its devices get a taint after half of the wait, so no new claim is led there when the pod has ended.
const HELD_PART: u32 = 4;

/// A wait for the observer, from the first failed attempt until dropped.
struct Wait {
    observer: Arc<dyn PrepareObserver>,
    operation: Operation,
    since: Instant,
    reason: &'static str,
    told: Option<String>,
    passed: bool,
}

impl Worker {
    /// Prepares or unprepares a claim. Waits for obstacles to pass by themselves, until the call's deadline: the kubelet calls
    /// again only after a minute or more (its sync frequency and back-off), and an obstacle of a second must not delay a pod's
    /// start or end so long.
    ///
    /// Between two attempts no lock is held and nothing is kept in memory: each attempt reads claim and journal anew.
    pub async fn work(
        &self,
        operation: Operation,
        claim: &ClaimReference,
        call: &Call,
    ) -> Result<Vec<PreparedDevice>, PrepareError> {
        let mut wait: Option<Wait> = None;
        let (first, longest) = self.options.retry_pauses;
        let mut backoff = Backoff::new(first, longest);
        loop {
            // Subscribed before the attempt, so nothing is missed during the attempt.
            let mut released = self.released.subscribe();
            let mut hardware = self.hardware.clone();
            hardware.mark_unchanged();
            let waited = wait.as_ref().map_or(Duration::ZERO, |wait| wait.since.elapsed());
            let patience = self.options.answer_within / HELD_PART;
            let if_held = match waited {
                _ if call.is_over() => IfHeld::Leave,
                waited if waited >= patience => IfHeld::Leave,
                waited if waited >= patience / 2 => IfHeld::Tell,
                _ => IfHeld::Wait,
            };
            let attempt = Attempt { worker: self, operation, claim, call, if_held };
            let error = match attempt.run().await {
                Err(error) if error.may_pass() && !call.is_over() => error,
                answer => {
                    if let Some(wait) = &mut wait {
                        wait.passed = answer.is_ok();
                    }
                    return answer;
                }
            };
            let wait = wait.get_or_insert_with(|| {
                tracing::info!(%error, "waiting for this to pass");
                Wait::begin(self.observer.clone(), operation, error.reason())
            });
            wait.because(error.reason());
            let pause = backoff.delay();
            let wakes = async {
                tokio::select! {
                    () = is_released(&mut released, error.holder()) => {}
                    () = changes(&mut hardware), if matches!(error, PrepareError::NoDriver { .. }) => {}
                    () = sleep(pause) => {}
                }
            };
            tokio::pin!(wakes);
            loop {
                let tell = wait.is_news(&error);
                tokio::select! {
                    biased;
                    ended = call.ending.asked() => return Err(ended),
                    () = sleep_until(call.deadline) => return Err(error.clone()),
                    () = sleep_until(wait.since + self.options.tell_after), if tell => {
                        wait.told = Some(news(&error));
                        claim_events::waiting(&self.events, operation, claim, &call.consumers(), &error);
                    }
                    () = &mut wakes => break,
                }
            }
        }
    }
}

impl Wait {
    fn begin(observer: Arc<dyn PrepareObserver>, operation: Operation, reason: &'static str) -> Self {
        observer.waiting(reason, true);
        Self { observer, operation, since: Instant::now(), reason, told: None, passed: false }
    }

    /// Notes the present reason, a possible successor of the first one.
    fn because(&mut self, reason: &'static str) {
        if self.reason != reason {
            self.observer.waiting(self.reason, false);
            self.observer.waiting(reason, true);
            self.reason = reason;
        }
    }

    fn is_news(&self, error: &PrepareError) -> bool {
        self.told.as_deref() != Some(&*news(error))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.observer.waiting(self.reason, false);
        self.observer.phase(self.operation, Phase::Wait, self.passed, self.since.elapsed());
    }
}

/// Identifies the reason of a wait: only a change of this string is reported again during one wait.
fn news(error: &PrepareError) -> String {
    format!("{} {}", error.reason(), error.holder().unwrap_or_default())
}

async fn is_released(released: &mut broadcast::Receiver<Arc<str>>, holder: Option<&str>) {
    let Some(holder) = holder else { return std::future::pending().await };
    loop {
        match released.recv().await {
            Ok(uid) if *uid == *holder => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

async fn changes(hardware: &mut Driver) {
    if hardware.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
