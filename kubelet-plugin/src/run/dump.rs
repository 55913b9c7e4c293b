//! Running work, dumped to the log on SIGUSR2 for people who look for the cause of a hang.

use std::fmt::Display;
use std::time::Instant;

use tessera_kube_util::tasks::Tasks;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::prepare::{Activity, Preparer};
use tessera_dra_kubelet::KubeletMetrics;

/// Dumps on request.
pub struct Dump {
    signal: Signal,
    parts: Tasks,
    preparer: watch::Receiver<Option<Preparer>>,
    kubelet: KubeletMetrics,
}

impl Dump {
    /// Takes over SIGUSR2, whose default action ends the process.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(
        parts: Tasks,
        preparer: watch::Receiver<Option<Preparer>>,
        kubelet: KubeletMetrics,
    ) -> std::io::Result<Self> {
        Ok(Self { signal: signal(SignalKind::user_defined2())?, parts, preparer, kubelet })
    }

    /// Dumps at each signal until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        while let Some(Some(())) = shutdown.run_until_cancelled(self.signal.recv()).await {
            for line in self.lines() {
                tracing::info!("dump: {line}");
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let now = Instant::now();
        let runtime = Handle::current().metrics();
        let mut lines = vec![format!(
            "{} tasks, {} waiting for a thread, {} connections of the kubelet",
            runtime.num_alive_tasks(),
            runtime.global_queue_depth(),
            self.kubelet.connections.get(),
        )];
        lines.extend(
            self.parts
                .parts()
                .into_iter()
                .map(|(part, since)| format!("{part} runs for {}", age(since, now))),
        );
        let Some(preparer) = self.preparer.borrow().clone() else {
            lines.push("claims are not prepared yet".to_owned());
            return lines;
        };
        let work = preparer.at_work();
        lines.push(format!("{} claims at work", work.len()));
        lines.extend(work.iter().map(|activity| of_claim(activity, now)));
        lines.extend(preparer.card_locks().into_iter().map(|state| {
            let verb = if state.is_held { "is locked" } else { "is waited for" };
            format!("card {} {verb} for {}, by {}", state.card, age(state.since, now), task(state.task))
        }));
        lines.extend(preparer.driver_calls().into_iter().map(|(card, since)| {
            let about = card.map_or_else(|| "the driver".to_owned(), |card| format!("card {card}"));
            format!("a call of the driver for claims, about {about}, runs for {}", age(since, now))
        }));
        lines
    }
}

fn of_claim(activity: &Activity, now: Instant) -> String {
    let phases = activity.phases.iter();
    let phases = phases.map(|(phase, since)| format!(", {} for {}", phase.as_str(), age(*since, now)));
    format!(
        "{} of {} runs for {}, as {}{}",
        activity.operation.as_str(),
        activity.claim,
        age(activity.since, now),
        task(activity.task),
        phases.collect::<String>(),
    )
}

fn age(since: Instant, now: Instant) -> impl Display {
    format!("{:.1} s", now.saturating_duration_since(since).as_secs_f64())
}

fn task(id: Option<tokio::task::Id>) -> String {
    id.map_or_else(|| "no task".to_owned(), |id| format!("task {id}"))
}
