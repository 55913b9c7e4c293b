//! The parts of the program as tasks: when one ends early, the program ends.

use std::{
    any::Any,
    collections::BTreeMap,
    error::Error,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use futures::FutureExt as _;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::error_text::with_causes;

/// How a part of the program ended too early.
#[derive(Debug, thiserror::Error)]
pub enum EndedEarly {
    /// The task returned.
    #[error("{name} ended by itself")]
    Returned {
        /// The part.
        name: &'static str,
    },
    /// The task failed.
    #[error("{name} failed")]
    Failed {
        /// The part.
        name: &'static str,
        /// The error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The task panicked.
    #[error("{name} panicked: {message}")]
    Panicked {
        /// The part.
        name: &'static str,
        /// The panic's message.
        message: String,
    },
}

/// Tasks with a common end. Clones share them.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
    failure: Arc<Mutex<Option<EndedEarly>>>,
    parts: Arc<Mutex<BTreeMap<u64, (&'static str, Instant)>>>,
}

/// A running part, until dropped.
struct Part {
    parts: Arc<Mutex<BTreeMap<u64, (&'static str, Instant)>>>,
    number: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl Tasks {
    /// No tasks yet. Tasks end when `shutdown` is cancelled, and cancel `shutdown` when one of them ends before.
    #[must_use]
    pub fn new(shutdown: CancellationToken) -> Self {
        Self { tracker: TaskTracker::new(), shutdown, failure: Arc::default(), parts: Arc::default() }
    }

    /// Runs an infallible part.
    pub fn spawn(&self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.spawn_fallible(name, part.map(Ok::<_, EndedEarly>));
    }

    /// Runs a fallible part.
    pub fn spawn_fallible<E>(
        &self,
        name: &'static str,
        part: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let (shutdown, failure) = (self.shutdown.clone(), Arc::clone(&self.failure));
        let listed = self.list(name);
        self.tracker.spawn(async move {
            let _listed = listed;
            // Unwind safety does not matter: nothing looks at the part's state, since the process ends.
            let ended = match AssertUnwindSafe(part).catch_unwind().await {
                Ok(Ok(())) if shutdown.is_cancelled() => return,
                Ok(Ok(())) => EndedEarly::Returned { name },
                Ok(Err(error)) => EndedEarly::Failed { name, source: error.into() },
                Err(panic) => EndedEarly::Panicked { name, message: text(&*panic).to_owned() },
            };
            tracing::error!("{}; ending this process, to be started anew", with_causes(&ended));
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(ended);
            shutdown.cancel();
        });
    }

    /// Waits until all have ended. The error is of the first task to end too early.
    ///
    /// # Errors
    /// When one failed, panicked, or ended before the shutdown.
    pub async fn ended(&self) -> Result<(), EndedEarly> {
        self.tracker.close();
        self.tracker.wait().await;
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// Running tasks and their start times, in the order of their start.
    #[must_use]
    pub fn parts(&self) -> Vec<(&'static str, Instant)> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }

    fn list(&self, name: &'static str) -> Part {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let number = parts.last_key_value().map_or(0, |(last, _)| last + 1);
        parts.insert(number, (name, Instant::now()));
        Part { parts: Arc::clone(&self.parts), number }
    }

    /// How many are running.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tracker.len()
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ended(
        part: impl Future<Output = Result<(), &'static str>> + Send + 'static,
    ) -> Result<(), EndedEarly> {
        let shutdown = CancellationToken::new();
        let tasks = Tasks::new(shutdown.clone());
        tasks.spawn("waiting", shutdown.clone().cancelled_owned());
        tasks.spawn_fallible("part", part);
        shutdown.cancelled().await;
        tasks.ended().await
    }

    #[tokio::test]
    async fn a_part_that_ends_in_whatever_way_ends_all() {
        let error = ended(async { Ok(()) }).await.unwrap_err();
        assert_eq!(error.to_string(), "part ended by itself");
        let error = ended(async { Err("no disk") }).await.unwrap_err();
        assert_eq!(with_causes(&error), "part failed: no disk");
        let error = ended(async { panic!("at {}", "night") }).await.unwrap_err();
        assert_eq!(error.to_string(), "part panicked: at night");
    }

    #[tokio::test]
    async fn ending_after_the_shutdown_is_no_error() {
        let shutdown = CancellationToken::new();
        let tasks = Tasks::new(shutdown.clone());
        tasks.spawn("waiting", shutdown.clone().cancelled_owned());
        assert_eq!(tasks.running(), 1);
        assert!(tasks.parts().iter().map(|(name, _)| *name).eq(["waiting"]));
        shutdown.cancel();
        tasks.ended().await.unwrap();
        assert_eq!(tasks.running(), 0);
        assert!(tasks.parts().is_empty());
    }
}
