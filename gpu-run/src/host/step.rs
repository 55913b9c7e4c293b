//! The tasks of a step on this host.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{ErrorKind, Read, Write as _},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use anyhow::{Result, ensure};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};

use super::{members::beat, own_variables, server::Server};
use crate::{
    channel::{Receiver, Sender},
    environment::{self, HOST_PROCESS},
    gpus,
    message::{self, Ending, Frame, FromHost, Step, Stream, Task, ToHost},
    process::{self, Process, signal_group},
};

/// Output is sent in pieces of at most this many bytes; a longer line in several.
const PIECE: usize = 64 << 10;

/// Milliseconds between looks for the end of a silent stream's task: a process left behind may hold the stream open.
const SILENT: u16 = 500;

/// Where the output and endings of a step go.
type Shared = Arc<Mutex<Sender>>;

/// Runs tasks until all have ended, or the connection to `srun` has: its tasks end with it.
pub fn run(server: &Server, number: u64, step: Step, sender: Sender, mut receiver: Receiver) -> Result<()> {
    ensure!(!step.command.is_empty(), "a step without a command");
    let sender: Shared = Arc::new(Mutex::new(sender));
    let directory = directory(&step, &sender);
    let wanted = step.tasks.iter().filter_map(|task| Some(task.gpus?.0 + task.gpus?.1)).max().unwrap_or(0);
    let devices = if wanted == 0 {
        Vec::new()
    } else {
        gpus::devices(&server.reaper, wanted.max(server.job.gpus_on_node.unwrap_or(0)))
    };
    let taken = server.gpus.take(&devices, wanted as usize);
    let mut inputs = BTreeMap::new();
    let mut groups = Vec::new();
    thread::scope(|scope| {
        for task in &step.tasks {
            let mut command = command(&step, task, &directory, &taken.devices);
            let mut process = match server.reaper.start(&mut command) {
                Ok(process) => process,
                Err(error) => {
                    // A failure to send is srun's end, seen below.
                    let note = format!("cannot start task {}: {error}", task.number);
                    let _ = message::send(&sender, &FromHost::Note(note));
                    let _ = message::send(&sender, &FromHost::Ended(task.number, Ending::Code(1)));
                    continue;
                }
            };
            server.groups.add(process.id, number);
            groups.push(process.id);
            if let Some(stdin) = process.child.stdin.take() {
                inputs.insert(task.number, feed(task.number, stdin, sender.clone()));
            }
            let (sender, unbuffered, task) = (&sender, step.unbuffered, task.number);
            scope.spawn(move || watch(server, task, process, sender, unbuffered));
        }
        let beating = beat(sender.clone());
        listen(server, number, &mut receiver, &inputs);
        receiver.close();
        server.groups.end_step(number, server.job.kill_wait);
        drop(beating);
        // For processes left behind in the tasks' groups; their output has nowhere to go.
        for group in groups {
            signal_group(group, Signal::SIGKILL);
        }
    });
    Ok(())
}

/// Takes srun's messages, until the connection is closed.
fn listen(
    server: &Server,
    number: u64,
    receiver: &mut Receiver,
    inputs: &BTreeMap<u32, mpsc::Sender<Vec<u8>>>,
) {
    // An unreadable message is the end as well: srun is lost.
    while let Ok(Some(frame)) = message::receive(receiver) {
        match frame {
            Frame::Control(ToHost::Signal(signal)) => {
                if let Ok(signal) = Signal::try_from(signal) {
                    server.groups.signal(number, signal);
                }
            }
            Frame::Data(task, _, bytes) => {
                if let Some(input) = inputs.get(&task) {
                    // Fails if the task's input is closed already.
                    let _ = input.send(bytes);
                }
            }
        }
    }
}

/// The caller's directory; like Slurm, /tmp where this host has none of the name.
fn directory(step: &Step, sender: &Shared) -> PathBuf {
    let wanted = PathBuf::from(OsString::from(step.directory.clone()));
    match std::fs::metadata(&wanted) {
        Ok(found) if found.is_dir() => wanted,
        _ => {
            let note = format!("there is no directory {}: going to /tmp instead", wanted.display());
            let _ = message::send(sender, &FromHost::Note(note));
            "/tmp".into()
        }
    }
}

fn command(step: &Step, task: &Task, directory: &Path, devices: &[String]) -> Command {
    let words = step.command.iter().cloned().map(OsString::from).collect::<Vec<_>>();
    let mut command = process::command(&words[0]);
    command.args(&words[1..]).current_dir(directory);
    // An srun serving itself has the environment of a script, not the pod's.
    let given = environment::given();
    if !given.is_empty() {
        command.env_clear().envs(given);
    }
    let own = own_variables();
    command.envs(own.iter().cloned());
    for (name, value) in &step.environment {
        let name = OsString::from(name.clone());
        // A name of no variable would end the process.
        if name.is_empty() || name.to_string_lossy().contains('=') {
            continue;
        }
        match value {
            Some(value) => command.env(name, OsString::from(value.clone())),
            None => command.env_remove(name),
        };
    }
    command.envs(own.into_iter().filter(|(name, _)| name == HOST_PROCESS));
    command.envs(task.environment.iter().map(|(name, value)| (name, value)));
    if let Some((first, count)) = task.gpus {
        command.env("CUDA_VISIBLE_DEVICES", gpus::share(devices, first, count));
    }
    command.stdin(if task.input { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Sends a task's output, then its ending.
fn watch(server: &Server, task: u32, mut process: Process, sender: &Shared, unbuffered: bool) {
    let ended = AtomicBool::new(false);
    let (out, err) = (process.child.stdout.take(), process.child.stderr.take());
    let ending = thread::scope(|scope| {
        let ended = &ended;
        if let Some(out) = out {
            scope.spawn(move || pass(out, task, Stream::Output, sender, unbuffered, ended));
        }
        if let Some(err) = err {
            scope.spawn(move || pass(err, task, Stream::Error, sender, unbuffered, ended));
        }
        // The reaper answers once for each process.
        let ending = process.ended.recv().unwrap_or(Ending::Code(1));
        ended.store(true, Ordering::Relaxed);
        ending
    });
    let _ = message::send(sender, &FromHost::Ended(task, ending));
    server.groups.remove(process.id);
}

/// Sends the content of a pipe: whole lines as long as they are short enough.
fn pass(
    mut pipe: impl Read + AsFd,
    task: u32,
    stream: Stream,
    sender: &Shared,
    unbuffered: bool,
    ended: &AtomicBool,
) {
    let mut buffer = vec![0; PIECE];
    let mut filled = 0;
    loop {
        let mut looked_at = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        // The end is read before: this look sees all output until then.
        let after = ended.load(Ordering::Relaxed);
        if poll(&mut looked_at, PollTimeout::from(SILENT)) == Ok(0) {
            if after {
                break;
            }
            continue;
        }
        match pipe.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        }
        // A line of progress ends with \r.
        let line = buffer[..filled].iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).map(|at| at + 1);
        let whole = match line {
            _ if unbuffered => filled,
            Some(line) => line,
            None if filled == PIECE => filled,
            None => 0,
        };
        if whole > 0 {
            // A failure is srun's end; the pipe is read on, and the task runs on until SIGTERM.
            let _ = message::send_data(sender, task, stream, &buffer[..whole]);
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
        }
    }
    if filled > 0 {
        let _ = message::send_data(sender, task, stream, &buffer[..filled]);
    }
}

/// A thread for a task's input. No bytes: the end.
fn feed(task: u32, mut stdin: ChildStdin, sender: Shared) -> mpsc::Sender<Vec<u8>> {
    let (input, pieces) = mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        for piece in pieces {
            // A closed input gets no more; srun does not wait for it.
            if piece.is_empty() || stdin.write_all(&piece).is_err() {
                break;
            }
            let _ = message::send(&sender, &FromHost::InputTaken(task));
        }
        drop(stdin);
        let _ = message::send(&sender, &FromHost::InputClosed(task));
    });
    input
}
