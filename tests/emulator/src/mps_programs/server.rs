//! The stub `nvidia-cuda-mps-server`: holds the devices' contexts and lets clients use them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::log::Log;
use crate::cuda::contexts::Owner;
use crate::cuda::device::{self, Device};
use crate::cuda::direct::{CudaError, admit, hold};
use crate::cuda::machine;
use crate::machine::Machine;
use crate::mps::place::Place;
use crate::mps::wire::{self, Client, FromServer, FromServerProcess, Lines, ToServer, ToServerProcess};
use crate::mps::{
    DEVICE_UNAVAILABLE, INVALID_DEVICE, INVALID_RESOURCE_CONFIGURATION, LAUNCH_FAILED, MPS_CLIENT_TERMINATED,
    MPS_MAX_CLIENTS_REACHED, MPS_SERVER_NOT_READY, NO_DEVICE, OUT_OF_MEMORY, error_name,
};
use crate::state::{Context, ProcessKind};

/// A server's own memory on a card. Chosen here: captures show some 30 MiB.
const OWN_MEMORY: u64 = 30 << 20;

/// Interval at which an ending server checks for its last client.
const LOOK: Duration = Duration::from_millis(20);

struct Server {
    machine: Machine,
    owner: Owner,
    devices: Vec<Device>,
    log: Log,
    inner: Mutex<Inner>,
}

struct Inner {
    percentage: f64,
    memory: Vec<Option<u64>>,
    /// Static SM partitions with their multiprocessors, where they are enabled.
    partitions: Option<Vec<(String, u32)>>,
    clients: BTreeMap<u64, Connected>,
    next: u64,
    /// A client faulted: no new clients until all present ones are gone.
    fault: bool,
    closing: bool,
}

struct Connected {
    client: Client,
    held: u64,
    limit: Option<u64>,
    stream: UnixStream,
    /// The context is lost: requests are no longer answered, and the client counts as one until its process has
    /// ended.
    lost: bool,
}

/// Runs the server, connected to its daemon by standard input and output.
pub fn main() -> ExitCode {
    let place = Place::of_environment();
    let answer = |answer: &FromServerProcess| wire::send(&mut io::stdout().lock(), answer);
    let server = match Server::open(&place) {
        Ok(server) => Arc::new(server),
        Err(problem) => {
            let _ = answer(&FromServerProcess::Failed(problem));
            return ExitCode::FAILURE;
        }
    };
    let path = place.server(std::process::id());
    let listener = match listen(&path) {
        Ok(listener) => listener,
        Err(error) => {
            let _ = answer(&FromServerProcess::Failed(error.to_string()));
            return ExitCode::FAILURE;
        }
    };
    server.log.line("Startup");
    let accepting = Arc::clone(&server);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&accepting);
            std::thread::spawn(move || server.serve(stream));
        }
    });
    if answer(&FromServerProcess::Ready).is_err() {
        return ExitCode::FAILURE;
    }
    let mut input = io::stdin().lock();
    while let Ok(Some(order)) = wire::receive(&mut input) {
        if let ToServerProcess::Shutdown { force } = order {
            let (server, path) = (Arc::clone(&server), path.clone());
            std::thread::spawn(move || server.end(force, &path));
        } else if answer(&server.obey(order)).is_err() {
            break;
        }
    }
    // Without its daemon there are no new clients. Present ones continue.
    server.end(false, &path)
}

fn listen(path: &std::path::Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

impl Server {
    fn open(place: &Place) -> Result<Self, String> {
        let log = Log::open(&place.log, "server.log", "Server").map_err(|error| error.to_string())?;
        let store = machine::find()?;
        let machine = store.machine().map_err(|error| error.to_string())?;
        let state = store.state().map_err(|error| error.to_string())?;
        let variable = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let devices = device::visible(device::all(&machine, &state), variable.as_deref());
        if devices.is_empty() {
            return Err("No devices are visible".to_owned());
        }
        let owner = Owner::new(&store).map_err(|error| error.to_string())?;
        for device in &devices {
            let own = device.process(std::process::id(), OWN_MEMORY, ProcessKind::Compute);
            owner.put(device.card, own, |state| admit(state, device)).map_err(
                |error: CudaError| match error {
                    CudaError::Code(DEVICE_UNAVAILABLE) => {
                        format!("Device {} is in use or prohibited", device.uuid)
                    }
                    error => error.to_string(),
                },
            )?;
        }
        let inner = Inner {
            percentage: 100.0,
            memory: vec![None; devices.len()],
            partitions: None,
            clients: BTreeMap::new(),
            next: 0,
            fault: false,
            closing: false,
        };
        Ok(Server { machine, owner, devices, log, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn obey(&self, order: ToServerProcess) -> FromServerProcess {
        let mut inner = self.lock();
        match order {
            ToServerProcess::Limits { percentage, memory } => {
                inner.percentage = percentage;
                inner.memory = memory;
                FromServerProcess::Done(true)
            }
            ToServerProcess::Partitions(partitions) => {
                inner.partitions = partitions;
                FromServerProcess::Done(true)
            }
            ToServerProcess::Clients => FromServerProcess::Clients {
                clients: inner.clients.values().map(|connected| connected.client.clone()).collect(),
                fault: inner.fault,
            },
            ToServerProcess::Terminate(pid) => {
                let mut found = false;
                for connected in inner.clients.values_mut().filter(|connected| connected.client.pid == pid) {
                    found = true;
                    let _ = wire::send(&mut connected.stream, &FromServer::Lost(MPS_CLIENT_TERMINATED));
                    let _ = connected.stream.shutdown(std::net::Shutdown::Both);
                }
                FromServerProcess::Done(found)
            }
            ToServerProcess::Shutdown { .. } => FromServerProcess::Done(false),
        }
    }

    /// Waits until all clients are gone; with `force`, ends them.
    fn wait_for_clients(&self, force: bool) {
        loop {
            let mut inner = self.lock();
            inner.closing = true;
            if inner.clients.is_empty() {
                return;
            }
            if force {
                for connected in inner.clients.values_mut() {
                    let _ = wire::send(&mut connected.stream, &FromServer::Lost(MPS_CLIENT_TERMINATED));
                    let _ = connected.stream.shutdown(std::net::Shutdown::Both);
                }
            }
            drop(inner);
            std::thread::sleep(LOOK);
        }
    }

    /// Ends the process when all clients have gone.
    fn end(&self, force: bool, path: &std::path::Path) -> ! {
        self.wait_for_clients(force);
        self.log.line("Exit");
        let _ = fs::remove_file(path);
        for device in &self.devices {
            let _ = self.owner.remove(device.card, std::process::id(), ProcessKind::Compute);
        }
        std::process::exit(0)
    }

    fn serve(&self, stream: UnixStream) {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&stream) else { return };
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        let (Ok(copy), Ok(mut lines)) = (stream.try_clone(), Lines::new(stream)) else { return };
        let Ok(Some(ToServer::Connect { device, memory_limit, percentage, partition, program })) =
            lines.receive()
        else {
            return;
        };
        let client = Client { pid, device, program, partition };
        let number = match self.admit(client, memory_limit, percentage, copy) {
            Ok((number, connected)) => {
                if lines.send(&connected).is_err() {
                    self.depart(number);
                    return;
                }
                number
            }
            Err(code) => {
                self.log.line(&format!("client {pid} refused: {}", error_name(code)));
                let _ = lines.send(&FromServer::Error(code));
                return;
            }
        };
        self.log.line(&format!("New client {pid} connected"));
        while let Ok(Some(order)) = lines.receive() {
            if self.has_lost(number) {
                continue;
            }
            let answer = match order {
                ToServer::Connect { .. } => break,
                ToServer::Allocate(bytes) => self.allocate(number, Some(bytes)),
                ToServer::Free => self.allocate(number, None),
                ToServer::Busy(percent) => self.keep_busy(number, percent),
                ToServer::Fault => {
                    self.fault(number, pid);
                    continue;
                }
            };
            if lines.send(&answer).is_err() {
                break;
            }
        }
        self.depart(number);
        self.log.line(&format!("Client {pid} disconnected"));
    }

    fn admit(
        &self,
        client: Client,
        limit: Option<u64>,
        percentage: Option<f64>,
        stream: UnixStream,
    ) -> Result<(u64, FromServer), u32> {
        let mut inner = self.lock();
        let device = self.devices.get(client.device).ok_or(INVALID_DEVICE)?;
        if inner.closing || inner.fault {
            return Err(MPS_SERVER_NOT_READY);
        }
        let here =
            inner.clients.values().filter(|connected| connected.client.device == client.device).count();
        if here >= device::most_clients(&self.machine, device) {
            return Err(MPS_MAX_CLIENTS_REACHED);
        }
        // With static partitions a client must name one, and percentages are ignored.
        let multiprocessors = match &inner.partitions {
            None => None,
            Some(partitions) => {
                let named = |(id, _): &&(String, u32)| client.partition.as_ref() == Some(id);
                let (_, multiprocessors) =
                    partitions.iter().find(named).ok_or(INVALID_RESOURCE_CONFIGURATION)?;
                Some(*multiprocessors)
            }
        };
        // A client's own limits only tighten the server's.
        let of_server = inner.memory.get(client.device).copied().flatten();
        let limit = limit.into_iter().chain(of_server).min();
        let percentage = match multiprocessors {
            Some(_) => 100.0,
            None => percentage.map_or(inner.percentage, |percentage| percentage.min(inner.percentage)),
        };
        let process = device.process(client.pid, 0, ProcessKind::Mps);
        self.owner.put(device.card, process, |_| Ok::<(), CudaError>(())).map_err(|_| NO_DEVICE)?;
        let number = inner.next;
        inner.next += 1;
        inner.clients.insert(number, Connected { client, held: 0, limit, stream, lost: false });
        let uuid = device.uuid.clone();
        Ok((number, FromServer::Connected { uuid, memory_limit: limit, percentage, multiprocessors }))
    }

    /// Allocates more memory for a client, or frees all its memory.
    fn allocate(&self, number: u64, more: Option<u64>) -> FromServer {
        let mut inner = self.lock();
        let Some(connected) = inner.clients.get_mut(&number) else {
            return FromServer::Error(MPS_CLIENT_TERMINATED);
        };
        let held = more.map_or(0, |more| connected.held.saturating_add(more));
        if connected.limit.is_some_and(|limit| held > limit) {
            return FromServer::Error(OUT_OF_MEMORY);
        }
        let device = &self.devices[connected.client.device];
        match hold(&self.owner, device, connected.client.pid, ProcessKind::Mps, connected.held, held) {
            Ok(()) => {
                connected.held = held;
                FromServer::Holds(held)
            }
            Err(CudaError::Code(code)) => FromServer::Error(code),
            Err(CudaError::Store(_)) => FromServer::Error(NO_DEVICE),
        }
    }

    /// Lets a client run kernels for this percentage of the time.
    fn keep_busy(&self, number: u64, percent: u32) -> FromServer {
        let inner = self.lock();
        let Some(connected) = inner.clients.get(&number) else {
            return FromServer::Error(MPS_CLIENT_TERMINATED);
        };
        let card = self.devices[connected.client.device].card;
        let context = Context { card, pid: connected.client.pid, kind: ProcessKind::Mps };
        match self.owner.keep_busy(context, percent.min(100)) {
            Ok(()) => FromServer::Holds(connected.held),
            Err(_) => FromServer::Error(NO_DEVICE),
        }
    }

    /// A fault ends the contexts of all clients of the server's devices. With static partitions and a driver
    /// containing faults, only those of the client's partition.
    fn fault(&self, number: u64, pid: u32) {
        self.log.line(&format!("Client {pid} caused a fatal exception; ending its clients"));
        let mut inner = self.lock();
        let own = inner.clients.get(&number).and_then(|connected| connected.client.partition.clone());
        let contained = own.filter(|_| inner.partitions.is_some() && device::contains_faults(&self.machine));
        inner.fault = contained.is_none();
        let is_hit =
            |connected: &&mut Connected| contained.is_none() || connected.client.partition == contained;
        for connected in inner.clients.values_mut().filter(is_hit) {
            let _ = wire::send(&mut connected.stream, &FromServer::Lost(LAUNCH_FAILED));
            let _ = connected.stream.shutdown(std::net::Shutdown::Write);
            connected.lost = true;
        }
    }

    fn has_lost(&self, number: u64) -> bool {
        self.lock().clients.get(&number).is_none_or(|connected| connected.lost)
    }

    fn depart(&self, number: u64) {
        let mut inner = self.lock();
        if let Some(connected) = inner.clients.remove(&number) {
            let card = self.devices[connected.client.device].card;
            let _ = self.owner.remove(card, connected.client.pid, ProcessKind::Mps);
        }
        if inner.clients.is_empty() {
            inner.fault = false;
        }
    }
}
