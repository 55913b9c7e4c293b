//! A connection between two programs of one job: sealed with the job's key, so nobody without it can start anything,
//! read anything or put anything in between.
//!
//! Both sides send 32 random bytes. From them and the key each direction gets a key of its own (HKDF-SHA-256); messages are
//! sealed with ChaCha20-Poly1305, numbered from 0. The first message of each side is empty and proves the key.

use std::{
    io::{self, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
    rand::{SecureRandom as _, SystemRandom},
};
use thiserror::Error;

/// First bytes from a client, with the version of the protocol.
const PREFACE: &[u8; 8] = b"gpu-run1";
const RANDOM: usize = 32;

/// Longest message, in bytes: a command with its whole environment is at most 2 MiB (Linux's ARG_MAX).
const LONGEST: usize = 4 << 20;

/// For each read of an exchange of keys.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Why a connection cannot be used.
#[derive(Debug, Error)]
pub enum ChannelError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Of the other side, or of somebody in between.
    #[error("the other side does not have this job's key")]
    Key,
    #[error("the other side is no gpu-run of this version")]
    Preface,
    #[error("a message of {0} bytes is longer than {LONGEST}")]
    Long(usize),
}

/// The job's secret.
#[derive(Clone)]
pub struct Key(Vec<u8>);

/// The writing half.
pub struct Sender {
    stream: TcpStream,
    key: LessSafeKey,
    sent: u64,
}

/// The reading half.
pub struct Receiver {
    stream: BufReader<TcpStream>,
    key: LessSafeKey,
    received: u64,
}

/// Both halves of a connection.
pub type Channel = (Sender, Receiver);

impl Key {
    /// At least 16 bytes; `None` if there are fewer.
    pub fn new(secret: &[u8]) -> Option<Self> {
        let secret = secret.trim_ascii();
        (secret.len() >= 16).then(|| Self(secret.to_vec()))
    }

    /// A new key, and its secret as text.
    pub fn random() -> io::Result<(Self, String)> {
        let secret: String = random()?.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((Self(secret.clone().into_bytes()), secret))
    }

    fn direction(&self, salt: &[u8], direction: &'static [u8]) -> Result<LessSafeKey, ChannelError> {
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.0);
        let direction = [direction];
        let key = secret.expand(&direction, &CHACHA20_POLY1305).map_err(|_| ChannelError::Key)?;
        Ok(LessSafeKey::new(UnboundKey::from(key)))
    }
}

/// For the side with the connection's beginning. Afterwards the other side has proved the key.
pub fn connect(mut stream: TcpStream, key: &Key) -> Result<Channel, ChannelError> {
    prepare(&stream)?;
    let own = random()?;
    stream.write_all(&[&PREFACE[..], &own].concat())?;
    let mut other = [0; RANDOM];
    stream.read_exact(&mut other)?;
    let salt = [own, other].concat();
    let (to, from) = (key.direction(&salt, b"to the host")?, key.direction(&salt, b"from the host")?);
    let (mut sender, mut receiver) = halves(stream, to, from)?;
    receiver.receive_proof()?;
    sender.send(&[])?;
    receiver.silence_allowed(None)?;
    Ok((sender, receiver))
}

/// For the listening side. Afterwards the other side has proved the key.
pub fn accept(mut stream: TcpStream, key: &Key) -> Result<Channel, ChannelError> {
    prepare(&stream)?;
    let mut preface = [0; PREFACE.len() + RANDOM];
    stream.read_exact(&mut preface)?;
    let other = preface.strip_prefix(PREFACE).ok_or(ChannelError::Preface)?;
    let own = random()?;
    stream.write_all(&own)?;
    let salt = [other, &own].concat();
    let (to, from) = (key.direction(&salt, b"from the host")?, key.direction(&salt, b"to the host")?);
    let (mut sender, mut receiver) = halves(stream, to, from)?;
    sender.send(&[])?;
    receiver.receive_proof()?;
    receiver.silence_allowed(None)?;
    Ok((sender, receiver))
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE))
}

fn halves(stream: TcpStream, to: LessSafeKey, from: LessSafeKey) -> io::Result<Channel> {
    let reading = BufReader::with_capacity(128 << 10, stream.try_clone()?);
    Ok((Sender { stream, key: to, sent: 0 }, Receiver { stream: reading, key: from, received: 0 }))
}

fn random() -> io::Result<[u8; RANDOM]> {
    let mut bytes = [0; RANDOM];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(bytes)
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Sender {
    /// Waits while the other side does not read.
    pub fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        if message.len() > LONGEST {
            return Err(ChannelError::Long(message.len()));
        }
        // Below LONGEST and a tag: no truncation.
        let length = (message.len() + MAX_TAG_LEN) as u32;
        let mut frame = [&length.to_be_bytes()[..], message].concat();
        let tag = self.key.seal_in_place_separate_tag(nonce(self.sent), Aad::empty(), &mut frame[4..]);
        frame.extend_from_slice(tag.map_err(|_| ChannelError::Key)?.as_ref());
        self.sent += 1;
        Ok(self.stream.write_all(&frame)?)
    }

    /// As [`Receiver::close`].
    pub fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Receiver {
    /// The next message; `None` after the last.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, ChannelError> {
        self.receive_at_most(LONGEST)
    }

    /// Ends the connection for both halves and the other side, also during a message.
    pub fn close(&self) {
        // Fails if the connection has ended already.
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
    }

    /// How long the other side may be silent before [`Receiver::receive`] fails.
    pub fn silence_allowed(&self, silence: Option<Duration>) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(silence)
    }

    fn receive_proof(&mut self) -> Result<(), ChannelError> {
        let proof = self.receive_at_most(0)?;
        proof.map(|_| ()).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof).into())
    }

    fn receive_at_most(&mut self, longest: usize) -> Result<Option<Vec<u8>>, ChannelError> {
        let mut length = [0; 4];
        match self.stream.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > longest + MAX_TAG_LEN {
            return Err(ChannelError::Long(length));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        let opened = self.key.open_in_place(nonce(self.received), Aad::empty(), &mut frame);
        let length = opened.map_err(|_| ChannelError::Key)?.len();
        self.received += 1;
        frame.truncate(length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// The result of each side of a connection, the client's first.
    fn meet(client: &Key, server: &Key) -> (Result<Channel, ChannelError>, Result<Channel, ChannelError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let accepted = scope.spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                accept(stream, server)
            });
            let connected = connect(TcpStream::connect(address).unwrap(), client);
            (connected, accepted.join().unwrap())
        })
    }

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let key = Key::new(b"sixteen bytes or more").unwrap();
        let (Ok((mut sender, mut receiver)), Ok((mut back, mut there))) = meet(&key, &key) else { panic!() };
        sender.send(b"first").unwrap();
        sender.send(&vec![7; 1 << 20]).unwrap();
        back.send(b"answer").unwrap();
        assert_eq!(there.receive().unwrap().unwrap(), b"first");
        assert_eq!(there.receive().unwrap().unwrap(), vec![7; 1 << 20]);
        assert_eq!(receiver.receive().unwrap().unwrap(), b"answer");
        assert!(matches!(sender.send(&vec![0; LONGEST + 1]), Err(ChannelError::Long(_))));
        receiver.close();
        assert!(there.receive().unwrap().is_none());
    }

    #[test]
    fn another_key_opens_nothing() {
        let ((own, _), (other, _)) = (Key::random().unwrap(), Key::random().unwrap());
        let (connected, accepted) = meet(&own, &other);
        assert!(matches!(connected, Err(ChannelError::Key)));
        assert!(accepted.is_err());
    }

    #[test]
    fn a_changed_or_repeated_message_is_refused() {
        let (key, _) = Key::random().unwrap();
        let (Ok((mut sender, _receiver)), Ok((_back, mut there))) = meet(&key, &key) else { panic!() };
        sender.send(b"once").unwrap();
        sender.sent -= 1;
        sender.send(b"once").unwrap();
        assert!(there.receive().is_ok());
        assert!(matches!(there.receive(), Err(ChannelError::Key)));
    }

    #[test]
    fn a_short_secret_is_none() {
        assert!(Key::new(b"  short\n").is_none());
    }
}
