//! MPS daemons, through mps-host. Blocks: for blocking threads only.

use std::collections::BTreeSet;
use std::time::Duration;

use tessera_api::PciBusId;
use tessera_nvml::Nvml;
use tokio::runtime::Handle;

use super::Sharing;
use crate::prepare::PrepareError;
use crate::prepare::claim::{OwnDaemon, ShareLimits, most, static_shares};
use tessera_journal::{ClaimDevice, ClaimMps, ClaimRecord, Journal, MpsDaemonChange};
use tessera_mps_host::client::MpsHostError;
use tessera_mps_host::end_abandoned;
use tessera_mps_host::protocol::{Daemon, Ensure, ErrorCode, Release, Settings};

/// How long one attempt waits for mps-host. Prepare tries again until the call's deadline.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same for calls able to go on without an answer.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);

/// Seconds for processes outliving their claim to leave. The kubelet unprepares only after the containers have ended, so there
/// should be none.
const GRACE_SECONDS: u32 = 5;

/// A claim's share of a device.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    /// Its name in the claim's CDI spec.
    pub cdi_name: &'a str,
    /// UUID of the device.
    pub uuid: &'a str,
    /// Its limits.
    pub limits: ShareLimits,
}

impl Sharing {
    /// Starts or changes a daemon to allow this share and all others of the device. The caller holds the card's lock, and has
    /// recorded the claim.
    pub fn ensure_mps(
        &self,
        journal: &Journal,
        device: &str,
        card: PciBusId,
        change: &MpsDaemonChange,
        share: &Share<'_>,
    ) -> Result<ClaimMps, PrepareError> {
        let Share { cdi_name, uuid, limits } = *share;
        let failed =
            |reason: String, may_pass| PrepareError::Mps { device: device.to_owned(), reason, may_pass };
        let settings = most(journal, device, Some(limits), None)?;
        let uuid = uuid.parse().map_err(|error| failed(format!("{error}"), false))?;
        let static_shares = match change.static_partitions {
            true => {
                let mut shares = static_shares(journal, device, None)?;
                // The claim's own record may be unreadable.
                shares.insert(cdi_name.to_owned(), limits.compute);
                Some(shares)
            }
            false => None,
        };
        let wish = Ensure { static_shares, ..Ensure::of_shares(uuid, card, settings) };
        let daemon = self.ask(device, wish, PATIENCE)?;
        let mut record = limits.to_record();
        if change.static_partitions {
            let partition = daemon.static_partitions.as_ref().and_then(|partitions| partitions.get(cdi_name));
            let partition = partition.ok_or_else(|| {
                let reason = "mps-host gave the share no static partition: it is of an older version than this plugin; \
                    delete its pod on this node when no MPS shares are in use there";
                failed(reason.to_owned(), false)
            })?;
            record.static_partition = Some(partition.name.clone());
        }
        Ok(at(daemon, record))
    }

    /// Starts or changes the daemon of a single claim. `uuid` is the device's; the caller holds the locks of all cards served by
    /// the daemon.
    pub fn ensure_own_mps(
        &self,
        device: &str,
        own: &OwnDaemon,
        uuid: &str,
    ) -> Result<ClaimMps, PrepareError> {
        let wish =
            own.wish(uuid).map_err(|reason| PrepareError::Sharing { device: device.to_owned(), reason })?;
        let record = own.to_record(&wish);
        let (others, owner) = (wish.others.clone(), wish.owner.clone());
        let daemon = self.ask(device, wish, PATIENCE)?;
        if daemon.others != others || daemon.owner != owner {
            let reason = "mps-host is of an older version, which knows no daemons of single claims; delete its pod on this \
                          node when no MPS shares are in use there"
                .to_owned();
            return Err(PrepareError::Mps { device: device.to_owned(), reason, may_pass: false });
        }
        Ok(at(daemon, record))
    }

    fn ask(&self, device: &str, wish: Ensure, patience: Duration) -> Result<Daemon, PrepareError> {
        let answer = Handle::current().block_on(self.mps.ensure(wish, patience));
        answer.map_err(|error| PrepareError::Mps {
            device: device.to_owned(),
            may_pass: may_pass(&error),
            reason: error.to_string(),
        })
    }

    /// Lowers a daemon's limits to the needs of the remaining shares, without those of the claim `leaving`. The caller holds the
    /// card's lock.
    pub fn lower_mps(
        &self,
        journal: &Journal,
        device: &str,
        card: PciBusId,
        change: &MpsDaemonChange,
        leaving: &str,
    ) -> Result<(), PrepareError> {
        let Some(wish) = wish(journal, device, card, change, Some(leaving))? else { return Ok(()) };
        if self::wish(journal, device, card, change, None)?.as_ref() == Some(&wish) {
            return Ok(());
        }
        self.ask(device, wish, SHORT_PATIENCE).map(drop)
    }

    /// Starts or changes a daemon for the present shares of its device, unless `daemons` shows the right settings already. The
    /// caller holds the card's lock.
    pub fn settle_mps(
        &self,
        journal: &Journal,
        device: &str,
        card: PciBusId,
        change: &MpsDaemonChange,
        daemons: &[Daemon],
    ) -> Result<(), PrepareError> {
        let Some(wish) = wish(journal, device, card, change, None)? else { return Ok(()) };
        let found = daemons.iter().find(|daemon| daemon.device == wish.device);
        let is_as_it_should_be = |daemon: &Daemon| {
            let partitions = daemon.static_partitions.iter().flat_map(|partitions| partitions.keys());
            let wanted = wish.static_shares.iter().flat_map(|shares| shares.keys());
            daemon.settings == wish.settings && partitions.eq(wanted)
        };
        if found.is_some_and(is_as_it_should_be) {
            return Ok(());
        }
        tracing::info!(device, ?wish, found = found.is_some(), "an MPS daemon is not as it should be");
        self.ask(device, wish, SHORT_PATIENCE).map(drop)
    }

    /// All daemons of mps-host.
    pub async fn mps_daemons(&self) -> Result<Vec<Daemon>, MpsHostError> {
        self.mps.list(SHORT_PATIENCE).await
    }

    /// Ends a daemon of a device of `card`: one no longer shared by any claim, or one of a single claim.
    pub fn release_mps(
        &self,
        nvml: &dyn Nvml,
        device: &str,
        card: PciBusId,
        uuid: &str,
        owner: Option<&str>,
    ) -> Result<(), PrepareError> {
        let failed =
            |reason: String, may_pass| PrepareError::Mps { device: device.to_owned(), reason, may_pass };
        let uuid = uuid.parse().map_err(|error| failed(format!("{error}"), false))?;
        match end_abandoned(&self.mps_directory, &uuid, owner, card, nvml) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => tracing::warn!(device, %error, "cannot end an MPS daemon in the place of mps-host"),
        }
        let order = Release { device: uuid, grace_seconds: GRACE_SECONDS, owner: owner.map(str::to_owned) };
        let ended = Handle::current()
            .block_on(self.mps.release(order, SHORT_PATIENCE))
            .map_err(|error| failed(error.to_string(), may_pass(&error)))?;
        if !ended.is_empty() {
            tracing::warn!(device, clients = ?ended,
                "processes were still using an MPS share that is no longer claimed; they lost the card");
        }
        Ok(())
    }

    /// Updates the names of a claim's static partitions, since a restarted daemon has made new ones. Returns whether any changed.
    pub fn follow_static_partitions(&self, record: &mut ClaimRecord) -> bool {
        let is_static =
            |device: &&mut ClaimDevice| device.mps.as_ref().is_some_and(|mps| mps.static_partition.is_some());
        if !record.devices.iter_mut().any(|device| is_static(&device)) {
            return false;
        }
        let daemons = match Handle::current().block_on(self.mps.list(SHORT_PATIENCE)) {
            Ok(daemons) => daemons,
            Err(error) => {
                tracing::warn!(%error, "cannot tell what the static partitions of a prepared claim are called");
                return false;
            }
        };
        let mut is_changed = false;
        for device in record.devices.iter_mut().filter(is_static) {
            let of_device =
                daemons.iter().filter(|daemon| device.uuid().is_some_and(|uuid| daemon.serves(uuid)));
            let mut partitions = of_device.filter_map(|daemon| daemon.static_partitions.as_ref());
            let now = partitions.find_map(|partitions| partitions.get(device.cdi_name()));
            let now = now.map(|partition| partition.name.clone());
            if let (Some(mps), Some(now)) = (&mut device.mps, now)
                && mps.static_partition.as_ref() != Some(&now)
            {
                mps.static_partition = Some(now);
                is_changed = true;
            }
        }
        is_changed
    }

    /// CDI names of devices without a daemon in mps-host, or whose daemon lacks their static partition. If mps-host does not
    /// answer, none: repairs need mps-host.
    pub fn without_mps(&self, shares: &[ClaimDevice]) -> BTreeSet<String> {
        let is_there = |daemon: &Daemon, partition: &str| {
            daemon.static_partitions.iter().flatten().any(|(_, there)| there.name == partition)
        };
        match Handle::current().block_on(self.mps.list(SHORT_PATIENCE)) {
            Ok(daemons) => {
                let has_one = |device: &ClaimDevice| {
                    let partition = device.mps.as_ref().and_then(|mps| mps.static_partition.as_ref());
                    daemons.iter().any(|daemon| {
                        device.uuid().is_some_and(|uuid| daemon.serves(uuid))
                            && partition.is_none_or(|name| is_there(daemon, name))
                    })
                };
                let without = shares.iter().filter(|device| !has_one(device));
                without.map(|device| device.cdi_name().to_owned()).collect()
            }
            Err(error) => {
                tracing::warn!(%error, "cannot tell whether the MPS daemon of a prepared claim runs");
                BTreeSet::new()
            }
        }
    }
}

/// The daemon needed by the shares of a device, without those of the claim `leaving`; `None` if there are no others, or if their
/// records can't be read.
fn wish(
    journal: &Journal,
    device: &str,
    card: PciBusId,
    change: &MpsDaemonChange,
    leaving: Option<&str>,
) -> Result<Option<Ensure>, PrepareError> {
    let settings = most(journal, device, None, leaving)?;
    let Some(uuid) = change.device_uuid.as_deref().filter(|_| settings != Settings::default()) else {
        return Ok(None);
    };
    let failed = |reason: String| PrepareError::Mps { device: device.to_owned(), reason, may_pass: false };
    let uuid = uuid.parse().map_err(|error| failed(format!("{error}")))?;
    let static_shares =
        if change.static_partitions { Some(static_shares(journal, device, leaving)?) } else { None };
    Ok(Some(Ensure { static_shares, ..Ensure::of_shares(uuid, card, settings) }))
}

/// A claim's record of its share, with the daemon's location added.
fn at(daemon: Daemon, record: ClaimMps) -> ClaimMps {
    let text = |path: std::path::PathBuf| path.display().to_string();
    ClaimMps {
        server: daemon.server_identity(),
        pipe_directory: Some(text(daemon.pipe_directory)),
        shm_directory: daemon.shm_directory.map(text),
        ..record
    }
}

/// Whether the error passes by itself: mps-host comes back, or a process on the card ends.
fn may_pass(error: &MpsHostError) -> bool {
    match error {
        MpsHostError::Away { .. } => true,
        MpsHostError::Refused { code, .. } => matches!(code, ErrorCode::DeviceInUse | ErrorCode::Failed),
        _ => false,
    }
}
