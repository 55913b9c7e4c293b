//! Events about MPS daemons.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ObjectReference;

use super::lost::Lost;
use crate::prepare::cards::Worker;
use crate::prepare::claim::{Found, api, reference};
use crate::prepare::tell::claim_reference;
use tessera_kube_util::events::{Content, Severity, node_reference};
use tessera_mps_host::DeviceUuid;
use tessera_mps_host::client::MpsHostError;
use tessera_mps_host::protocol::{ClientProcess, Daemon, DaemonState};

use crate::prepare::ClaimReference;

/// The `action` of these Events.
const ACTION: &str = "ShareByMPS";

/// Minimum pause between equal Events about one device. A daemon dying in a loop needs only one.
const PAUSE: Duration = Duration::from_secs(30);

/// How many claims are looked up concurrently, and the time limit of each.
const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(2);

/// An Event names at most this many processes.
const MOST_PROCESSES: usize = 8;

/// Sends Events about daemons to their pods, or to the Node if no pod is known.
pub(super) struct Teller {
    worker: Arc<Worker>,
    /// When each kind of Event was last sent about each device, by its UUID.
    told: HashMap<(String, &'static str), Instant>,
    /// Users of a device at the time when its end began.
    ending: HashMap<DeviceUuid, Users>,
}

/// The users of a device.
#[derive(Clone, Debug, Default)]
struct Users {
    /// The names of the device, for messages.
    names: BTreeSet<String>,
    /// The pods, and claims whose pods could not be looked up.
    objects: Vec<ObjectReference>,
}

/// Content of one Event.
struct News {
    severity: Severity,
    reason: &'static str,
    /// With `{}` in place of the device's name.
    note: String,
    /// Distinguishes this occurrence from all others, also for other instances of the plugin.
    occurrence: String,
}

impl News {
    const fn warning(reason: &'static str, note: String, occurrence: String) -> Self {
        Self { severity: Severity::Warning, reason, note, occurrence }
    }
}

impl Teller {
    pub fn new(worker: Arc<Worker>) -> Self {
        Self { worker, told: HashMap::new(), ending: HashMap::new() }
    }

    /// Reports changes of a daemon since the last look.
    pub async fn changed(&mut self, before: Option<&Daemon>, now: &Daemon) {
        let was_in = |is: fn(&DaemonState) -> bool| before.is_some_and(|before| is(&before.state));
        let was_fault = before.and_then(|before| before.fault.as_ref());
        let (severity, reason, note) = match &now.state {
            DaemonState::WaitingForClients { .. }
                if !was_in(|state| matches!(state, DaemonState::WaitingForClients { .. })) =>
            {
                let note = "the MPS control daemon of {} died. Programs that are using the device go on; others can't \
                    begin to, until those have ended and it is started again";
                (Severity::Warning, "MPSDaemonDied", note.to_owned())
            }
            DaemonState::Failed { message }
                if !was_in(|state| matches!(state, DaemonState::Failed { .. })) =>
            {
                let note = format!("MPS of {{}} does not run: {message}; it is tried again");
                (Severity::Warning, "MPSFailed", note)
            }
            DaemonState::Running if before.is_some_and(|before| before.restarts < now.restarts) => {
                (Severity::Normal, "MPSRestarted", "MPS of {} runs again".to_owned())
            }
            DaemonState::Running if was_fault.is_some() && now.fault.is_none() => {
                let note = "after a fault, the MPS server of {} takes programs again";
                (Severity::Normal, "MPSRecovered", note.to_owned())
            }
            _ => return,
        };
        let occurrence = match was_fault {
            Some(fault) => fault.id.clone(),
            None => format!("{} {}", now.device, now.restarts),
        };
        let users = self.users(&now.device).await;
        self.tell(now.device.as_str(), &News { severity, reason, note, occurrence }, users, true);
    }

    /// Reports a fault of a client, with the clients forced to end.
    pub async fn fault(&mut self, device: &DeviceUuid, id: &str, clients: &[ClientProcess]) {
        let news = News::warning("MPSServerFault", fault(clients), id.to_owned());
        let users = self.users(device).await;
        self.tell(device.as_str(), &news, users, true);
    }

    /// Reports replaced or missing servers. Claims prepared on the new server have lost nothing.
    pub async fn lost_servers(&mut self, daemons: &[Daemon]) {
        let lost = match self.worker.lost_servers(daemons).await {
            Ok(lost) => lost,
            Err(error) => {
                tracing::warn!(%error, "cannot tell whose MPS server was replaced");
                return;
            }
        };
        for (server, Lost { uuid, is_gone, shares }) in lost {
            let is = if is_gone { "is gone" } else { "was replaced" };
            let note = format!(
                "the MPS server of {{}} {is}: it died, or mps-host's pod ended. A program that was using the device has lost \
                 its context and must be started again"
            );
            let users = self.users_of(shares).await;
            let news = News::warning("MPSServerDied", note, server);
            // Without shares there is no loss to report.
            self.tell(&uuid, &news, users, false);
        }
    }

    /// Reports the absence of mps-host from a node with shares.
    pub fn away(&self, error: &MpsHostError) {
        let note =
            format!("{error}. Until it is back nobody starts a daemon of a shared card again that dies");
        let content = Content {
            action: ACTION,
            severity: Severity::Warning,
            reason: "MPSHostAway",
            note: &note,
            occurrence: None,
        };
        self.worker.events.send(&content, &self.node());
    }

    /// Notes the users of a device whose daemon is ending: the claims' records are removed before its clients have
    /// been ended.
    pub async fn clients_remain(&mut self, device: DeviceUuid) {
        let users = self.users(&device).await;
        self.ending.insert(device, users);
    }

    /// Forgets the noted users: the daemon has ended.
    pub fn stopped(&mut self, device: &DeviceUuid) {
        self.ending.remove(device);
    }

    /// Reports clients ended with their daemon. `id` is the event's; with a version of mps-host without ids, every instance of
    /// the plugin sends its own Event.
    pub async fn clients_ended(
        &mut self,
        device: &DeviceUuid,
        clients: &[ClientProcess],
        id: Option<String>,
    ) {
        let mut users = match self.ending.remove(device) {
            Some(users) => users,
            None => self.users(device).await,
        };
        let is_theirs = |object: &ObjectReference| {
            clients.iter().any(|client| client.pod_uid.is_some() && client.pod_uid == object.uid)
        };
        if users.objects.iter().any(is_theirs) {
            users.objects.retain(is_theirs);
        }
        let note = format!(
            "programs were still using {{}} when its last share ended, and have lost their contexts: {}",
            names(clients)
        );
        let news = News::warning("MPSClientsEnded", note, id.unwrap_or_default());
        self.tell(device.as_str(), &news, users, true);
    }

    fn tell(&mut self, device: &str, news: &News, users: Users, or_node: bool) {
        self.told.retain(|_, told| told.elapsed() < PAUSE);
        let key = (device.to_owned(), news.reason);
        if self.told.contains_key(&key) {
            return;
        }
        let name = match users.names.is_empty() {
            true => device.to_string(),
            false => users.names.into_iter().collect::<Vec<_>>().join(", "),
        };
        let note = news.note.replacen("{}", &name, 1);
        let content = Content {
            action: ACTION,
            severity: news.severity,
            reason: news.reason,
            note: &note,
            occurrence: Some(&*news.occurrence),
        };
        let mut objects = users.objects;
        if objects.is_empty() {
            if !or_node {
                return;
            }
            objects.push(self.node());
        }
        self.told.insert(key, Instant::now());
        for object in &objects {
            self.worker.events.send(&content, object);
        }
    }

    fn node(&self) -> ObjectReference {
        node_reference(&self.worker.options.node_name)
    }

    /// The users of a device: claims with a share of the device, by the journal, and their pods, by the API server.
    async fn users(&self, device: &DeviceUuid) -> Users {
        let entries = match self.worker.disk(|journal, _| journal.shared_claims()).await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, "cannot tell who has shares of a device");
                return Users::default();
            }
        };
        let boot = self.worker.journal.boot_id();
        let records = entries.into_iter().filter_map(|entry| entry.record.ok());
        let mut shares = Vec::new();
        for record in records.filter(|record| record.boot_id == *boot) {
            let claim = reference::of_record(&record);
            let of_device =
                record.devices.iter().filter(|one| one.mps.is_some() && one.uuid() == Some(device.as_str()));
            shares.extend(of_device.map(|one| (one.device.clone(), claim.clone())));
        }
        self.users_of(shares).await
    }

    /// The users by the names of their devices and their claims.
    async fn users_of(&self, shares: Vec<(String, ClaimReference)>) -> Users {
        let (names, mut claims): (BTreeSet<String>, Vec<ClaimReference>) = shares.into_iter().unzip();
        claims.dedup();
        let client = &self.worker.client;
        let objects = futures::stream::iter(claims)
            .map(|claim| async move {
                match api::get(client, &claim, PATIENCE).await {
                    Ok(Found::Claim(found)) => api::pods(&found),
                    // A deleted claim has no pods left.
                    Ok(_) => Vec::new(),
                    Err(_) => vec![claim_reference(&claim)],
                }
            })
            .buffered(AT_ONCE)
            .concat()
            .await;
        Users { names, objects }
    }
}

/// The text for users of a device with a fault.
fn fault(clients: &[ClientProcess]) -> String {
    let who = match clients {
        [] => "all that were using it".to_owned(),
        clients => names(clients),
    };
    format!(
        "a program that was using {{}} faulted, and with it every program on the device lost its context and must be started \
         again. No other can use it before these have ended: {who}"
    )
}

/// Processes for a message; only the first few by name.
fn names(clients: &[ClientProcess]) -> String {
    let mut names: Vec<String> = clients.iter().take(MOST_PROCESSES).map(ToString::to_string).collect();
    if clients.len() > MOST_PROCESSES {
        names.push(format!("{} more", clients.len() - MOST_PROCESSES));
    }
    names.join(", ")
}
