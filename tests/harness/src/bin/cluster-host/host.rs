//! Serves the harness's requests inside a machine. Single-threaded: the kernel sends a child its death signal when its
//! parent *thread* ends.

use std::{
    cell::Cell,
    fs,
    os::fd::AsFd,
    process::{ExitCode, Stdio},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::{
        prctl,
        signal::{Signal, kill},
    },
    unistd::Pid,
};
use tessera_harness::host::{Channel, CommandLine, HostConfiguration, Request, Response, Target};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{TcpStream, UnixListener, UnixStream},
    process::Command,
    signal::unix::{SignalKind, signal},
    sync::Notify,
    task::{LocalSet, spawn_local},
    time::timeout,
};

use crate::{forward, network, processes::Processes};

/// Longest request in bytes, including a program's standard input.
const REQUEST_LIMIT: u64 = 64 * 1024 * 1024;

struct Host {
    processes: Processes,
    network: Option<rtnetlink::Handle>,
    shutdown: Notify,
    ending: Cell<bool>,
}

pub fn main(configuration: HostConfiguration) -> Result<ExitCode> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(configuration))
}

async fn serve(configuration: HostConfiguration) -> Result<ExitCode> {
    let network = if configuration.isolated { Some(network::connect()?) } else { None };
    if let Some(handle) = &network {
        network::bring_up_loopback(handle).await?;
    }
    if let Some(target) = configuration.forward {
        let listener =
            std::io::stdin().as_fd().try_clone_to_owned().context("no listener on standard input")?;
        spawn_local(forward::accept(listener, target));
    }
    // A restarted machine finds its old socket.
    let _ = fs::remove_file(&configuration.socket);
    let listener = UnixListener::bind(&configuration.socket)
        .with_context(|| format!("cannot listen on {}", configuration.socket.display()))?;
    let host = Rc::new(Host {
        processes: Processes::default(),
        network,
        shutdown: Notify::new(),
        ending: Cell::new(false),
    });
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.context("accept")?;
                let host = host.clone();
                spawn_local(async move {
                    if let Err(error) = host.answer(stream).await {
                        eprintln!("cluster-host: {error:#}");
                    }
                });
            }
            () = host.shutdown.notified() => break,
            _ = terminate.recv() => break,
        }
    }
    host.ending.set(true);
    host.processes.kill_all().await;
    Ok(ExitCode::SUCCESS)
}

impl Host {
    async fn answer(&self, stream: UnixStream) -> Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        (&mut stream).take(REQUEST_LIMIT).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Ok(());
        }
        let request: Request = serde_json::from_slice(&line).context("cannot read a request")?;
        if let Request::Dial { channel } = request {
            return self.dial(channel, stream).await;
        }
        let response = match self.perform(request).await {
            Ok(response) => response,
            Err(error) => Response::Failed { message: format!("{error:#}") },
        };
        reply(&mut stream, &response).await
    }

    async fn perform(&self, request: Request) -> Result<Response> {
        match request {
            Request::Spawn { name, command, log } => {
                if self.ending.get() {
                    bail!("the cluster is ending");
                }
                Ok(Response::Spawned { process: self.processes.spawn(name, &command, &log)? })
            }
            Request::Signal { target, signal } => {
                let signal = Signal::try_from(signal).context("no such signal")?;
                let process = match target {
                    Target::Process(process) => process,
                    Target::Name(name) => self.processes.running(&name)?,
                };
                kill(Pid::from_raw(process), signal)
                    .with_context(|| format!("cannot send {signal} to process {process}"))?;
                Ok(Response::Done)
            }
            Request::Stop { name, grace_ms } => {
                Ok(Response::Ended(self.processes.stop(&name, Duration::from_millis(grace_ms)).await?))
            }
            Request::Wait { name } => Ok(Response::Ended(self.processes.wait(&name).await?)),
            Request::Processes => Ok(Response::Processes { processes: self.processes.list() }),
            Request::Run { command, input, timeout_ms } => {
                run(&command, input, Duration::from_millis(timeout_ms)).await
            }
            Request::Network(configuration) => {
                let handle = self.network.as_ref().context("this cluster has no network of its own")?;
                network::set_up(handle, &configuration).await?;
                Ok(Response::Done)
            }
            Request::Shutdown => {
                self.shutdown.notify_one();
                Ok(Response::Done)
            }
            Request::Dial { .. } => bail!("handled before"),
        }
    }

    async fn dial(&self, channel: Channel, mut stream: BufReader<UnixStream>) -> Result<()> {
        let failed = |what: String, error: std::io::Error| Response::Failed {
            message: format!("cannot connect to {what}: {error}"),
        };
        match channel {
            Channel::Tcp(address) => match TcpStream::connect(&address).await {
                Ok(mut other) => {
                    reply(&mut stream, &Response::Done).await?;
                    let _ = copy_bidirectional(&mut stream, &mut other).await;
                }
                Err(error) => reply(&mut stream, &failed(address, error)).await?,
            },
            Channel::Unix(path) => match UnixStream::connect(&path).await {
                Ok(mut other) => {
                    reply(&mut stream, &Response::Done).await?;
                    let _ = copy_bidirectional(&mut stream, &mut other).await;
                }
                Err(error) => reply(&mut stream, &failed(path.display().to_string(), error)).await?,
            },
        }
        Ok(())
    }
}

async fn reply(stream: &mut BufReader<UnixStream>, response: &Response) -> Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await?;
    Ok(())
}

async fn run(command: &CommandLine, input: Option<String>, limit: Duration) -> Result<Response> {
    let (program, arguments) = command.arguments.split_first().context("no program to run")?;
    let mut child = Command::new(program)
        .args(arguments)
        .envs(&command.environment)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        spawn_local(async move {
            let _ = stdin.write_all(input.as_bytes()).await;
        });
    }
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        bail!("no output to read")
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let work = async {
        let (_, _, status) =
            tokio::join!(out.read_to_end(&mut stdout), err.read_to_end(&mut stderr), child.wait());
        status
    };
    let exit = match timeout(limit, work).await {
        Ok(status) => Some(crate::processes::exit(status?)),
        Err(_) => None,
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Response::Output { exit, stdout: text(stdout), stderr: text(stderr) })
}
