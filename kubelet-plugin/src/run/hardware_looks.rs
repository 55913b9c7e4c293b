//! When the hardware was last looked at, as metrics.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::{discovery::Looks, metrics::Metrics};

/// Follows `looks` until discovery is gone.
pub async fn follow(mut looks: watch::Receiver<Looks>, metrics: Metrics) {
    while looks.changed().await.is_ok() {
        let Looks { complete, hanging, .. } = looks.borrow_and_update().clone();
        metrics.cards_not_answering.set(hanging.len().try_into().unwrap_or(i64::MAX));
        let time = complete.and_then(|at: Instant| SystemTime::now().checked_sub(at.elapsed()));
        if let Some(since) = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()) {
            metrics.last_complete_look.set(since.as_secs_f64());
        }
    }
}
