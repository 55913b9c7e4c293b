//! `srun`: runs a command in the job's pods.

pub mod connect;
mod input;
mod options;
mod output;
mod tasks;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    net::TcpListener,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use self::{
    input::{Input, Source},
    options::Options,
    output::Output,
    tasks::{Event, Tasks},
};
use crate::{
    channel::{Channel, Key, Receiver},
    environment,
    host::{SILENCE, Server},
    job::Job,
    layout::{Layout, lay_out},
    message::{self, Frame, FromHost, Request, Step, Task, Text, ToHost},
    process::{self, Reaper},
};

/// GPUs of a node at most, where the number is unknown. Of MIG devices a node has fewer; a mistyped number is larger.
const MOST_GPUS: u32 = 1_024;

pub fn main(arguments: Vec<OsString>) -> Result<u8> {
    let options = Options::read(arguments);
    let mut job = Job::from_environment()?;
    job.cpus_per_task = options.cpus_per_task.or(job.cpus_per_task);
    job.gpus_per_task = options.gpus_per_task.or(job.gpus_per_task);
    job.distribution = options.distribution.unwrap_or(job.distribution);
    let layout = lay_out(&options.wanted(), &job)?;
    let source = Source::parse(&options.input, layout.tasks.iter().sum())?;
    let output = Arc::new(Output::new(&options, &job, &layout)?);
    let steps = steps(&options, &source, &job, &layout)?;
    process::block_signals().context("cannot block signals")?;
    let listener = if job.key.is_none() { Some(listen_alone(&mut job)?) } else { None };
    let server = Arc::new(Server::new(job.clone(), Reaper::default()));
    if let Some(listener) = listener {
        let server = server.clone();
        thread::spawn(move || server.serve(&listener));
    }
    let (events, happened) = mpsc::channel();
    let of_signals = events.clone();
    thread::spawn(move || {
        process::for_each_signal(&server.reaper, |signal| {
            let _ = of_signals.send(Event::Signal(signal));
        });
    });
    let mut hosts = Vec::new();
    let mut receivers = Vec::new();
    for (sender, receiver) in connect_all(&job, &layout, &happened)? {
        receiver.silence_allowed(Some(SILENCE))?;
        hosts.push(Arc::new(Mutex::new(sender)));
        receivers.push(receiver);
    }
    for (host, step) in hosts.iter().zip(steps) {
        message::send(host, &Request::Step(step))?;
    }
    let input = Arc::new(Input::new(source, &layout, &hosts));
    for (place, receiver) in receivers.into_iter().enumerate() {
        let (events, input, output) = (events.clone(), input.clone(), output.clone());
        thread::spawn(move || listen(place, receiver, &input, &output, &events));
    }
    thread::spawn(move || input.pump());
    let signal = |signal: Signal| {
        for host in &hosts {
            // A failure is a lost host, told by its receiver.
            let _ = message::send(host, &ToHost::Signal(signal as i32));
        }
    };
    let names = layout.hosts.iter().map(|host| job.hosts[*host].name.clone()).collect();
    let tasks = Tasks::new(names, layout.of_tasks(), &options, job.kill_wait);
    Ok(tasks.run(&happened, &signal))
}

/// Without a pod's main process this one is the host, too.
fn listen_alone(job: &mut Job) -> Result<TcpListener> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen on the loopback address")?;
    job.hosts[0].port = listener.local_addr()?.port();
    job.key = Some(Key::random()?.0);
    Ok(listener)
}

/// The part of each host.
fn steps(options: &Options, source: &Source, job: &Job, layout: &Layout) -> Result<Vec<Step>> {
    let caller: BTreeMap<OsString, OsString> = env::vars_os().collect();
    let changes = environment::changes(&options.export, &caller, &environment::given());
    let directory = env::current_dir().context("the current directory does not exist")?;
    let directory = options.chdir.as_ref().map_or(directory.clone(), |other| directory.join(other));
    let (gpus, most) = (job.gpus_per_task.unwrap_or(0), layout.tasks.iter().max().copied().unwrap_or(0));
    let there = job.gpus_on_node.unwrap_or(MOST_GPUS).min(MOST_GPUS);
    if u64::from(gpus) * u64::from(most) > u64::from(there) {
        anyhow::bail!("{most} tasks with {gpus} GPUs each are more than a node's {there}");
    }
    let hosts = layout.tasks.iter().enumerate().map(|(host, tasks)| {
        let tasks = (0..*tasks).map(|local| {
            let number = layout.number(host, local);
            Task {
                number,
                environment: environment::of_task(job, layout, host, local, &caller),
                gpus: job.gpus_per_task.map(|gpus| (local * gpus, gpus)),
                input: source.reaches(number),
            }
        });
        Step {
            command: options.command.iter().map(|word| Text::from(word.as_os_str())).collect(),
            directory: Text::from(directory.as_os_str()),
            environment: changes.clone(),
            tasks: tasks.collect(),
            unbuffered: options.unbuffered,
        }
    });
    Ok(hosts.collect())
}

/// Connections to all hosts of a step, before anything is started. A signal ends the wait for them.
fn connect_all(job: &Job, layout: &Layout, happened: &mpsc::Receiver<Event>) -> Result<Vec<Channel>> {
    let (sender, connected) = mpsc::channel();
    for (place, host) in layout.hosts.iter().copied().enumerate() {
        let (job, sender) = (job.clone(), sender.clone());
        thread::spawn(move || drop(sender.send((place, connect::connect(&job, host, "srun")))));
    }
    let mut channels = BTreeMap::new();
    while channels.len() < layout.hosts.len() {
        match connected.recv_timeout(Duration::from_millis(200)) {
            Ok((place, channel)) => drop(channels.insert(place, channel?)),
            Err(_) => {
                while let Ok(event) = happened.try_recv() {
                    if let Event::Signal(signal @ (Signal::SIGTERM | Signal::SIGINT)) = event {
                        anyhow::bail!("ended by {signal} before all hosts were there");
                    }
                }
            }
        }
    }
    Ok(channels.into_values().collect())
}

/// Takes a host's messages.
fn listen(
    place: usize,
    mut receiver: Receiver,
    input: &Input,
    output: &Output,
    events: &mpsc::Sender<Event>,
) {
    let lost = loop {
        let event = match message::receive(&mut receiver) {
            Ok(Some(Frame::Control(FromHost::Ended(task, ending)))) => {
                input.closed(task);
                Event::Ended(task, ending)
            }
            Ok(Some(Frame::Control(FromHost::InputTaken(task)))) => {
                input.taken(task);
                continue;
            }
            Ok(Some(Frame::Control(FromHost::InputClosed(task)))) => {
                input.closed(task);
                continue;
            }
            Ok(Some(Frame::Control(FromHost::Note(note)))) => Event::Note(place, note),
            Ok(Some(Frame::Control(FromHost::Alive | FromHost::JobEnded(_)))) => continue,
            Ok(Some(Frame::Data(task, stream, bytes))) => match output.write(task, stream, &bytes) {
                Ok(()) => continue,
                Err(error) => Event::Output(error),
            },
            Ok(None) => break "it closed the connection".to_owned(),
            Err(error) => break format!("{error:#}"),
        };
        // Fails when srun ends.
        let _ = events.send(event);
    };
    let _ = events.send(Event::Lost(place, lost));
}
