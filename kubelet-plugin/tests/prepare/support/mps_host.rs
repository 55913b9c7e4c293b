//! A fake mps-host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use tessera_mps_host::SOCKET;
use tessera_mps_host::protocol::{
    Daemon, DaemonState, Ensure, ErrorCode, Operation, Release, Request, Response, StaticPartition,
};
use tessera_nvml::ComputeMode;

use super::{Cards, Disk, real_uuid};

/// Process id of all servers.
const SERVER: u32 = 2;

/// mps-host without daemons: a list of them, and compute modes. Like the real one, the fake outlives the
/// plugin.
pub struct FakeMpsHost {
    inner: Arc<Inner>,
    socket: PathBuf,
    /// Locked, as by the real mps-host.
    _lock: File,
}

struct Inner {
    directory: PathBuf,
    cards: Arc<Cards>,
    state: Mutex<State>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    daemons: BTreeMap<String, Running>,
    /// The disk of the requesting plugin.
    disk: Option<Arc<Disk>>,
    /// The cards' compute modes set by the administrator.
    administrators: BTreeMap<u8, ComputeMode>,
    requests: usize,
    starts: usize,
}

struct Running {
    daemon: Daemon,
    modes_before: Vec<(u8, ComputeMode)>,
}

impl FakeMpsHost {
    pub fn start(directory: &Path, cards: Arc<Cards>) -> Self {
        let socket = directory.join(SOCKET);
        let lock = File::create(directory.join("host.lock")).unwrap();
        lock.try_lock().unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let inner = Arc::new(Inner {
            directory: directory.to_owned(),
            cards,
            state: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let serving = inner.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        Self { inner, socket, _lock: lock }
    }

    /// Sets the disk of the requesting plugin from now on.
    pub fn set_disk(&self, disk: Option<Arc<Disk>>) {
        self.inner.lock().disk = disk;
    }

    /// Starts the machine again.
    pub fn boot(&self) {
        let mut state = self.inner.lock();
        state.daemons.clear();
        state.administrators.clear();
    }

    /// The administrator sets a card's compute mode.
    pub fn administer(&self, card: u8, mode: ComputeMode) {
        self.inner.lock().administrators.insert(card, mode);
        self.inner.cards.change_compute_mode(card, mode);
    }

    pub fn administrators_mode(&self, card: u8) -> ComputeMode {
        self.inner.lock().administrators.get(&card).copied().unwrap_or(ComputeMode::Default)
    }

    /// All daemons, by device and owner.
    pub fn daemons(&self) -> BTreeSet<(String, Option<String>)> {
        let state = self.inner.lock();
        state.daemons.iter().map(|(uuid, running)| (uuid.clone(), running.daemon.owner.clone())).collect()
    }

    /// Memory limit and percentage of a daemon.
    pub fn limits(&self, uuid: &str) -> Option<(Option<u64>, Option<u8>)> {
        let state = self.inner.lock();
        let settings = state.daemons.get(uuid)?.daemon.settings;
        Some((settings.memory_limit_mib, settings.active_thread_percentage))
    }

    /// Number of changing requests so far.
    pub fn requests(&self) -> usize {
        self.inner.lock().requests
    }

    /// Number of daemons started so far.
    pub fn starts(&self) -> usize {
        self.inner.lock().starts
    }
}

impl Drop for FakeMpsHost {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections.
        let _ = UnixStream::connect(&self.socket);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn serve(&self, stream: UnixStream) {
        let mut writer = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let request: Request = serde_json::from_str(&line).unwrap();
            let answer = self.answer(request.operation);
            let mut text = serde_json::to_string(&answer).unwrap();
            text.push('\n');
            if writer.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, operation: Operation) -> Response {
        let mut state = self.lock();
        if matches!(operation, Operation::List) {
            return Response::Daemons(state.daemons.values().map(|running| running.daemon.clone()).collect());
        }
        state.requests += 1;
        let disk = state.disk.clone();
        let work = || {
            Ok(match operation {
                Operation::Ensure(wanted) => self.ensure(&mut state, wanted),
                Operation::Release(order) => self.release(&mut state, &order),
                _ => unreachable!("nobody asks for this"),
            })
        };
        let answer = match disk {
            None => work(),
            Some(disk) => disk.card_effect(work),
        };
        answer.unwrap_or_else(|error| failed(&format!("no answer: {error}")))
    }

    fn ensure(&self, state: &mut State, wanted: Ensure) -> Response {
        let uuid = wanted.device.to_string();
        if let Some(running) = state.daemons.get_mut(&uuid)
            && running.daemon.owner == wanted.owner
            && running.daemon.others.len() == wanted.others.len()
        {
            running.daemon.settings = wanted.settings;
            running.daemon.static_partitions = partitions(&wanted);
            return Response::Ready(Box::new(running.daemon.clone()));
        }
        let cards: Vec<u8> = (0..self.cards.count())
            .filter(|card| {
                let card = real_uuid(*card);
                card == uuid || wanted.others.iter().any(|other| other.device.as_str() == card)
            })
            .collect();
        let is_taken =
            |card: &u8| state.daemons.values().any(|running| running.daemon.serves(&real_uuid(*card)));
        if cards.iter().any(is_taken) || state.daemons.contains_key(&uuid) {
            return failed("another daemon holds the card: the plugin has not released it");
        }
        if wanted.device.is_partition() && !self.cards.own_uuids().contains(&uuid) {
            return failed("there is no such partition");
        }
        let modes_before = cards
            .into_iter()
            .map(|card| (card, self.cards.change_compute_mode(card, ComputeMode::ExclusiveProcess)))
            .collect();
        let pipe = self.directory.join(&uuid).join("pipe");
        let daemon = Daemon {
            static_partitions: partitions(&wanted),
            device: wanted.device,
            card: wanted.card,
            settings: wanted.settings,
            others: wanted.others,
            owner: wanted.owner,
            state: DaemonState::Running,
            pid: Some(1),
            server_instance: None,
            fault: None,
            server_pid: Some(SERVER),
            log_directory: pipe.with_file_name("log"),
            shm_directory: None,
            pipe_directory: pipe,
            restarts: 0,
        };
        state.starts += 1;
        // A partition can't be destroyed while its server runs.
        self.cards.run_on_partition(&uuid, SERVER, true);
        state.daemons.insert(uuid, Running { daemon: daemon.clone(), modes_before });
        Response::Ready(Box::new(daemon))
    }

    fn release(&self, state: &mut State, order: &Release) -> Response {
        let uuid = order.device.as_str();
        if state.daemons.get(uuid).is_some_and(|running| running.daemon.owner == order.owner)
            && let Some(running) = state.daemons.remove(uuid)
        {
            self.cards.run_on_partition(uuid, SERVER, false);
            for (card, mode) in running.modes_before {
                self.cards.change_compute_mode(card, mode);
            }
        }
        Response::Released { ended_clients: Vec::new() }
    }
}

/// One partition for each share, if they are requested.
fn partitions(wanted: &Ensure) -> Option<BTreeMap<String, StaticPartition>> {
    let partition = |share: &String| {
        let name = format!("{}/{share}", wanted.device);
        (share.clone(), StaticPartition { name, chunks: 1, multiprocessors: 8 })
    };
    wanted.static_shares.as_ref().map(|shares| shares.keys().map(partition).collect())
}

fn failed(message: &str) -> Response {
    Response::Error { code: ErrorCode::Failed, message: message.to_owned() }
}
