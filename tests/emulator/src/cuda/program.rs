//! The command line of `cuda-sample`.

use std::io::BufRead;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use clap::Parser;
use serde_json::json;

use super::client::{Client, Failed, daemon};
use super::device::{self, Device};
use super::direct::{CudaError, Direct};
use super::machine;
use crate::mps::wire::ToServer;
use crate::mps::{INVALID_DEVICE, LAUNCH_FAILED, NO_DEVICE, error_name};

/// Uses an emulated card as a CUDA program uses a real one.
///
/// Prints one JSON object a line: first the device it got, with its limits; then one for each order. It is a client of MPS
/// where a daemon answers in CUDA_MPS_PIPE_DIRECTORY (/tmp/nvidia-mps where that is not set), as CUDA programs are.
#[derive(Parser)]
#[command(
    name = "cuda-sample",
    version,
    after_help = "Exit status: 0 when all went well; 1 after an error of CUDA, which \
    the last line names; 2 for arguments that make no sense."
)]
struct Arguments {
    /// Number of the device that it uses, as CUDA counts them.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    device: usize,
    /// Takes so much memory; several times one after the other.
    #[arg(long, value_name = "MIB")]
    allocate_mib: Vec<u64>,
    /// Then keeps the device busy for so much of the time, as the driver's utilization shows.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    busy: Option<u32>,
    /// Does then what no program should: its context, and with MPS everyone's on the device, is lost.
    #[arg(long)]
    fault: bool,
    /// Stays until it is killed, or the context is lost.
    #[arg(long)]
    hold: bool,
    /// Outlives the loss of its context, as a notebook that shows the error does: it tells of it and stays.
    #[arg(long)]
    linger: bool,
    /// Stays and takes orders from standard input, one a line: allocate MIB, free, busy PERCENT, fault, linger (as --linger,
    /// from now on), exit.
    #[arg(long, conflicts_with = "hold")]
    orders: bool,
    /// Runs so many processes, all with what else is said here, and ends when the last of them has.
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "orders",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
}

/// A context on a device.
pub(super) enum Context {
    Mps(Client),
    Direct(Direct),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.processes > 1 {
        return several(&arguments);
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended::Cuda(code)) => {
            println!("{}", json!({"error": error_name(code), "code": code}));
            ExitCode::FAILURE
        }
        Err(Ended::Other(text)) => {
            eprintln!("cuda-sample: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Why a program ends.
pub(super) enum Ended {
    Cuda(u32),
    Other(String),
}

impl From<CudaError> for Ended {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::Code(code) => Ended::Cuda(code),
            CudaError::Store(error) => Ended::Other(error.to_string()),
        }
    }
}

/// Like a launcher with one process for each part of the work.
fn several(arguments: &Arguments) -> ExitCode {
    let mut words: Vec<String> = Vec::new();
    words.extend(arguments.allocate_mib.iter().map(|mib| format!("--allocate-mib={mib}")));
    words.extend(arguments.busy.map(|percent| format!("--busy={percent}")));
    words.extend(arguments.fault.then(|| "--fault".to_owned()));
    words.extend(arguments.hold.then(|| "--hold".to_owned()));
    words.extend(arguments.linger.then(|| "--linger".to_owned()));
    let start = || Command::new(std::env::current_exe()?).args(&words).stdin(Stdio::null()).spawn();
    let mut is_well = true;
    let started: Vec<_> = (0..arguments.processes).map(|_| start()).collect();
    for process in started {
        match process.and_then(|mut process| process.wait()) {
            Ok(status) => is_well &= status.success(),
            Err(error) => {
                eprintln!("cuda-sample: {error}");
                is_well = false;
            }
        }
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(arguments: &Arguments) -> Result<(), Ended> {
    let mut context = initialise(arguments.device)?;
    match use_context(arguments, &mut context) {
        Err(Ended::Cuda(code)) if arguments.linger => {
            println!("{}", json!({"error": error_name(code), "code": code}));
            // The context is dropped with the process.
            loop {
                std::thread::park();
            }
        }
        result => result,
    }
}

fn use_context(arguments: &Arguments, context: &mut Context) -> Result<(), Ended> {
    for mib in &arguments.allocate_mib {
        let held = context.allocate(mib << 20)?;
        println!("{}", json!({"holdsMiB": held >> 20}));
    }
    if let Some(percent) = arguments.busy {
        context.keep_busy(percent)?;
        println!("{}", json!({"busyPercent": percent}));
    }
    if arguments.fault {
        return Err(context.fault());
    }
    if arguments.orders {
        return context.take_orders(&orders());
    }
    if arguments.hold {
        loop {
            context.stay(Duration::from_secs(3600))?;
        }
    }
    Ok(())
}

/// The state of a program after its first calls.
pub(super) struct Connected {
    pub device: Device,
    pub context: Context,
}

fn initialise(number: usize) -> Result<Context, Ended> {
    let connected = connect(number)?;
    connected.tell();
    Ok(connected.context)
}

/// `cuInit` and the first context, on the device of this number.
pub(super) fn connect(number: usize) -> Result<Connected, Ended> {
    let store = machine::find().map_err(Ended::Other)?;
    let machine = store.machine().map_err(|error| Ended::Other(error.to_string()))?;
    let state = store.state().map_err(|error| Ended::Other(error.to_string()))?;
    let devices = device::granted(&machine, device::all(&machine, &state));
    let variable = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let devices = device::visible(devices, variable.as_deref());
    let first = devices.first().ok_or(Ended::Cuda(NO_DEVICE))?;
    let Some(daemon) = daemon() else {
        let device = devices.get(number).ok_or(Ended::Cuda(INVALID_DEVICE))?;
        let direct = Direct::new(&store, device)?;
        return Ok(Connected { device: device.clone(), context: Context::Direct(direct) });
    };
    let client = Client::connect(daemon, number, &first.uuid).map_err(Ended::Cuda)?;
    // A client of a daemon uses the daemon's devices.
    let all = device::all(&machine, &state);
    let device = all.iter().find(|device| device.uuid == client.uuid).unwrap_or(first);
    Ok(Connected { device: device.clone(), context: Context::Mps(client) })
}

impl Connected {
    fn client(&self) -> Option<&Client> {
        match &self.context {
            Context::Mps(client) => Some(client),
            Context::Direct(_) => None,
        }
    }

    /// Memory limit in bytes, if any.
    pub(super) fn memory_limit(&self) -> Option<u64> {
        self.client().and_then(|client| client.memory_limit)
    }

    fn percentage(&self) -> f64 {
        self.client().map_or(100.0, |client| client.percentage)
    }

    /// Share of the multiprocessors, if limited; CUDA rounds to whole ones.
    pub(super) fn multiprocessors(&self) -> Option<u32> {
        let own = self.client().and_then(|client| client.multiprocessors);
        let part = |count| (f64::from(count) * self.percentage() / 100.0).ceil() as u32;
        own.or(self.device.multiprocessors.map(part))
    }

    fn tell(&self) {
        println!(
            "{}",
            json!({
                "device": self.device.uuid, "mpsServer": self.client().map(|client| client.server),
                "memoryLimitMiB": self.memory_limit().map(|limit| limit >> 20),
                "activeThreadPercentage": self.percentage(), "multiprocessors": self.multiprocessors(),
            })
        );
    }
}

fn orders() -> Receiver<String> {
    let (sender, orders) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    orders
}

impl Context {
    /// Allocates more bytes. Returns the bytes held afterwards.
    pub(super) fn allocate(&mut self, bytes: u64) -> Result<u64, Ended> {
        match self {
            Context::Mps(client) => client.ask(&ToServer::Allocate(bytes)).map_err(|failed| match failed {
                Failed::Call(code) | Failed::Context(code) => Ended::Cuda(code),
            }),
            Context::Direct(direct) => {
                direct.hold(direct.held().saturating_add(bytes))?;
                Ok(direct.held())
            }
        }
    }

    /// Frees everything.
    pub(super) fn free(&mut self) -> Result<u64, Ended> {
        match self {
            Context::Mps(client) => client.ask(&ToServer::Free).map_err(|failed| match failed {
                Failed::Call(code) | Failed::Context(code) => Ended::Cuda(code),
            }),
            Context::Direct(direct) => {
                direct.hold(0)?;
                Ok(0)
            }
        }
    }

    /// Runs kernels for this percentage of the time.
    fn keep_busy(&mut self, percent: u32) -> Result<(), Ended> {
        match self {
            Context::Mps(client) => match client.ask(&ToServer::Busy(percent)) {
                Ok(_) => Ok(()),
                Err(Failed::Call(code) | Failed::Context(code)) => Err(Ended::Cuda(code)),
            },
            Context::Direct(direct) => {
                direct.keep_busy(percent).map_err(|error| Ended::Other(error.to_string()))
            }
        }
    }

    fn fault(&mut self) -> Ended {
        match self {
            Context::Mps(client) => match client.ask(&ToServer::Fault) {
                Err(Failed::Call(code) | Failed::Context(code)) => Ended::Cuda(code),
                Ok(_) => Ended::Cuda(LAUNCH_FAILED),
            },
            Context::Direct(_) => Ended::Cuda(LAUNCH_FAILED),
        }
    }

    /// Waits; an error when the context is lost meanwhile.
    fn stay(&self, time: Duration) -> Result<(), Ended> {
        match self {
            Context::Mps(client) => client.lost(time).map_or(Ok(()), |code| Err(Ended::Cuda(code))),
            Context::Direct(_) => {
                std::thread::sleep(time);
                Ok(())
            }
        }
    }

    /// Failed allocations are reported and do not end the program: a real one may continue, too.
    fn take_orders(&mut self, orders: &Receiver<String>) -> Result<(), Ended> {
        const LOOK: Duration = Duration::from_millis(10);
        let (mut lingers, mut has_lost) = (false, false);
        loop {
            let order = match orders.recv_timeout(LOOK) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => {
                    if let Context::Mps(client) = self
                        && !has_lost
                        && let Some(code) = client.lost(Duration::from_millis(1))
                    {
                        if !lingers {
                            return Err(Ended::Cuda(code));
                        }
                        has_lost = true;
                        println!("{}", json!({"error": error_name(code), "code": code}));
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let mut words = order.split_whitespace();
            let result = match (words.next(), words.next().and_then(|word| word.parse::<u32>().ok())) {
                (Some("allocate"), Some(mib)) => self.allocate(u64::from(mib) << 20),
                (Some("free"), None) => self.free(),
                (Some("busy"), Some(percent @ 0..=100)) => {
                    self.keep_busy(percent)?;
                    println!("{}", json!({"busyPercent": percent}));
                    continue;
                }
                (Some("fault"), None) => return Err(self.fault()),
                (Some("linger"), None) => {
                    lingers = true;
                    println!("{}", json!({"lingers": true}));
                    continue;
                }
                (Some("exit"), None) => return Ok(()),
                _ => return Err(Ended::Other(format!("no such order: {order}"))),
            };
            match result {
                Ok(held) => println!("{}", json!({"holdsMiB": held >> 20})),
                Err(Ended::Cuda(code)) if code == crate::mps::OUT_OF_MEMORY => {
                    println!("{}", json!({"error": error_name(code), "code": code}));
                }
                Err(ended) => return Err(ended),
            }
        }
    }
}
