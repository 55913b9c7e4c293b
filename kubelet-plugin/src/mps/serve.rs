//! The supervisor's socket.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast;

use super::error::MpsError;
use super::protocol::{ErrorCode, Operation, Request, Response, VERSION};
use super::supervisor::Supervisor;
use super::wire::{read_line, write_line};

/// Makes the socket, over that of a dead supervisor: the caller holds the directory's lock.
pub(super) fn listen(path: &Path) -> Result<UnixListener, MpsError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(MpsError::at(path)(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(MpsError::at(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(MpsError::at(path))?;
    Ok(listener)
}

/// Serves until dropped.
pub(super) async fn serve(supervisor: Arc<Supervisor>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let supervisor = supervisor.clone();
                tokio::spawn(async move {
                    if let Err(error) = talk(&supervisor, stream).await {
                        tracing::debug!(%error, "a connection broke off");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn talk(supervisor: &Arc<Supervisor>, stream: UnixStream) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    let (reader, mut writer) = stream.into_split();
    // The socket's mode says the same; a directory may have been mounted elsewhere with other rights.
    if user != 0 && user != rustix::process::geteuid().as_raw() {
        let message = format!("user {user} may not: only root uses MPS daemons of the node");
        return write_line(&mut writer, &Response::Error { code: ErrorCode::Forbidden, message }).await;
    }
    let mut reader = BufReader::new(reader);
    while let Some(line) = read_line(&mut reader).await? {
        match understand(&line) {
            Ok(Operation::Subscribe) => {
                let events = supervisor.events.subscribe();
                write_line(&mut writer, &Response::Subscribed).await?;
                return tokio::select! {
                    result = pass_on(events, &mut writer) => result,
                    // Whoever subscribed says nothing more: this is its end.
                    _ = read_line(&mut reader) => Ok(()),
                };
            }
            Ok(operation) => {
                let supervisor = supervisor.clone();
                // A task of its own: that the other side does not wait for the answer is no reason to stop half-way.
                let answer = tokio::spawn(async move { answer(&supervisor, operation).await }).await;
                let answer = answer.unwrap_or_else(|error| Response::Error {
                    code: ErrorCode::Failed,
                    message: format!("the work broke off: {error}"),
                });
                write_line(&mut writer, &answer).await?;
            }
            Err(message) => {
                let refused = Response::Error { code: ErrorCode::InvalidRequest, message };
                write_line(&mut writer, &refused).await?;
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
        Operation::Ensure(wanted) => supervisor.ensure(wanted).await.map(Response::Ready),
        Operation::Release(order) => {
            supervisor.release(&order).await.map(|ended_clients| Response::Released { ended_clients })
        }
        Operation::List => Ok(Response::Daemons(supervisor.list())),
        Operation::Subscribe => Ok(Response::Subscribed),
    };
    result.unwrap_or_else(|error| {
        tracing::warn!(%error, "a request failed");
        Response::Error { code: error.code(), message: error.to_string() }
    })
}

async fn pass_on(
    mut events: broadcast::Receiver<super::protocol::Event>,
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
) -> io::Result<()> {
    loop {
        match events.recv().await {
            Ok(event) => write_line(writer, &Response::Event(event)).await?,
            // It connects again and asks how things are.
            Err(_) => return Ok(()),
        }
    }
}
