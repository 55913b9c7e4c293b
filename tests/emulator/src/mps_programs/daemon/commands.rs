//! The shell's commands to a daemon.

use std::time::{Duration, Instant};

use super::server::Server;
use super::{Daemon, Inner, LOOK};
use crate::mps::limits;
use crate::mps::wire::{FromServerProcess, ToServerProcess};

impl Daemon {
    /// Carries out a command of the shell; the answer is for its standard output.
    pub(super) fn command(&self, words: &[&str]) -> String {
        self.log.line(&format!("Received command: {}", words.join(" ")));
        if words.first() == Some(&"quit") {
            return self.quit(&words[1..]);
        }
        let mut inner = self.lock();
        let inner = &mut *inner;
        let of_server =
            |inner: &mut Inner, pid: &str, work: &mut dyn FnMut(&mut Server) -> String| match inner
                .servers
                .iter_mut()
                .find(|server| server.process.id().to_string() == pid)
            {
                Some(server) => work(server),
                None => format!("Server {pid} not found"),
            };
        match words {
            ["get_server_list"] => lines(inner.servers.iter().map(|server| server.process.id().to_string())),
            ["start_server", "-uid", user] => match user.parse() {
                Ok(user) if inner.servers.iter().all(|server| server.user != user) => {
                    match self.start_server(inner, user) {
                        Ok(_) => String::new(),
                        Err(problem) => format!("Failed to start server: {problem}"),
                    }
                }
                Ok(_) => String::new(),
                Err(_) => format!("Invalid user id {user}"),
            },
            ["get_server_status", pid] => of_server(inner, pid, &mut |server| match server.clients() {
                Some((_, true)) => "FAULT".to_owned(),
                Some((_, false)) => "ACTIVE".to_owned(),
                None => "INITIALIZING".to_owned(),
            }),
            ["get_client_list", pid] => of_server(inner, pid, &mut |server| {
                let (clients, _) = server.clients().unwrap_or_default();
                lines(clients.iter().map(|client| client.pid.to_string()))
            }),
            ["get_device_client_list", ..] | ["ps", ..] => {
                let mut rows = Vec::new();
                for server in &mut inner.servers {
                    let pid = server.process.id();
                    for client in server.clients().unwrap_or_default().0 {
                        rows.push(format!("{} {pid} {} {}", client.pid, client.device, client.program));
                    }
                }
                lines(rows.into_iter())
            }
            ["get_default_active_thread_percentage"] => format!("{:.1}", inner.percentage),
            ["set_default_active_thread_percentage", text] => match limits::percentage(text) {
                Some(percentage) => {
                    inner.percentage = percentage;
                    format!("{percentage:.1}")
                }
                None => format!("Invalid percentage {text}"),
            },
            ["get_active_thread_percentage", pid] => {
                of_server(inner, pid, &mut |server| format!("{:.1}", server.percentage))
            }
            ["set_active_thread_percentage", pid, text] => match limits::percentage(text) {
                Some(percentage) => of_server(inner, pid, &mut |server| {
                    server.percentage = percentage;
                    server.limit();
                    format!("{percentage:.1}")
                }),
                None => format!("Invalid percentage {text}"),
            },
            ["get_default_device_pinned_mem_limit", device] => match number(device) {
                Some(device) => inner.memory.get(&device).map_or(String::new(), |limit| limits::text(*limit)),
                None => format!("Invalid device {device}"),
            },
            ["set_default_device_pinned_mem_limit", device, limit] => {
                match (number(device), limits::bytes(limit)) {
                    (Some(device), Some(limit)) => {
                        inner.memory.insert(device, limit);
                        String::new()
                    }
                    _ => format!("Invalid memory limit {limit} for device {device}"),
                }
            }
            ["get_device_pinned_mem_limit", pid, device] => of_server(inner, pid, &mut |server| {
                let limit = number(device).and_then(|device| server.memory.get(&device));
                limit.map_or(String::new(), |limit| limits::text(*limit))
            }),
            ["set_device_pinned_mem_limit", pid, device, limit] => {
                match (number(device), limits::bytes(limit)) {
                    (Some(device), Some(limit)) => of_server(inner, pid, &mut |server| {
                        server.memory.insert(device, limit);
                        server.limit();
                        String::new()
                    }),
                    _ => format!("Invalid memory limit {limit} for device {device}"),
                }
            }
            ["lspart"] | ["sm_partition", ..] => self.partition(inner, words),
            ["terminate_client", pid, client] => of_server(inner, pid, &mut |server| {
                let Ok(client) = client.parse() else { return format!("Client {client} not found") };
                server.tell(&ToServerProcess::Terminate(client));
                match server.hear() {
                    Some(FromServerProcess::Done(true)) => String::new(),
                    _ => format!("Client {client} not found"),
                }
            }),
            ["shutdown_server", pid, force @ ..] => of_server(inner, pid, &mut |server| {
                server.tell(&ToServerProcess::Shutdown { force: force == ["-f"] });
                String::new()
            }),
            _ => format!("Unknown command: {}", words.join(" ")),
        }
    }

    /// Commands for static SM partitions.
    fn partition(&self, inner: &mut Inner, words: &[&str]) -> String {
        let Inner { servers, partitions: Some(partitions), .. } = inner else {
            return "Static partitioning is not enabled".to_owned();
        };
        let clients = servers.iter_mut().flat_map(|server| server.clients().unwrap_or_default().0);
        let used: Vec<String> = clients.filter_map(|client| client.partition).collect();
        let answer = match words {
            ["lspart"] => return partitions.list(&used),
            ["sm_partition", "add", device, chunks] => partitions.add(device, chunks),
            ["sm_partition", "rm", device, id] => partitions.remove(device, id, &used),
            _ => return format!("Unknown command: {}", words.join(" ")),
        };
        for server in servers {
            server.partition(Some(partitions));
        }
        answer
    }

    /// Ends all servers: waits for their clients, or ends them after a timeout.
    fn quit(&self, words: &[&str]) -> String {
        let patience = match words {
            [] => None,
            ["-t", seconds] => match seconds.parse() {
                Ok(seconds) => Some(Duration::from_secs(seconds)),
                Err(_) => return format!("Invalid timeout {seconds}"),
            },
            _ => return "Unknown option of quit".to_owned(),
        };
        let since = Instant::now();
        let mut force = false;
        let mut inner = self.lock();
        inner.quitting = true;
        for server in &mut inner.servers {
            server.tell(&ToServerProcess::Shutdown { force: false });
        }
        drop(inner);
        loop {
            let mut inner = self.lock();
            if inner.servers.is_empty() {
                return String::new();
            }
            if !force && patience.is_some_and(|patience| since.elapsed() >= patience) {
                force = true;
                for server in &mut inner.servers {
                    // Its contexts are lost, and its clients with them.
                    let _ = server.process.kill();
                }
            }
            drop(inner);
            std::thread::sleep(LOOK);
        }
    }
}

/// The number of a device named by number or by UUID, as NVIDIA's driver for Kubernetes names it. By UUID, only
/// the devices given to the daemon at its start are known.
fn number(device: &str) -> Option<usize> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    device.parse().ok().or_else(|| visible.split(',').position(|uuid| uuid == device))
}

fn lines(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join("\n")
}
