//! `gpu-run host`: a pod's main process.

mod members;
mod server;
mod step;

pub use members::SILENCE;
pub use server::Server;

use std::{
    env,
    ffi::OsString,
    net::TcpListener,
    path::Path,
    process::Command,
    sync::{Arc, mpsc},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;

use crate::{
    channel::Key,
    environment,
    job::{self, DISRUPTED, Job},
    layout::{Wanted, lay_out},
    message::Ending,
    process::{self, Reaper, signal_group},
};

pub fn main(arguments: Vec<OsString>) -> Result<u8> {
    let mut arguments = arguments.into_iter();
    let (Some(dashes), Some(program)) = (arguments.next(), arguments.next()) else {
        bail!("a command is needed: gpu-run host -- COMMAND…");
    };
    if dashes != "--" {
        bail!("the command follows --: gpu-run host -- COMMAND…");
    }
    let mut job = Job::from_environment()?;
    process::block_signals().context("cannot block signals")?;
    // A subreaper gets the orphans even where another process is number 1.
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a reaper")?;
    let mut command = process::command(&program);
    command.args(arguments);
    let listener =
        if job.key.is_some() { listen(job.own().port)? } else { listen_alone(&mut job, &mut command)? };
    let server = Arc::new(Server::new(job, Reaper::default()));
    let serving = server.clone();
    thread::spawn(move || serving.serve(&listener));
    if server.job.index == 0 { lead(&server, &mut command) } else { follow(&server) }
}

/// Runs the job's command.
fn lead(server: &Arc<Server>, command: &mut Command) -> Result<u8> {
    let started = Instant::now();
    let layout = lay_out(&Wanted::default(), &server.job)?;
    command.envs(own_variables()).envs(environment::of_command(&server.job, &layout));
    let process = server.reaper.start(command).context("cannot start the command")?;
    let group = process.id;
    let forwarding = server.clone();
    thread::spawn(move || {
        process::for_each_signal(&forwarding.reaper, |signal| {
            // First: the command may end at once.
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
                forwarding.members.hurry();
            }
            signal_group(group, signal);
        });
    });
    // The reaper answers once for each process.
    let ending = process.ended.recv().unwrap_or(Ending::Code(1));
    let terminated = server.members.hurried();
    // For processes left in the background: an srun ends its tasks.
    signal_group(group, Signal::SIGTERM);
    server.members.end(if ending.code() == 0 && !terminated { 0 } else { DISRUPTED });
    server.groups.end_all(server.job.kill_wait);
    signal_group(group, Signal::SIGKILL);
    let lost = server.members.wait_until_told(started + server.job.wait, server.job.kill_wait);
    Ok(match ending.code() {
        // A script that saves and exits with 0 when its pod is evicted is not done.
        0 if terminated => Ending::Signal(Signal::SIGTERM as i32).code(),
        0 => 0,
        _ if lost && !terminated => DISRUPTED,
        // The script's own failure: not ignored.
        DISRUPTED if server.job.hosts.len() > 1 => 1,
        code => code,
    })
}

/// Serves steps until the job's command has ended.
fn follow(server: &Arc<Server>) -> Result<u8> {
    let (sender, ended) = mpsc::channel();
    let of_signals = sender.clone();
    let reaping = server.clone();
    thread::spawn(move || {
        process::for_each_signal(&reaping.reaper, |signal| {
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT) {
                let _ = of_signals.send(Ending::Signal(signal as i32).code());
                // Before any task ends: index 0 knows the cause when the step fails.
                reaping.members.leave();
            }
        });
    });
    let member = server.clone();
    thread::spawn(move || {
        // Fails if a signal has ended this process.
        let _ = sender.send(member.members.follow(&member.job));
    });
    // The thread of signals has the other sender and never ends.
    let code = ended.recv().context("no thread is left")?;
    server.groups.end_all(server.job.kill_wait);
    Ok(code)
}

/// For all processes of this pod: `srun` in the PATH, and where the pod's own environment is found.
pub fn own_variables() -> Vec<(OsString, OsString)> {
    let mut path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    if let Ok(program) = env::current_exe()
        && let Some(folder) = program.parent()
        && folder.join("srun").exists()
        && !env::split_paths(&path).any(|known| known == Path::new(folder))
    {
        path = [folder.as_os_str(), &path].join(std::ffi::OsStr::new(":"));
    }
    vec![("PATH".into(), path), (environment::HOST_PROCESS.into(), std::process::id().to_string().into())]
}

/// For a pod alone, without a key: a port and a key for the command's `srun`, so that its steps know of each other's GPUs.
fn listen_alone(job: &mut Job, command: &mut Command) -> Result<TcpListener> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen on the loopback address")?;
    job.hosts[0].port = listener.local_addr()?.port();
    let (key, secret) = Key::random()?;
    job.key = Some(key);
    command.env(job::KEY, secret).env(job::PORT, job.hosts[0].port.to_string());
    Ok(listener)
}

fn listen(port: u16) -> Result<TcpListener> {
    // Of both families; a machine may have only one.
    TcpListener::bind(("::", port))
        .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
        .with_context(|| format!("cannot listen on port {port}"))
}
