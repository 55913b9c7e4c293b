//! Events about MPS daemons.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ObjectReference;

use super::known::Missing;
use crate::prepare::claim::{self, Found};
use tessera_kube_util::events::{Content, Severity, node_reference};
use tessera_mps_host::DeviceUuid;
use tessera_mps_host::client::MpsHostError;
use tessera_mps_host::protocol::{ClientProcess, Event, EventKind};

use crate::prepare::claim_events::claim_reference;
use crate::prepare::worker::Worker;
use crate::prepare::{ClaimReference, blocking};

/// The `action` of these Events.
const ACTION: &str = "ShareByMPS";

/// Minimum pause between equal Events about one device. A daemon that dies in a loop needs one only.
const PAUSE: Duration = Duration::from_secs(30);

/// How many claims are looked up concurrently, and the time limit of each.
const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(2);

/// An Event names at most this many processes.
const MOST_PROCESSES: usize = 8;

/// Sends Events about daemons to the pods that use them, or to the Node if no pod is known.
pub(super) struct Teller {
    worker: Arc<Worker>,
    told: HashMap<(DeviceUuid, &'static str), Instant>,
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

impl Teller {
    pub fn new(worker: Arc<Worker>) -> Self {
        Self { worker, told: HashMap::new(), ending: HashMap::new() }
    }

    /// Reports an event of mps-host, unless it needs nobody's attention.
    pub async fn happened(&mut self, Event { device, kind, id, .. }: &Event) {
        let occurrence = || id.clone().unwrap_or_else(unnamed);
        let warning = |reason, note: String| News {
            severity: Severity::Warning,
            reason,
            note,
            occurrence: occurrence(),
        };
        let normal = |reason, note: &str| News {
            severity: Severity::Normal,
            reason,
            note: note.to_owned(),
            occurrence: occurrence(),
        };
        let news = match kind {
            EventKind::DaemonDied { clients, .. } if clients.is_empty() => warning(
                "MPSDaemonDied",
                "the MPS control daemon of {} died while no program was using it; it is being started again".to_owned(),
            ),
            EventKind::DaemonDied { .. } => warning(
                "MPSDaemonDied",
                "the MPS control daemon of {} died. Programs that are using the device go on; others can't begin to, \
                 until those have ended and it is started again"
                    .to_owned(),
            ),
            EventKind::ServerDied { .. } => warning(
                "MPSServerDied",
                "the MPS server of {} died: every program that was using the device has lost its context and must be \
                 started again"
                    .to_owned(),
            ),
            EventKind::ServerFault { clients } => warning("MPSServerFault", fault(clients)),
            EventKind::ServerRecovered => {
                normal("MPSRecovered", "after a fault, the MPS server of {} takes programs again")
            }
            EventKind::Restarted => normal("MPSRestarted", "MPS of {} runs again"),
            EventKind::Failed { message } => {
                warning("MPSFailed", format!("MPS of {{}} does not run: {message}; it is tried again"))
            }
            EventKind::ClientsRemain { .. } => {
                // The claims' records are removed before its clients have been ended.
                let users = self.users(device).await;
                self.ending.insert(device.clone(), users);
                return;
            }
            EventKind::ClientsEnded { clients } => {
                return self.clients_ended(device, clients, occurrence()).await;
            }
            EventKind::Stopped => {
                self.ending.remove(device);
                return;
            }
            EventKind::Started => return,
        };
        let users = self.users(device).await;
        self.tell(device, &news, users, true);
    }

    /// Reports a server that was replaced or is gone without an event to explain it.
    pub async fn replaced(&mut self, Missing { device, server, now }: &Missing) {
        // Shares prepared on the new server have lost nothing.
        let users = self.users_of(device, now.as_deref()).await;
        let (is, occurrence) =
            (if now.is_none() { "is gone" } else { "was replaced" }, format!("without {server}"));
        let note = format!(
            "the MPS daemon of {{}} {is}, as when mps-host's pod ends: every program that was using the device has lost its \
             context and must be started again"
        );
        // Without shares nobody lost anything.
        self.tell(
            device,
            &News { severity: Severity::Warning, reason: "MPSServerDied", note, occurrence },
            users,
            false,
        );
    }

    /// Reports that shares are without mps-host.
    pub fn away(&self, error: &MpsHostError, every: Duration) {
        let note =
            format!("{error}. Until it is back nobody starts a daemon of a shared card again that dies");
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let occurrence = format!("{:x}", since.as_secs() / every.as_secs().max(1));
        let content = Content {
            action: ACTION,
            severity: Severity::Warning,
            reason: "MPSHostAway",
            note: &note,
            occurrence: Some(&occurrence),
        };
        self.worker.events.send(&content, &self.node());
    }

    async fn clients_ended(&mut self, device: &DeviceUuid, clients: &[ClientProcess], occurrence: String) {
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
        self.tell(
            device,
            &News { severity: Severity::Warning, reason: "MPSClientsEnded", note, occurrence },
            users,
            true,
        );
    }

    fn tell(&mut self, device: &DeviceUuid, news: &News, users: Users, or_node: bool) {
        self.told.retain(|_, told| told.elapsed() < PAUSE);
        let key = (device.clone(), news.reason);
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

    /// The users of a device: claims with a share of it, by the journal, and their pods, by the API server.
    async fn users(&self, device: &DeviceUuid) -> Users {
        self.users_of(device, None).await
    }

    /// The same, without claims whose share was prepared on the server `except`.
    async fn users_of(&self, device: &DeviceUuid, except: Option<&str>) -> Users {
        let (journal, device, except) =
            (self.worker.journal.clone(), device.clone(), except.map(str::to_owned));
        let claims = blocking::run(move || {
            let mut names = BTreeSet::new();
            let mut claims = Vec::new();
            let records = journal.shared_claims()?.into_iter().filter_map(|entry| entry.record.ok());
            for record in records.filter(|record| record.boot_id == *journal.boot_id()) {
                let mut shares = record
                    .devices
                    .iter()
                    .filter(|one| one.uuid() == Some(device.as_str()))
                    .filter(|one| {
                        let server = one.mps.as_ref().map(|mps| &mps.server);
                        server.is_some_and(|server| except.is_none() || *server != except)
                    })
                    .map(|one| one.device.clone())
                    .peekable();
                if shares.peek().is_none() {
                    continue;
                }
                names.extend(shares);
                let (namespace, name, uid) =
                    (record.namespace.clone(), record.name.clone(), record.uid.clone());
                claims.push(ClaimReference { namespace, name, uid });
            }
            Ok::<_, tessera_journal::JournalError>((names, claims))
        });
        let (names, claims) = match claims.await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot tell who has shares of a device");
                return Users::default();
            }
            Err(_) => return Users::default(),
        };
        let client = &self.worker.client;
        let objects = futures::stream::iter(claims)
            .map(|claim| async move {
                match claim::get(client, &claim, PATIENCE).await {
                    Ok(Found::Claim(found)) => claim::pods(&found),
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

/// For events of an older mps-host, which have no id: every instance of the plugin then sends its own Event.
fn unnamed() -> String {
    format!("{:x}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos())
}
