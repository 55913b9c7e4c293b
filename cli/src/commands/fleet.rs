//! `kubectl gpu fleet`: the fleet page on a port of this machine.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::api_server::{FleetPort, block_on, connect};
use crate::arguments::FleetArguments;
use crate::output::{self, CommandError, Verdict};

/// Runs the command until it is ended.
///
/// # Errors
/// The cluster cannot be reached, nobody leads, or the port is taken.
pub fn run(arguments: &FleetArguments) -> Result<Verdict, CommandError> {
    block_on(async {
        let (client, _) = connect(&arguments.connection, None).await?;
        let fleet = Arc::new(FleetPort::find(client).await??);
        // Told at once if it cannot be forwarded, and not at the browser's first request.
        drop(fleet.connect().await?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port)).await.map_err(|error| {
            CommandError::Asked(format!("port {}: {error}; choose another with --port", arguments.port))
        })?;
        let address = listener.local_addr()?;
        output::print(&format!(
            "fleet page of {}: http://localhost:{}/ (Ctrl-C ends)\n",
            fleet.pod,
            address.port()
        ))?;
        loop {
            let (mut socket, _) = listener.accept().await?;
            let fleet = fleet.clone();
            tokio::spawn(async move {
                match fleet.connect().await {
                    // Either side may end it whenever it likes.
                    Ok(mut page) => drop(tokio::io::copy_bidirectional(&mut socket, &mut page).await),
                    Err(error) => drop(writeln!(std::io::stderr(), "error: {error}")),
                }
            });
        }
    })
}
