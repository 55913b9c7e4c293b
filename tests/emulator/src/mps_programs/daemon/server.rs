//! A daemon's side of one of its servers: orders by the server's standard input, answers by its standard output.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use crate::mps::partitions::Partitions;
use crate::mps::wire::{self, Client, FromServerProcess, ToServerProcess};

/// A running server.
pub(super) struct Server {
    pub user: u32,
    pub process: Child,
    pub orders: ChildStdin,
    pub answers: BufReader<ChildStdout>,
    pub percentage: f64,
    pub memory: BTreeMap<usize, u64>,
}

impl Server {
    pub fn tell(&mut self, order: &ToServerProcess) {
        // The end of a server is noticed elsewhere.
        let _ = wire::send(&mut self.orders, order);
        let _ = self.orders.flush();
    }

    pub fn hear(&mut self) -> Option<FromServerProcess> {
        wire::receive(&mut self.answers).ok().flatten()
    }

    pub fn clients(&mut self) -> Option<(Vec<Client>, bool)> {
        self.tell(&ToServerProcess::Clients);
        match self.hear()? {
            FromServerProcess::Clients { clients, fault } => Some((clients, fault)),
            _ => None,
        }
    }

    /// Sends the static SM partitions.
    pub fn partition(&mut self, partitions: Option<&Partitions>) {
        let known = partitions.map(|partitions| {
            let all = partitions.all().iter();
            all.map(|partition| (partition.id.clone(), partition.multiprocessors)).collect()
        });
        self.tell(&ToServerProcess::Partitions(known));
        self.hear();
    }

    /// Sends its limits.
    pub fn limit(&mut self) {
        let most = self.memory.keys().max().map_or(0, |device| device + 1);
        let memory = (0..most).map(|device| self.memory.get(&device).copied()).collect();
        self.tell(&ToServerProcess::Limits { percentage: self.percentage, memory });
        self.hear();
    }
}
