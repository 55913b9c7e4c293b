//! Serves the supervisor's socket.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, broadcast};
use tokio_stream::wrappers::UnixListenerStream;

use super::error::MpsError;
use super::protocol::{ErrorCode, Operation, Request, Response, VERSION};
use super::supervisor::Supervisor;
use super::wire::{read_line, write_line};
use tessera_kube_util::incoming;

/// Maximum number of connections: far more than the claims prepared at once on a node.
const CONNECTIONS: usize = 256;

/// How long a peer may take to read an answer or an event. A slower one is disconnected, so that nobody is blocked. The
/// peer can connect again and list the daemons.
const READING: Duration = Duration::from_secs(10);

/// How long a connection may be silent before being closed, so that idle ones block nobody. Clients connect for each
/// request.
const ASKING: Duration = Duration::from_secs(10);

/// Makes the socket, replacing the socket of a dead supervisor: the caller holds the directory's lock.
pub(super) fn listen(path: &Path) -> Result<UnixListener, MpsError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(MpsError::SocketTaken { path: path.to_owned(), source: error });
        }
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(MpsError::at(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(MpsError::at(path))?;
    Ok(listener)
}

/// Serves until dropped.
pub(super) async fn serve(supervisor: Arc<Supervisor>, listener: UnixListener) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let mut listener = UnixListenerStream::new(listener);
    // Connections above the limit wait in the socket's queue.
    while let Ok(connection) = connections.clone().acquire_owned().await
        && let Some(stream) = incoming::next(&mut listener).await
    {
        let supervisor = supervisor.clone();
        tokio::spawn(async move {
            let _connection = connection;
            if let Err(error) = talk(&supervisor, stream).await {
                tracing::debug!(%error, "a connection broke off");
            }
        });
    }
}

async fn talk(supervisor: &Arc<Supervisor>, stream: UnixStream) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    let (reader, mut writer) = stream.into_split();
    // The socket's mode is one guard already, but a directory may be mounted elsewhere with other permissions.
    if user != 0 && user != rustix::process::geteuid().as_raw() {
        let message = format!("user {user} may not: only root uses MPS daemons of the node");
        return tell(&mut writer, &Response::Error { code: ErrorCode::Forbidden, message }, READING).await;
    }
    let mut reader = BufReader::new(reader);
    while let Some(line) = tokio::time::timeout(ASKING, read_line(&mut reader)).await?? {
        match understand(&line) {
            Ok(Operation::Subscribe) => {
                let events = supervisor.events.subscribe();
                tell(&mut writer, &Response::Subscribed, READING).await?;
                return tokio::select! {
                    result = pass_on(events, &mut writer, READING) => result,
                    // A subscriber sends nothing more, so this is its end.
                    _ = read_line(&mut reader) => Ok(()),
                };
            }
            Ok(operation) => {
                let supervisor = supervisor.clone();
                // In a task of its own: if the client does not wait for the answer, the work must not stop half-way.
                let answer = tokio::spawn(async move { answer(&supervisor, operation).await }).await;
                let answer = answer.unwrap_or_else(|error| Response::Error {
                    code: ErrorCode::Failed,
                    message: format!("the work broke off: {error}"),
                });
                tell(&mut writer, &answer, READING).await?;
            }
            Err(message) => {
                let refused = Response::Error { code: ErrorCode::InvalidRequest, message };
                tell(&mut writer, &refused, READING).await?;
            }
        }
    }
    Ok(())
}

fn understand(line: &[u8]) -> Result<Operation, String> {
    match serde_json::from_slice::<Request>(line) {
        Ok(request) if request.version == VERSION => Ok(request.operation),
        Ok(request) => Err(format!("protocol version {}: this mps-host speaks {VERSION}", request.version)),
        Err(error) => Err(error.to_string()),
    }
}

async fn answer(supervisor: &Arc<Supervisor>, operation: Operation) -> Response {
    let result = match operation {
        Operation::Ensure(wanted) => {
            supervisor.ensure(wanted).await.map(|daemon| Response::Ready(Box::new(daemon)))
        }
        Operation::Release(order) => {
            supervisor.release(&order).await.map(|ended_clients| Response::Released { ended_clients })
        }
        Operation::List => Ok(Response::Daemons(supervisor.list())),
        Operation::Clients => Ok(Response::Clients(supervisor.clients_of_all().await)),
        Operation::Subscribe => Ok(Response::Subscribed),
    };
    result.unwrap_or_else(|error| {
        tracing::warn!(%error, "a request failed");
        Response::Error { code: error.code(), message: error.to_string() }
    })
}

async fn tell(
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
    response: &Response,
    patience: Duration,
) -> io::Result<()> {
    tokio::time::timeout(patience, write_line(writer, response)).await?
}

async fn pass_on(
    mut events: broadcast::Receiver<super::protocol::Event>,
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
    patience: Duration,
) -> io::Result<()> {
    loop {
        match events.recv().await {
            Ok(event) => tell(writer, &Response::Event(event), patience).await?,
            // The client connects again and lists the daemons.
            Err(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::protocol::{Event, EventKind};
    use super::*;

    #[test]
    fn deep_nesting_is_an_error_wherever_it_is() {
        let deep = "[".repeat(100_000);
        for line in [
            deep.clone(),
            format!("{{\"version\":1,\"operation\":{deep}"),
            format!("{{\"version\":1,\"operation\":\"list\",\"more\":{deep}"),
            "{\"a\":".repeat(50_000),
        ] {
            assert!(understand(line.as_bytes()).is_err());
        }
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over() {
        let line = json!({"version": 1, "operation": {"release": {
            "device": "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d", "graceSeconds": 5, "more": [{"deep": {}}],
        }}, "more": null});
        assert!(matches!(understand(line.to_string().as_bytes()), Ok(Operation::Release(_))));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_an_operation_or_a_message(line in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = understand(&line);
        }

        #[test]
        fn a_damaged_request_is_an_operation_or_a_message(at in 0_usize..200, byte in any::<u8>(), cut in 0_usize..200) {
            let wanted = json!({"version": 1, "operation": {"ensure": {
                "device": "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d", "card": "0000:3b:00.0",
                "settings": {"memoryLimitMib": 4096, "activeThreadPercentage": 50},
            }}});
            let mut line = wanted.to_string().into_bytes();
            let at = at % line.len();
            line[at] = byte;
            line.truncate(line.len() - cut % line.len());
            if let Err(message) = understand(&line) {
                prop_assert!(!message.is_empty() && message.len() < 4096);
            }
        }
    }

    #[tokio::test]
    async fn a_subscriber_that_does_not_read_is_left() {
        let events = broadcast::Sender::new(4);
        let subscriber = events.subscribe();
        let (mut writer, _reader) = tokio::io::duplex(64);
        let event = Event {
            device: "GPU-5e3a1b2c-0d4f-4a6b-8c7d-9e0f1a2b3c4d".parse().unwrap(),
            card: "0000:3b:00.0".parse().unwrap(),
            kind: EventKind::Restarted,
            id: None,
        };
        for _ in 0..100 {
            events.send(event.clone()).unwrap();
        }
        let patience = Duration::from_millis(50);
        // The subscriber lags, so has to connect again.
        assert!(pass_on(subscriber, &mut writer, patience).await.is_ok());
        let subscriber = events.subscribe();
        events.send(event).unwrap();
        let error = pass_on(subscriber, &mut writer, patience).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
