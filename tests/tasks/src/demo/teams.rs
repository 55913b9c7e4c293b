//! `cargo xtask demo --teams`: a team has all eight cards, half of them borrowed, and another takes its four back: not while a disruption
//! budget keeps the borrowers, and then a gang as a whole. Of two jobs of a team whose GPU hours run out, one waits.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::Value;
use tessera_api::gpu_quota::Period;
use tessera_harness::workspace;
use tokio::time::sleep;

use super::gangs::{POOL, Stage, VALUES};
use super::say::say;
use super::steering::{self, submit};
use super::{Clock, Output, PATIENCE, where_time_went};

const TEAMS: (&str, &str) = ("tests/tasks/src/demo/teams/teams.yaml", include_str!("teams/teams.yaml"));
const SERVERS: (&str, &str) = ("tests/tasks/src/demo/teams/servers.yaml", include_str!("teams/servers.yaml"));
const TRAINING: (&str, &str) =
    ("tests/tasks/src/demo/teams/training.yaml", include_str!("teams/training.yaml"));
const HOURS: (&str, &str) = ("tests/tasks/src/demo/teams/hours.yaml", include_str!("teams/hours.yaml"));
const JOBS: (&str, &str) = ("tests/tasks/src/demo/teams/jobs.yaml", include_str!("teams/jobs.yaml"));
const BUDGET: (&str, &str) = ("tests/tasks/src/demo/teams/budget.yaml", include_str!("teams/budget.yaml"));

/// The events, for programs.
#[derive(Serialize)]
struct Story {
    /// The output of `kubectl gpu quota` while one team has all cards.
    lent: Vec<Value>,
    /// The output of `kubectl gpu queue` while a disruption budget keeps the borrowers.
    kept: Vec<Value>,
    /// Seconds from the end of the budget until the other team's pods run.
    taken_back_after: f64,
    /// The output of `kubectl gpu quota` then.
    taken_back: Vec<Value>,
    /// The output of `kubectl gpu queue` while the team's GPU hours do not last for a job.
    out_of_hours: Vec<Value>,
}

/// Runs the demo of teams.
///
/// # Errors
/// When something does not work, or the team does not get its cards back.
pub async fn run(mut clock: Clock, output: Output) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let hours = hours(i64::try_from(now)?)?;
    let program = workspace::build_packages(&workspace::TESTED_AND_CLI)?.join("kubectl-gpu");
    let (cluster, _tessera) = steering::start(&mut clock, POOL, &VALUES).await?;
    say!("\nkubectl apply -f examples/gangs/pool.yaml   # all cards, allocated by the controller");
    submit(&cluster, "default", TEAMS).await?;
    let client = cluster.client().await?;
    let stage = |namespace| Stage { cluster: &cluster, client: client.clone(), program: &program, namespace };
    let (nlp, vision) = (stage("nlp"), stage("vision"));

    submit(&cluster, "nlp", SERVERS).await?;
    nlp.started("nlp's servers", "server-", 4).await?;
    submit(&cluster, "nlp", TRAINING).await?;
    nlp.started("nlp's training", "training-", 4).await?;
    let lent = used(&nlp, ["8.00", "0.00"]).await?;
    clock.reached("nlp has all eight cards: four of its own, and four that it borrows for its training");
    nlp.show("quota").await?;

    submit(&cluster, "nlp", BUDGET).await?;
    submit(&cluster, "vision", SERVERS).await?;
    let kept = kept(&vision).await?;
    clock.reached("the training has had its minute, and a disruption budget of nlp keeps it: vision waits");
    vision.show("queue").await?;

    nlp.delete(&["poddisruptionbudget", "all"]).await?;
    let begun = Instant::now();
    vision.started("vision's servers", "server-", 4).await?;
    let taken_back_after = begun.elapsed().as_secs_f64();
    clock.reached("vision has its four cards back; the training waits again, as a whole");
    let taken_back = used(&vision, ["4.00", "4.00"]).await?;
    vision.show("quota").await?;
    vision.show("queue").await?;

    let scaled = ["scale", "statefulset", "server", "--replicas=2", "--namespace", "vision"];
    say!("kubectl {}", scaled.join(" "));
    cluster.kubectl(&scaled).await?;
    submit(&cluster, "vision", (HOURS.0, &hours)).await?;
    submit(&cluster, "vision", JOBS).await?;
    vision.started("the short job", "short", 1).await?;
    let out_of_hours = out_of_hours(&vision).await?;
    clock.reached(
        "vision may use one GPU hour: its job of ten minutes runs, and its job of four hours waits beside a free card",
    );
    vision.show("queue").await?;
    vision.started("vision's servers", "server-", 2).await?;

    cluster.shutdown().await.context("the cluster did not end cleanly")?;
    clock.reached("everything is removed");
    where_time_went(&clock);
    if output == Output::Json {
        println!(
            "{}",
            serde_json::to_string(&Story { lent, kept, taken_back_after, taken_back, out_of_hours })?
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The quota with a GPU hour of the month, or of the week if the week ends later. Shortly before the end of its period the hour would do for
/// the long job, too.
fn hours(now: i64) -> Result<String> {
    const LEFT: i64 = 2 * 3600;
    let ends = [(Period::Month, "Month"), (Period::Week, "Week")];
    let ends = ends.map(|(period, name)| (period.around(now).end, name));
    let (end, period) = if ends[0].0 < ends[1].0 { ends[1] } else { ends[0] };
    ensure!(
        end - now > LEFT,
        "month and week end at midnight UTC, and so do the GPU hours: run it after that"
    );
    Ok(HOURS.1.replace("period: Month", &format!("period: {period}")))
}

/// Waits until nlp and vision use so many cards, and gives the quotas.
async fn used(stage: &Stage<'_>, cards: [&str; 2]) -> Result<Vec<Value>> {
    let is_told = |quotas: &[Value]| quotas.iter().map(|quota| &quota["amounts"][0]["used"]).eq(&cards);
    until(stage, "quota", &format!("a use of {cards:?} cards"), is_told).await
}

/// Waits until a disruption budget is why pods wait, and gives the queue.
async fn kept(stage: &Stage<'_>) -> Result<Vec<Value>> {
    let is_kept = |row: &Value| row["why"].as_str().is_some_and(|why| why.contains("PodDisruptionBudget"));
    let are_kept = |rows: &[Value]| rows.iter().any(|row| row["team"] == stage.namespace && is_kept(row));
    until(stage, "queue", "a disruption budget to keep the borrowers", are_kept).await
}

/// Waits until the team's GPU hours are why the long job waits, and gives the queue.
async fn out_of_hours(stage: &Stage<'_>) -> Result<Vec<Value>> {
    let waits = |row: &Value| {
        row["name"] == "vision/long" && row["why"].as_str().is_some_and(|why| why.contains("GPU hour"))
    };
    until(stage, "queue", "a job beyond the GPU hours", |rows| rows.iter().any(waits)).await
}

/// Repeats a command of `kubectl gpu` until its rows are as wanted.
async fn until(
    stage: &Stage<'_>,
    command: &str,
    what: &str,
    is_over: impl Fn(&[Value]) -> bool,
) -> Result<Vec<Value>> {
    let end = Instant::now() + PATIENCE;
    loop {
        let rows = stage.json(command).await?;
        if is_over(&rows) {
            return Ok(rows);
        }
        ensure!(Instant::now() < end, "waited {} s in vain for {what}: {rows:?}", PATIENCE.as_secs());
        sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_of_the_hours_does_not_end_meanwhile() {
        // 2026-11-28 12:00, 2026-11-30 23:50 (a Monday), 2027-02-28 21:00 and 23:00 (a Sunday).
        for (now, period) in [
            (1_795_867_200, Some("period: Month,")),
            (1_796_082_600, Some("period: Week,")),
            (1_803_848_400, Some("period: Month,")),
            (1_803_855_600, None),
        ] {
            let quota = hours(now).ok();
            assert_eq!(quota.is_some(), period.is_some(), "{now}");
            assert!(quota.is_none_or(|quota| quota.contains(period.unwrap())), "{now}");
        }
    }
}
