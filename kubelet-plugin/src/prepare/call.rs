//! How long the work on a claim may take, and what ends it before.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::PrepareError;

/// What runs when it shall end (a request, a look at a card) gets so much time to do it by itself.
const GRACE: Duration = Duration::from_secs(1);

/// How long background work may take in which all claims have their turn. It comes back to what it has not done.
const BACKGROUND: Duration = Duration::from_secs(300);

/// Background work, broken off as by the end of the process where it takes too long: a call of the driver may hang in it.
pub(super) async fn in_time(
    work: impl Future<Output = Result<(), PrepareError>>,
) -> Result<(), PrepareError> {
    let late = || PrepareError::Busy { what: "one of the claims", longest: BACKGROUND };
    tokio::time::timeout(BACKGROUND, work).await.unwrap_or_else(|_| Err(late()))
}

/// What ends a piece of work before it has what it waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending {
    /// The plugin is stopping.
    pub stopping: CancellationToken,
    /// The kubelet asked for the opposite meanwhile.
    pub overtaken: CancellationToken,
}

/// How long the work on a claim may wait, and whom it concerns.
#[derive(Debug)]
pub(super) struct Call {
    /// When the kubelet must have its answer.
    pub deadline: Instant,
    pub ending: Ending,
    consumers: Mutex<Vec<ObjectReference>>,
}

impl Ending {
    /// Returns when the work shall end, with the reason.
    pub(super) async fn asked(&self) -> PrepareError {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => PrepareError::Stopping,
            () = self.overtaken.cancelled() => PrepareError::Overtaken,
        }
    }
}

impl Call {
    pub(super) fn new(deadline: Instant, ending: Ending) -> Self {
        Self { deadline, ending, consumers: Mutex::default() }
    }

    /// Whether there is no time left to wait.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// The time left, or `least` where less is left.
    pub(super) fn time_left(&self, least: Duration) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(least)
    }

    /// Does what changes nothing, and so may be dropped soon after the work shall end.
    pub(super) async fn unless_ended<T, E: From<PrepareError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let ended = async {
            let reason = self.ending.asked().await;
            tokio::time::sleep(GRACE).await;
            reason
        };
        tokio::select! {
            biased;
            result = work => result,
            reason = ended => Err(reason.into()),
        }
    }

    /// The pods that the claim is reserved for, as last read.
    pub(super) fn consumers(&self) -> Vec<ObjectReference> {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_consumers(&self, consumers: Vec<ObjectReference>) {
        *self.consumers.lock().unwrap_or_else(PoisonError::into_inner) = consumers;
    }
}
