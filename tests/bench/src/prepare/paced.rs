//! Claims as on a real node: one at a time, with pauses, on a disk with writes of others.

use std::{
    fs::File,
    io::{Seek as _, Write as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Result, anyhow};
use serde::Serialize;
use tessera_harness::{Cluster, kubelet_stand_in::Claim};
use tokio::time::sleep;

use super::{claims, metrics::PhaseMeans, plugin::RunningPlugin, sync_once};
use crate::quantiles::Quantiles;

/// Bytes per write of the other writer, and its interval: the log of a busy program.
const WRITES: usize = 256 << 10;
const WRITE_EVERY: Duration = Duration::from_millis(50);

/// Results for claims coming and going with pauses.
#[derive(Serialize)]
pub struct Paced {
    /// Pause before each call, in milliseconds.
    pub pause_ms: u64,
    /// A whole card.
    pub card: Lone,
    /// A partition of a card with another one already.
    pub partition: Lone,
    /// One write of a small file with fsync, rename and fsync of the directory, between the claims.
    pub disk_sync: Quantiles,
}

/// Results for one claim at a time.
#[derive(Serialize)]
pub struct Lone {
    pub prepare: Quantiles,
    pub unprepare: Quantiles,
    pub phases_ms: PhaseMeans,
}

/// Measures `rounds` claims of each kind.
pub async fn measure(
    cluster: &Cluster,
    plugin: &RunningPlugin,
    rounds: usize,
    pause: Duration,
) -> Result<Paced> {
    let (card, other) =
        plugin.devices.first().zip(plugin.devices.get(1)).ok_or_else(|| anyhow!("two cards are needed"))?;
    let partition = |start: usize| format!("{other}-mig-1g10gb-{start}");
    let devices = [card.clone(), partition(0), partition(1)];
    let claims = claims::allocate(cluster, &devices, devices.len()).await?;
    plugin.delay_partitions(0)?;
    // Holds a partition, to switch the MIG mode only once.
    plugin.prepare(&claims[2]).await?;
    let writer = Writer::start(cluster.state())?;
    let mut syncs = Vec::new();
    let card = lone(cluster, plugin, &claims[0], rounds, pause, &mut syncs).await?;
    let partition = lone(cluster, plugin, &claims[1], rounds, pause, &mut syncs).await?;
    writer.stop()?;
    plugin.unprepare(&claims[2]).await?;
    let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    Ok(Paced { pause_ms, card, partition, disk_sync: Quantiles::of(syncs) })
}

async fn lone(
    cluster: &Cluster,
    plugin: &RunningPlugin,
    claim: &Claim,
    rounds: usize,
    pause: Duration,
    syncs: &mut Vec<Duration>,
) -> Result<Lone> {
    let (mut prepare, mut unprepare) = (Vec::new(), Vec::new());
    // Not measured: the first finds the driver's files and opens connections, once only and not for every pod.
    plugin.prepare(claim).await?;
    plugin.unprepare(claim).await?;
    let before = plugin.metrics().await?;
    for _ in 0..rounds {
        sleep(pause).await;
        syncs.push(sync_once(cluster.state())?);
        sleep(pause).await;
        prepare.push(plugin.prepare(claim).await?);
        sleep(pause).await;
        unprepare.push(plugin.unprepare(claim).await?);
    }
    let phases_ms = plugin.metrics().await?.phases_since(&before);
    Ok(Lone { prepare: Quantiles::of(prepare), unprepare: Quantiles::of(unprepare), phases_ms })
}

/// Another writer to the disk, until stopped.
struct Writer {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Writer {
    fn start(directory: &Path) -> Result<Self> {
        let mut file = File::create(directory.join("other-writer"))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = thread::spawn(move || {
            let content = vec![b'x'; WRITES];
            while !over.load(Ordering::Relaxed) {
                file.rewind()?;
                file.write_all(&content)?;
                file.sync_data()?;
                thread::sleep(WRITE_EVERY);
            }
            Ok(())
        });
        Ok(Self { is_over, thread })
    }

    fn stop(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the other writer panicked"))??;
        Ok(())
    }
}
