//! Static SM partitions.

use anyhow::{Context, Result};
use tessera_nvml::{CardReadings, Library};

use super::client::Starter;
use super::daemon::{Daemon, Programs};
use super::{Trials, published};

const INVALID: &str = "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION";

/// Tries them with a separate daemon, where the card has them.
pub(super) fn run(
    programs: &Programs,
    starter: &Starter,
    card: &CardReadings,
    uuid: &str,
    library: &Library,
    trials: &mut Trials,
) -> Result<()> {
    let published = match published(card, library) {
        Ok(published) => published,
        Err(reason) => {
            trials.not_tried("static SM partitions", reason);
            return Ok(());
        }
    };
    let daemon = Daemon::start(programs, uuid, &["-S"])?;
    let (chunks, multiprocessors) = device(&daemon)?;
    let fewest = published.fewest_chunks();
    trials.check(
        "chunks of multiprocessors",
        format!("{fewest} or more"),
        format!("{chunks} with {multiprocessors} multiprocessors"),
        chunks >= fewest,
    );
    let [one, rest] = [1, chunks.saturating_sub(1)].map(|chunks| add(&daemon, chunks));
    let (one, rest) = (one?, rest?);
    daemon.start_server()?;
    let over = daemon.order(&format!("sm_partition add {} 1", daemon.uuid()))?;
    trials.check("a partition of more chunks than there are", INVALID, over.clone(), over.contains(INVALID));
    let [small, large] =
        [&one, &rest].map(|name| starter.client(&daemon, &[("CUDA_MPS_SM_PARTITION", name.as_str())]));
    let (small, large) = (small?, large?);
    let counts = [&small, &large].map(|client| client.multiprocessors().unwrap_or(0));
    trials.check(
        "clients of two partitions",
        "each has its own multiprocessors, and together no more than there are",
        format!("{} and {}", small.told(), large.told()),
        counts[0] > 0 && counts[0] < counts[1] && counts[0] + counts[1] <= multiprocessors,
    );
    let nameless = starter.client(&daemon, &[])?;
    trials.check(
        "a client that names no partition",
        INVALID,
        nameless.told(),
        nameless.refused() == Some(INVALID),
    );
    let (_, id) = one.split_once('/').context("a partition without an id")?;
    let remove = format!("sm_partition rm {} {id}", daemon.uuid());
    let refused = daemon.order(&remove)?;
    let stays = daemon.order("lspart")?.contains(id);
    trials.check("a partition with a client is removed", "refused", refused, stays);
    drop(small);
    let mut gone = false;
    for _ in 0..50 {
        daemon.order(&remove)?;
        gone = !daemon.order("lspart")?.contains(id);
        if gone {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let found = if gone { "removed" } else { "still there" };
    trials.check("a partition without clients is removed", "removed", found, gone);
    drop(large);
    daemon.end()
}

/// Chunks and multiprocessors of the daemon's device, from the first row of `lspart`: free and used chunks, then free
/// and used multiprocessors.
fn device(daemon: &Daemon<'_>) -> Result<(u32, u32)> {
    let text = daemon.order("lspart")?;
    let row = text.lines().find(|line| line.trim_start().starts_with("GPU-"));
    let numbers: Vec<u32> =
        row.into_iter().flat_map(str::split_whitespace).filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [free, used, free_multiprocessors, used_multiprocessors] => {
            Ok((free + used, free_multiprocessors + used_multiprocessors))
        }
        _ => anyhow::bail!("lspart says {text:?}"),
    }
}

/// Makes a partition and returns its full name.
fn add(daemon: &Daemon<'_>, chunks: u32) -> Result<String> {
    let answer = daemon.order(&format!("sm_partition add {} {chunks}", daemon.uuid()))?;
    let name = answer.split_whitespace().find(|word| word.starts_with("GPU-") && word.contains('/'));
    name.map(str::to_owned).with_context(|| format!("no partition of {chunks} chunks: {answer}"))
}
