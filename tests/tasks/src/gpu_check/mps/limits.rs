//! Limits on memory and compute.

use anyhow::{Context, Result};

use super::Trials;
use super::client::{Client, Starter};
use super::daemon::Daemon;

const MIB: u64 = 1 << 20;
const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY";

/// Tries percentages, and two clients at once; returns the number of multiprocessors without a limit.
pub(super) fn multiprocessors(daemon: &Daemon<'_>, starter: &Starter, trials: &mut Trials) -> Result<u32> {
    let free = starter.client(daemon, &[])?;
    let all = free.multiprocessors().with_context(|| format!("a client got no context: {}", free.told()))?;
    let limited = starter.client(daemon, &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25")])?;
    let clients = daemon.clients()?;
    let both = [free.pid(), limited.pid()];
    trials.check(
        "two clients at once",
        "both are clients of the daemon's server",
        format!("{} clients", clients.len()),
        both.iter().all(|pid| clients.contains(pid)),
    );
    is_part("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", 25, all, &limited, trials);
    Ok(all)
}

/// CUDA rounds to the card's granularity: pairs of multiprocessors, rounded up.
fn is_part(what: &str, percent: u32, all: u32, client: &Client, trials: &mut Trials) {
    let most = (all * percent).div_ceil(100).next_multiple_of(2);
    let expected = format!("1 to {most} of {all} multiprocessors");
    let is_ok = client.multiprocessors().is_some_and(|count| (1..=most).contains(&count));
    trials.check(what, expected, client.told(), is_ok);
}

/// Tries a memory limit, with an unlimited neighbour.
pub(super) fn memory(daemon: &Daemon<'_>, starter: &Starter, trials: &mut Trials) -> Result<()> {
    let variable = ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G");
    let mut limited = starter.client(daemon, &[variable])?;
    let mut neighbour = starter.client(daemon, &[])?;
    let within = limited.allocate(256 * MIB)?;
    trials.check("256 MiB with a limit of 1 GiB", "taken", said(&within), within.is_none());
    let beyond = limited.allocate(1024 * MIB)?;
    let is_refused = beyond.as_deref() == Some(OUT_OF_MEMORY);
    trials.check("1 GiB more", OUT_OF_MEMORY, said(&beyond), is_refused);
    let beside = neighbour.allocate(1536 * MIB)?;
    trials.check("1.5 GiB of a neighbour without a limit", "taken", said(&beside), beside.is_none());
    let again = limited.allocate(64 * MIB)?;
    trials.check("64 MiB after a refusal", "taken", said(&again), again.is_none());
    Ok(())
}

/// Tries the daemon's limits, which a client's environment can only lower.
pub(super) fn defaults(daemon: &Daemon<'_>, starter: &Starter, all: u32, trials: &mut Trials) -> Result<()> {
    let mut orders = vec![
        "set_default_active_thread_percentage 50".to_owned(),
        "set_default_device_pinned_mem_limit 0 512M".to_owned(),
    ];
    for server in daemon.servers()? {
        orders.push(format!("set_active_thread_percentage {server} 50"));
        orders.push(format!("set_device_pinned_mem_limit {server} 0 512M"));
    }
    daemon.order(&orders.join("\n"))?;
    let hostile =
        [("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"), ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=8G")];
    for (what, environment) in [("nothing", &[][..]), ("more", &hostile[..])] {
        let mut client = starter.client(daemon, environment)?;
        is_part(&format!("the daemon allows 50 %, the client asks for {what}"), 50, all, &client, trials);
        let beyond = client.allocate(1024 * MIB)?;
        let what = format!("1 GiB where the daemon allows 512 MiB, the client asks for {what}");
        trials.check(&what, OUT_OF_MEMORY, said(&beyond), beyond.as_deref() == Some(OUT_OF_MEMORY));
    }
    let lower = starter.client(daemon, &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")])?;
    is_part("the daemon allows 50 %, the client asks for 10 %", 10, all, &lower, trials);
    Ok(())
}

fn said(error: &Option<String>) -> String {
    error.clone().unwrap_or_else(|| "taken".to_owned())
}
