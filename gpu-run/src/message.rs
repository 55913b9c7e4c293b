//! Messages between `srun` and hosts.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, de::Error as _};

use crate::channel::{ChannelError, Receiver, Sender};

/// Any bytes, such as a file's name. In JSON each byte is the character of its number: text stays short.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(pub Vec<u8>);

/// A client's first message.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// The host of this index asks index 0 to be told the job's end.
    Member(usize),
    /// Tasks to start.
    Step(Step),
}

/// The tasks of a step on one host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Step {
    /// Program and arguments; at least one.
    pub command: Vec<Text>,
    pub directory: Text,
    /// Changes to the host's environment, in order; `None` removes.
    pub environment: Vec<(Text, Option<Text>)>,
    pub tasks: Vec<Task>,
    /// Output is sent at once, not line by line.
    pub unbuffered: bool,
}

/// One process of a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// Number in the step: SLURM_PROCID.
    pub number: u32,
    pub environment: Vec<(String, String)>,
    /// The only GPUs to see: the first of them, and how many.
    pub gpus: Option<(u32, u32)>,
    /// Whether srun's input reaches the task; otherwise there is nothing to read.
    pub input: bool,
}

/// From `srun`, besides input.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToHost {
    /// A signal for the process groups of all tasks.
    Signal(i32),
}

/// From a host, besides output.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromHost {
    /// Only to be heard.
    Alive,
    /// A task took the last input; more may be sent.
    InputTaken(u32),
    /// A task's input is closed and takes no more.
    InputClosed(u32),
    /// For standard error.
    Note(String),
    /// A task ended, after all its output.
    Ended(u32, Ending),
    /// To members: the job's command has ended, and they end with this exit code.
    JobEnded(u8),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    Code(u8),
    Signal(i32),
}

/// One of a task's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Input,
    Output,
    Error,
}

/// A message, or bytes of a task's stream.
#[derive(Debug)]
pub enum Frame<T> {
    Control(T),
    /// No bytes: the input's end.
    Data(u32, Stream, Vec<u8>),
}

impl Ending {
    /// The exit code in a shell.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + u8::try_from(signal).unwrap_or(0),
        }
    }
}

impl From<&OsStr> for Text {
    fn from(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<Text> for OsString {
    fn from(text: Text) -> Self {
        Self::from_vec(text.0)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.iter().copied().map(char::from).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = text.chars().map(u8::try_from).collect::<Result<_, _>>();
        Ok(Self(bytes.map_err(|_| D::Error::custom("a character that stands for no byte"))?))
    }
}

/// Sends a message.
pub fn send<T: Serialize>(sender: &Mutex<Sender>, message: &T) -> Result<(), ChannelError> {
    let mut frame = vec![0];
    serde_json::to_writer(&mut frame, message).map_err(std::io::Error::from)?;
    sender.lock().unwrap_or_else(PoisonError::into_inner).send(&frame)
}

/// Sends bytes of a stream.
pub fn send_data(
    sender: &Mutex<Sender>,
    task: u32,
    stream: Stream,
    bytes: &[u8],
) -> Result<(), ChannelError> {
    let kind = match stream {
        Stream::Input => 1,
        Stream::Output => 2,
        Stream::Error => 3,
    };
    let frame = [&[kind], &task.to_be_bytes()[..], bytes].concat();
    sender.lock().unwrap_or_else(PoisonError::into_inner).send(&frame)
}

/// The next message; `None` after the last.
pub fn receive<T: DeserializeOwned>(receiver: &mut Receiver) -> Result<Option<Frame<T>>> {
    let Some(frame) = receiver.receive()? else { return Ok(None) };
    let (kind, rest) = frame.split_first().context("an empty message")?;
    let stream = match kind {
        0 => return Ok(Some(Frame::Control(serde_json::from_slice(rest).context("an unknown message")?))),
        1 => Stream::Input,
        2 => Stream::Output,
        3 => Stream::Error,
        _ => anyhow::bail!("a message of unknown kind {kind}"),
    };
    let (task, bytes) = rest.split_first_chunk().context("a short message")?;
    Ok(Some(Frame::Data(u32::from_be_bytes(*task), stream, bytes.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_travel() {
        let all = Text((0..=255).collect());
        let json = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), all);
        assert_eq!(serde_json::to_string(&Text(b"train.py".to_vec())).unwrap(), "\"train.py\"");
        assert!(serde_json::from_str::<Text>("\"\u{20ac}\"").is_err());
    }

    #[test]
    fn endings_have_the_codes_of_a_shell() {
        assert_eq!(Ending::Code(3).code(), 3);
        assert_eq!(Ending::Signal(9).code(), 137);
    }
}
