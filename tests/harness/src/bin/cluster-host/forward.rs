//! Forwards connections from the machine's loopback into the cluster: a listener made outside, accepted from inside.

use std::{net::TcpListener, os::fd::OwnedFd, time::Duration};

use tokio::{io::copy_bidirectional, net::TcpStream, task::spawn_local, time::sleep};

/// Forwards each connection to `target`. A connection without reachable target is closed, as if by a dead server.
pub async fn accept(listener: OwnedFd, target: String) {
    let listener = TcpListener::from(listener);
    let listener =
        match listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener)) {
            Ok(listener) => listener,
            Err(error) => {
                eprintln!("cluster-host: cannot use the inherited listener: {error}");
                return;
            }
        };
    loop {
        match listener.accept().await {
            Ok((mut outside, _)) => {
                let target = target.clone();
                spawn_local(async move {
                    if let Ok(mut inside) = TcpStream::connect(&target).await {
                        let _ = outside.set_nodelay(true);
                        let _ = inside.set_nodelay(true);
                        let _ = copy_bidirectional(&mut outside, &mut inside).await;
                    }
                });
            }
            // Out of file descriptors: passes when connections are closed.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}
