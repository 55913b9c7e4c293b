//! The stub control daemon.

mod background;
mod commands;
mod server;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::FlockOperation;

pub use self::background::detach;
use self::server::Server;
use super::log::Log;
use crate::cuda::{contexts, device, machine};
use crate::mps::partitions::{Chunks, Partitions};
use crate::mps::place::{Place, beside};
use crate::mps::wire::{self, FromDaemon, FromServerProcess, Lines, ToDaemon, ToServerProcess};
use crate::mps::{MPS_SERVER_NOT_READY, limits};

/// Interval of polling for another process.
const LOOK: Duration = Duration::from_millis(2);

/// How a daemon was started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// `-M`: one server for the clients of all users.
    pub multi_user: bool,
    /// `-S`: every client has multiprocessors of a partition.
    pub static_partitioning: bool,
}

struct Daemon {
    place: Place,
    log: Log,
    mode: Mode,
    /// Locked while this daemon is the one of its directory.
    only_one: File,
    /// Whether the daemon is shutting down: no more requests are answered.
    ended: AtomicBool,
    inner: Mutex<Inner>,
}

struct Inner {
    percentage: f64,
    memory: BTreeMap<usize, u64>,
    servers: Vec<Server>,
    /// Where they are enabled.
    partitions: Option<Partitions>,
    quitting: bool,
}

/// Runs a daemon until asked to quit.
///
/// # Errors
/// A daemon runs already, or its files cannot be made; the text is for standard error.
pub fn run(place: &Place, mode: Mode) -> Result<(), String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    let partitions = if mode.static_partitioning { Some(partitions()?) } else { None };
    fs::create_dir_all(&place.pipe).map_err(failed(&place.pipe))?;
    let path = place.lock();
    let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed(&path))?;
    permit(&path, 0o666);
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err("An instance of this daemon is already running".to_owned());
    }
    let log = Log::open(&place.log, "control.log", "Control").map_err(failed(&place.log))?;
    Log::open(&place.log, "server.log", "Server").map_err(failed(&place.log))?;
    let listen = |path: &Path, permissions| {
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(failed(path))?;
        permit(path, permissions);
        Ok::<_, String>(listener)
    };
    let clients = listen(&place.control(), 0o666)?;
    let commands = listen(&place.privileged(), 0o755)?;
    let pipe = place.log_pipe();
    let _ = fs::remove_file(&pipe);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o777),
        0,
    )
    .map_err(|error| failed(&pipe)(error.into()))?;
    permit(&pipe, 0o777);
    let path = place.pid();
    fs::write(&path, format!("{}\n", std::process::id())).map_err(failed(&path))?;
    permit(&path, 0o666);
    log.line(&format!("Starting control daemon using socket {}", place.control().display()));
    log.line(&format!(
        "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}",
        place.pipe.display()
    ));
    let percentage = std::env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").ok();
    let memory = std::env::var("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT").unwrap_or_default();
    let inner = Inner {
        percentage: percentage.and_then(|text| limits::percentage(&text)).unwrap_or(100.0),
        memory: limits::for_device(&memory, 0, "").map(|limit| (0, limit)).into_iter().collect(),
        servers: Vec::new(),
        partitions,
        quitting: false,
    };
    let daemon = Arc::new(Daemon {
        place: place.clone(),
        log,
        mode,
        only_one: lock,
        ended: AtomicBool::new(false),
        inner: Mutex::new(inner),
    });
    for listener in [clients, commands] {
        let daemon = Arc::clone(&daemon);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let daemon = Arc::clone(&daemon);
                std::thread::spawn(move || daemon.answer(stream));
            }
        });
    }
    // Ends by `quit` alone.
    loop {
        std::thread::park();
    }
}

fn permit(path: &Path, bits: u32) {
    // Fails for another user's file, whose permissions stay.
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(bits));
}

impl Daemon {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gone = Vec::new();
        inner.servers.retain_mut(|server| {
            let ended = !matches!(server.process.try_wait(), Ok(None));
            if ended {
                gone.push(server.process.id());
            }
            !ended
        });
        if !gone.is_empty()
            && let Ok(store) = machine::find()
        {
            contexts::sweep(&store);
        }
        for pid in gone {
            self.log.line(&format!("Server {pid} exited"));
            let _ = fs::remove_file(self.place.server(pid));
        }
        inner
    }

    fn answer(&self, stream: UnixStream) {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&stream) else { return };
        let Ok(mut lines) = Lines::new(stream) else { return };
        let (mut is_quit, answer) = match lines.receive() {
            Ok(Some(ToDaemon::Client)) => {
                let pid = peer.pid.as_raw_nonzero().get();
                (false, self.client(pid.unsigned_abs(), peer.uid.as_raw()))
            }
            Ok(Some(ToDaemon::Command(command))) => {
                let words: Vec<&str> = command.split_whitespace().collect();
                (words.first() == Some(&"quit"), FromDaemon::Text(self.command(&words)))
            }
            _ => return,
        };
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        is_quit &= matches!(&answer, FromDaemon::Text(text) if text.is_empty());
        if is_quit {
            // The real one leaves its sockets and removes the file with its process id.
            let _ = fs::remove_file(self.place.pid());
            self.log.line("Exit");
            self.ended.store(true, Ordering::Release);
            // Whoever reads the answer may start the next daemon before this process is gone.
            let _ = rustix::fs::flock(&self.only_one, FlockOperation::Unlock);
        }
        let _ = lines.send(&answer);
        if is_quit {
            std::process::exit(0);
        }
    }

    /// Finds the server for a client, or starts one.
    fn client(&self, pid: u32, user: u32) -> FromDaemon {
        self.log.line("Accepting connection...");
        let user = if self.mode.multi_user { 0 } else { user };
        loop {
            let mut inner = self.lock();
            if inner.quitting {
                return FromDaemon::Error(MPS_SERVER_NOT_READY);
            }
            if let Some(server) = inner.servers.iter().find(|server| server.user == user) {
                self.log.line(&format!("NEW CLIENT {pid} from user {user}: Server already exists"));
                return FromDaemon::Server(server.process.id());
            }
            // One user at a time: the others' server ends with its last client.
            let mut is_free = true;
            for server in &mut inner.servers {
                is_free = false;
                if server.clients().is_some_and(|(clients, _)| clients.is_empty()) {
                    server.tell(&ToServerProcess::Shutdown { force: false });
                }
            }
            if is_free {
                self.log.line(&format!(
                    "NEW CLIENT {pid} from user {user}: Server is not ready, push client to pending list"
                ));
                return match self.start_server(&mut inner, user) {
                    Ok(pid) => FromDaemon::Server(pid),
                    Err(_) => FromDaemon::Error(MPS_SERVER_NOT_READY),
                };
            }
            drop(inner);
            std::thread::sleep(LOOK);
        }
    }

    fn start_server(&self, inner: &mut Inner, user: u32) -> Result<u32, String> {
        let program = beside("nvidia-cuda-mps-server").map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if user != rustix::process::geteuid().as_raw() {
            command.uid(user);
        }
        let mut process = command.spawn().map_err(|error| error.to_string())?;
        let pid = process.id();
        self.log.line(&format!("Starting new server {pid} for user {user}"));
        let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("no pipes".to_owned());
        };
        let mut server = Server {
            user,
            process,
            orders,
            answers: BufReader::new(answers),
            percentage: inner.percentage,
            memory: inner.memory.clone(),
        };
        match wire::receive(&mut server.answers) {
            Ok(Some(FromServerProcess::Ready)) => {}
            answer => {
                let problem = match answer {
                    Ok(Some(FromServerProcess::Failed(problem))) => problem,
                    _ => "it broke off".to_owned(),
                };
                let _ = server.process.wait();
                self.log.line(&format!("Server {pid} exited with status 1: {problem}"));
                return Err(problem);
            }
        }
        server.limit();
        server.partition(inner.partitions.as_ref());
        self.log.line(&format!("NEW SERVER {pid}: Ready"));
        inner.servers.push(server);
        Ok(pid)
    }
}

/// The partitions of the daemon's first device: users of this stub have only one.
fn partitions() -> Result<Partitions, String> {
    let store = machine::find()?;
    let machine = store.machine().map_err(|error| error.to_string())?;
    let state = store.state().map_err(|error| error.to_string())?;
    if !device::has_static_partitions(&machine) {
        return Err("nvidia-cuda-mps-control: unknown option -S".to_owned());
    }
    let variable = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let devices = device::visible(device::all(&machine, &state), variable.as_deref());
    let first = devices.first().ok_or("No devices are visible")?;
    let capability = machine.cards[first.card].board.compute_capability;
    let multiprocessors = first.multiprocessors.unwrap_or(0);
    let chunks = Chunks::of(capability.major.unsigned_abs(), multiprocessors, first.instances.is_some());
    let chunks = chunks.ok_or_else(|| format!("Static partitioning is not supported on {}", first.uuid))?;
    Ok(Partitions::new(&first.uuid, multiprocessors, chunks))
}
