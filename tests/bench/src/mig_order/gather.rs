//! What moving partitions is worth: the product's choice with and without moves, of the same requests.
//!
//! A refused request moves the partitions in its way for which least running time is lost, if all of them fit elsewhere
//! (`tessera_placement::gather` in plain numbers), and if no more is lost than a part of what the request will run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use anyhow::Result;
use comfy_table::{CellAlignment, Table};
use fastrand::Rng;

use super::managed::Managed;
use super::published::{Allocated, Published};
use super::simulation::{Time, exponential, pick};

/// Placements tried for one request, those of least lost time first.
const MOST_WAYS: usize = 64;

/// A running partition.
#[derive(Clone, Copy)]
struct Running {
    profile: usize,
    node: usize,
    device: usize,
    begun: f64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Requested compute slices, times the mean duration.
    requested: f64,
    /// Accepted ones, times their durations.
    pub accepted: f64,
    /// Partitions moved.
    pub moves: u64,
    /// Compute slices moved, times how long they had run.
    pub lost: f64,
}

/// Nodes with running partitions.
struct Cards<'p> {
    published: &'p Published,
    nodes: Vec<Allocated>,
    managed: Managed,
    /// By number.
    running: BTreeMap<usize, Running>,
    outcome: Outcome,
}

impl Cards<'_> {
    fn start(&mut self, number: usize, profile: usize, now: f64, most: f64) -> bool {
        self.managed.arrived(profile);
        let mut place = self.managed.choose(self.published, &self.nodes, profile);
        if let Some((node, device)) = place {
            self.published.take(&mut self.nodes[node], device);
        } else if most > 0.0 {
            place = self.make_room(profile, now, most);
        }
        let running = place.map(|(node, device)| Running { profile, node, device, begun: now });
        self.running.extend(running.map(|running| (number, running)));
        running.is_some()
    }

    fn end(&mut self, number: usize) {
        if let Some(Running { node, device, .. }) = self.running.remove(&number) {
            self.published.give_back(&mut self.nodes[node], device);
            self.managed.departed();
        }
    }

    /// Moves others away for a partition of the profile, and takes its place.
    fn make_room(&mut self, profile: usize, now: f64, most: f64) -> Option<(usize, usize)> {
        let published = self.published;
        let most = most * f64::from(published.compute_of(profile));
        let lost =
            |running: &Running| f64::from(published.compute_of(running.profile)) * (now - running.begun);
        let mut ways: Vec<(Time, usize, usize, Vec<usize>)> = Vec::new();
        for node in 0..self.nodes.len() {
            for device in published.of_profile(profile) {
                let (slices, _) = published.slices(&self.nodes[node], *device);
                let is_in_the_way = |running: &Running| {
                    running.node == node
                        && published.card_of(running.device) == published.card_of(*device)
                        && published.slices(&self.nodes[node], running.device).0 & slices != 0
                };
                let movers = self.running.iter().filter(|(_, running)| is_in_the_way(running));
                let (cost, movers) =
                    movers.fold((0.0, Vec::new()), |(cost, mut movers), (number, running)| {
                        movers.push(*number);
                        (cost + lost(running), movers)
                    });
                ways.push((Time(cost), node, *device, movers));
            }
        }
        ways.sort_by(|one, other| one.0.cmp(&other.0).then(one.3.len().cmp(&other.3.len())));
        for (cost, node, device, mut movers) in ways.into_iter().take(MOST_WAYS) {
            if cost.0 > most {
                break;
            }
            let before = self.nodes.clone();
            for mover in &movers {
                let running = self.running[mover];
                published.give_back(&mut self.nodes[running.node], running.device);
            }
            if published.fits(&self.nodes[node], device) {
                published.take(&mut self.nodes[node], device);
                movers.sort_by_key(|mover| Reverse(published.compute_of(self.running[mover].profile)));
                if let Some(places) = self.place_all(&movers) {
                    for (mover, (node, device)) in movers.iter().zip(places) {
                        let profile = self.running[mover].profile;
                        self.running.insert(*mover, Running { profile, node, device, begun: now });
                    }
                    self.outcome.moves += movers.len() as u64;
                    self.outcome.lost += cost.0;
                    return Some((node, device));
                }
            }
            self.nodes = before;
        }
        None
    }

    fn place_all(&mut self, movers: &[usize]) -> Option<Vec<(usize, usize)>> {
        let place = |mover: &usize| {
            let profile = self.running[mover].profile;
            let (node, device) = self.managed.choose(self.published, &self.nodes, profile)?;
            self.published.take(&mut self.nodes[node], device);
            Some((node, device))
        };
        movers.iter().map(place).collect()
    }
}

/// Poisson arrivals at `load` times the capacity of these nodes, with exponential durations of mean 1. Moved partitions run as long
/// as they would have, and lose what they had run: for a request at most this part of what it runs in the mean, in compute slices
/// times durations.
///
/// # Errors
/// As [`Managed::new`].
pub fn steady(
    published: &Published,
    nodes: usize,
    requests: &[(usize, f64)],
    (load, arrivals, seed): (f64, usize, u64),
    most: f64,
) -> Result<Outcome> {
    let mut random = Rng::with_seed(seed);
    let compute = |profile: usize| f64::from(published.compute_of(profile));
    let mean: f64 = requests.iter().map(|(profile, share)| compute(*profile) * share).sum();
    let rate = load * f64::from(published.compute_slices()) * nodes as f64 / mean;
    let managed = Managed::new(published)?;
    let nodes = vec![published.empty(); nodes];
    let mut cards =
        Cards { published, nodes, managed, running: BTreeMap::new(), outcome: Outcome::default() };
    let mut ends: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    let (mut now, warm_up) = (0.0, (10.0 * rate) as usize);
    for arrival in 0..warm_up + arrivals {
        now += exponential(&mut random) / rate;
        let profile = pick(requests, random.f64());
        let duration = exponential(&mut random);
        while let Some(Reverse((end, number))) = ends.peek().copied()
            && end.0 <= now
        {
            ends.pop();
            cards.end(number);
        }
        if arrival == warm_up {
            cards.outcome = Outcome::default();
        }
        cards.outcome.requested += compute(profile) * duration;
        if cards.start(arrival, profile, now, most) {
            ends.push(Reverse((Time(now + duration), arrival)));
            cards.outcome.accepted += compute(profile) * duration;
        }
    }
    Ok(cards.outcome)
}

/// A row of the table.
pub struct Row {
    /// The mix.
    pub mix: &'static str,
    /// Without moves.
    pub without: Outcome,
    /// With moves that cost little.
    pub cheap: Outcome,
    /// With all moves.
    pub all: Outcome,
}

/// Prints a table.
pub fn print(title: &str, rows: &[Row], compute_of_card: f64) {
    let mut table = Table::new();
    let of_moves = ["accepted, %", "moves for a card", "lost for gained"];
    let header = ["mix", "without moves, %"].into_iter().chain(of_moves).chain(of_moves);
    table.set_header(header);
    for Row { mix, without, cheap, all } in rows {
        let percent = |outcome: &Outcome| format!("{:.2}", 100.0 * outcome.accepted / outcome.requested);
        let mut row = vec![(*mix).to_owned(), percent(without)];
        for with in [cheap, all] {
            let gained = with.accepted - without.accepted;
            row.push(percent(with));
            row.push(format!("{:.1}", with.moves as f64 / (gained / compute_of_card)));
            row.push(format!("{:.2}", with.lost / gained));
        }
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{title}\n{table}\n");
}
