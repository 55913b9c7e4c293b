//! `kubectl gpu fleet`: the fleet page on a port of this machine.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::api_server::{FleetPort, ForwardError, block_on, connect};
use crate::arguments::FleetArguments;
use crate::output::{self, CommandError, Verdict, printable};

/// Interval between looks for the leader; immediate if the page is unreachable.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Pause between two tries to reach the page.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Timeout for a browser while the page is unreachable: a failed replica is replaced within 15 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// A controller with a fleet page.
trait Page: Send + Sync + 'static {
    /// Name of its pod.
    fn pod(&self) -> &str;

    /// A connection to the page.
    fn connect(&self) -> impl Future<Output = Result<Box<dyn Connection>, ForwardError>> + Send;
}

/// Bytes both ways.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<C: AsyncRead + AsyncWrite + Unpin + Send> Connection for C {}

impl Page for FleetPort {
    fn pod(&self) -> &str {
        &self.pod
    }

    async fn connect(&self) -> Result<Box<dyn Connection>, ForwardError> {
        Ok(Box::new(FleetPort::connect(self).await?))
    }
}

/// The page of the current leader.
struct Followed<P> {
    leader: watch::Sender<Arc<P>>,
    /// Requests an immediate look for the leader.
    ask: Notify,
}

/// Runs the command until interrupted.
///
/// # Errors
/// The cluster is unreachable, there is no leader, or the port is taken.
pub fn run(arguments: &FleetArguments) -> Result<Verdict, CommandError> {
    block_on(async {
        let (client, _) = connect(&arguments.connection, None).await?;
        let first = find(client.clone()).await?;
        // Forwarding problems are reported at the start, not at the browser's first request.
        drop(first.connect().await?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port)).await.map_err(|error| {
            CommandError::Asked(format!("port {}: {error}; choose another with --port", arguments.port))
        })?;
        let port = listener.local_addr()?.port();
        output::print(&format!("fleet page of {}: http://localhost:{port}/ (Ctrl-C ends)\n", first.pod()))?;
        let followed = Arc::new(Followed { leader: watch::Sender::new(Arc::new(first)), ask: Notify::new() });
        let following = followed.clone();
        tokio::spawn(async move { following.follow(|| find(client.clone())).await });
        loop {
            let (socket, _) = listener.accept().await?;
            let followed = followed.clone();
            tokio::spawn(async move { followed.serve(socket).await });
        }
    })
}

async fn find(client: Client) -> Result<FleetPort, CommandError> {
    Ok(FleetPort::find(client).await??)
}

impl<P: Page> Followed<P> {
    /// Looks for the leader periodically.
    async fn follow<F: Future<Output = Result<P, CommandError>>>(&self, find: impl Fn() -> F) {
        let mut told = String::new();
        loop {
            match find().await {
                Ok(found) => {
                    told.clear();
                    if found.pod() != self.leader.borrow().pod() {
                        tell(&format!("{} leads now; showing its page", found.pod()));
                        self.leader.send_replace(Arc::new(found));
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != told {
                        tell(&text);
                        told = text;
                    }
                }
            }
            // Limits the rate, however many connections ask.
            tokio::time::sleep(TRY_EVERY).await;
            let _ = tokio::time::timeout(LOOK_EVERY, self.ask.notified()).await;
        }
    }

    /// Serves a connection until either side closes or another replica leads.
    async fn serve(&self, mut socket: TcpStream) {
        let mut leader = self.leader.subscribe();
        let begun = Instant::now();
        loop {
            let page = leader.borrow_and_update().clone();
            match page.connect().await {
                Ok(mut page) => {
                    tokio::select! {
                        // Either side may close at any time.
                        _ = tokio::io::copy_bidirectional(&mut socket, &mut page) => {}
                        _ = leader.changed() => {}
                    }
                    return;
                }
                Err(error) if matches!(error, ForwardError::Right(_)) || begun.elapsed() > PATIENCE => {
                    tell(&error.to_string());
                    refuse(socket, &error).await;
                    return;
                }
                Err(_) => {
                    self.ask.notify_one();
                    let _ = tokio::time::timeout(TRY_EVERY, leader.changed()).await;
                }
            }
        }
    }
}

/// Answers a browser with the reason for a missing page.
async fn refuse(mut socket: TcpStream, error: &ForwardError) {
    let text = format!("{error}\n");
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{text}",
        text.len()
    );
    // The browser may have disconnected.
    let _ = socket.write_all(answer.as_bytes()).await;
    let _ = socket.shutdown().await;
}

fn tell(text: &str) {
    let lines: Vec<String> = text.lines().map(printable).collect();
    // If standard error is closed, there is no reader to warn.
    let _ = writeln!(std::io::stderr(), "{}", lines.join("\n"));
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// A replica answering each request with its name, or gone.
    #[derive(Clone, Copy)]
    struct Replica {
        name: &'static str,
        port: Option<u16>,
    }

    impl Page for Replica {
        fn pod(&self) -> &str {
            self.name
        }

        async fn connect(&self) -> Result<Box<dyn Connection>, ForwardError> {
            match self.port {
                Some(port) => Ok(Box::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap())),
                None => Err(ForwardError::Gone(self.name.to_owned())),
            }
        }
    }

    async fn replica(name: &'static str) -> Replica {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = Some(listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = [0; 64];
                    while socket.read(&mut request).await.is_ok_and(|read| read > 0) {
                        let _ = socket.write_all(name.as_bytes()).await;
                    }
                });
            }
        });
        Replica { name, port }
    }

    /// A browser's connection.
    async fn browser(followed: &Arc<Followed<Replica>>) -> TcpStream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let browser = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let followed = followed.clone();
        tokio::spawn(async move { followed.serve(socket).await });
        browser
    }

    async fn ask(browser: &mut TcpStream) -> String {
        browser.write_all(b"GET /").await.unwrap();
        let mut answer = vec![0; 4096];
        let read = browser.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..read]).into_owned()
    }

    #[tokio::test]
    async fn the_page_is_that_of_whoever_leads() {
        let first = replica("one").await;
        let leads = Arc::new(std::sync::Mutex::new(first));
        let followed = Arc::new(Followed { leader: watch::Sender::new(Arc::new(first)), ask: Notify::new() });
        let (following, now) = (followed.clone(), leads.clone());
        tokio::spawn(async move { following.follow(|| std::future::ready(Ok(*now.lock().unwrap()))).await });
        let mut kept = browser(&followed).await;
        assert_eq!(ask(&mut kept).await, "one");
        let second = replica("two").await;
        *leads.lock().unwrap() = second;
        // Connections to the old leader are closed, so the browser reconnects.
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(20), kept.read_to_end(&mut rest)).await;
        assert!(closed.is_ok() && rest.is_empty(), "{rest:?}");
        assert_eq!(ask(&mut browser(&followed).await).await, "two");
    }

    #[tokio::test]
    async fn a_browser_waits_while_the_leader_is_replaced() {
        let gone = Replica { name: "old", port: None };
        let followed = Arc::new(Followed { leader: watch::Sender::new(Arc::new(gone)), ask: Notify::new() });
        let mut early = browser(&followed).await;
        early.write_all(b"GET /").await.unwrap();
        // Whoever looks is asked to look now.
        tokio::time::timeout(Duration::from_secs(5), followed.ask.notified()).await.unwrap();
        followed.leader.send_replace(Arc::new(replica("new").await));
        let mut answer = [0; 3];
        early.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"new");
    }

    #[tokio::test]
    async fn why_there_is_no_page_is_told_in_words() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut browser = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        refuse(socket, &ForwardError::Gone("old".to_owned())).await;
        let mut answer = String::new();
        browser.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("pod old"), "{answer}");
    }
}
