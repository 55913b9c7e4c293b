//! Handles the remains of an earlier supervisor: keeps running daemons, removes unwanted ones.

use std::fs;
use std::sync::Arc;

use super::device::DeviceUuid;
use super::directory::DaemonDirectory;
use super::processes;
use super::protocol::DaemonState;
use super::record::Record;
use super::remove::remove_tree;
use super::shared_memory;
use super::slot::{Running, Slot, Work};
use super::supervisor::Supervisor;

/// Checks every daemon's directory. Daemons in need of a restart are started by their keepers, after this.
pub(super) async fn readopt(supervisor: &Arc<Supervisor>) {
    let entries = fs::read_dir(&supervisor.directory).into_iter().flatten().flatten();
    let devices: Vec<DeviceUuid> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for device in devices {
        let directory = DaemonDirectory::new(&supervisor.directory, &device);
        let record = match Record::read(&directory) {
            Ok(record) => record.filter(|record| record.device == device),
            Err(error) => {
                let path = directory.record.display();
                tracing::error!(%device, %path, %error, "cannot read the record of a daemon: it is left alone");
                continue;
            }
        };
        match record {
            Some(record) => {
                let slot = supervisor.slot(&device, record.card);
                let mut work = slot.work.lock().await;
                let is_wanted = record.wanted;
                work.record = Some(record);
                adopt(supervisor, &slot, &mut work).await;
                if !is_wanted {
                    tracing::info!(%device, "ending a daemon whose end was cut off");
                    if let Err(error) = supervisor.end(&slot, &mut work, 0).await {
                        tracing::warn!(%device, %error, "cannot end it; tried again at the next start");
                    }
                }
            }
            None => sweep(&device, &directory).await,
        }
    }
}

/// Takes a running daemon over.
async fn adopt(supervisor: &Supervisor, slot: &Slot, work: &mut Work) {
    let device = slot.seen().device;
    slot.show(work, DaemonState::Starting);
    let Some(daemon) = processes::daemon(&slot.directory) else {
        tracing::info!(%device, "the daemon is dead; starting it again");
        return;
    };
    let servers = match supervisor.control(slot) {
        Ok(control) => control.servers().await,
        Err(error) => Err(error),
    };
    let server = match servers {
        Ok(servers) => servers.first().and_then(|server| processes::server(*server, &slot.directory)),
        Err(error) => {
            tracing::warn!(%device, %error, "a running daemon does not answer; it is kept, for it may have clients");
            None
        }
    };
    tracing::info!(%device, pid = daemon.pid, server = server.as_ref().map(|server| server.pid), "daemon found running");
    work.running = Some(Running::new(daemon, server));
    slot.show(work, DaemonState::Running);
}

/// Removes a directory without a record: its purpose is unknown, and nothing was set on a card for it.
async fn sweep(device: &DeviceUuid, directory: &DaemonDirectory) {
    tracing::warn!(%device, "removing what an unknown daemon left");
    for (_, process) in processes::all(directory) {
        process.kill().await;
    }
    let removed = match shared_memory::remove(&directory.shm) {
        Ok(()) => remove_tree(&directory.root).await,
        failed => failed,
    };
    if let Err(error) = removed {
        tracing::warn!(%device, %error, "cannot remove it; tried again at the next start");
    }
}
