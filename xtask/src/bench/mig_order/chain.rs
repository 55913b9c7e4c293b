//! One card, exactly: the Markov chain of its sets of partitions, requests and ends being memoryless.

use std::collections::HashMap;

use super::devices::Card;

/// A set of partitions: profile and memory slices of each, sorted.
type State = Vec<(usize, u32)>;

/// Ends of iteration: changes per round below this don't show in the printed figures.
const PRECISION: f64 = 1e-9;
const MOST_ROUNDS: usize = 200_000;

struct Chain {
    states: Vec<State>,
    index: HashMap<State, usize>,
}

impl Chain {
    /// All sets that requests can lead to, whatever the order of placements.
    fn new(order: &[Vec<u32>], shares: &[f64]) -> Self {
        let mut chain = Self { states: vec![Vec::new()], index: HashMap::from([(Vec::new(), 0)]) };
        let mut next = 0;
        while next < chain.states.len() {
            let state = chain.states[next].clone();
            for (profile, placements) in
                order.iter().enumerate().filter(|(profile, _)| shares[*profile] > 0.0)
            {
                for mask in placements.iter().filter(|mask| *mask & taken(&state) == 0) {
                    chain.add(with(&state, profile, *mask));
                }
            }
            next += 1;
        }
        chain
    }

    fn add(&mut self, state: State) {
        if !self.index.contains_key(&state) {
            self.index.insert(state.clone(), self.states.len());
            self.states.push(state);
        }
    }
}

fn taken(state: &State) -> u32 {
    state.iter().map(|(_, mask)| mask).fold(0, |all, mask| all | mask)
}

fn with(state: &State, profile: usize, mask: u32) -> State {
    let mut state = state.clone();
    state.push((profile, mask));
    state.sort_unstable();
    state
}

/// What can happen in a state at these rates: for each profile that is asked for the states that its placements lead to
/// in the order of trying, and the states after each end.
struct Moves {
    requests: Vec<(f64, f64, Vec<usize>)>,
    ends: Vec<usize>,
}

fn moves(chain: &Chain, card: &Card, order: &[Vec<u32>], rates: &[f64]) -> Vec<Moves> {
    let of = |state: &State| {
        let requests = order.iter().enumerate().filter(|(profile, _)| rates[*profile] > 0.0);
        let requests = requests.map(|(profile, placements)| {
            let free = placements.iter().filter(|mask| *mask & taken(state) == 0);
            let to = free.map(|mask| chain.index[&with(state, profile, *mask)]).collect();
            (rates[profile], f64::from(card.profiles[profile].compute_slices), to)
        });
        let ends = (0..state.len()).map(|position| {
            let mut state = state.clone();
            state.remove(position);
            chain.index[&state]
        });
        Moves { requests: requests.collect(), ends: ends.collect() }
    };
    chain.states.iter().map(of).collect()
}

/// Requests of each profile per mean time that a partition stays.
fn rates(card: &Card, shares: &[f64], load: f64) -> (Vec<f64>, f64) {
    let compute = |profile: usize| f64::from(card.profiles[profile].compute_slices);
    let mean: f64 = shares.iter().enumerate().map(|(profile, share)| share * compute(profile)).sum();
    let offered = load * f64::from(card.compute_slices);
    (shares.iter().map(|share| share * offered / mean).collect(), offered)
}

/// Accepted compute slices as a part of those asked for, when the first free placement is taken.
pub fn accepted(card: &Card, order: &[Vec<u32>], shares: &[f64], load: f64) -> f64 {
    let (rates, offered) = rates(card, shares, load);
    let chain = Chain::new(order, shares);
    let moves = moves(&chain, card, order, &rates);
    let pace = rates.iter().sum::<f64>() + f64::from(card.compute_slices) + 1.0;
    let mut likely = vec![0.0; moves.len()];
    likely[0] = 1.0;
    for _ in 0..MOST_ROUNDS {
        let mut next = vec![0.0; moves.len()];
        for (state, Moves { requests, ends }) in moves.iter().enumerate() {
            let mut stays = likely[state];
            for (rate, _, to) in requests {
                if let Some(to) = to.first() {
                    let flow = likely[state] * rate / pace;
                    next[*to] += flow;
                    stays -= flow;
                }
            }
            for to in ends {
                let flow = likely[state] / pace;
                next[*to] += flow;
                stays -= flow;
            }
            next[state] += stays;
        }
        let change: f64 = next.iter().zip(&likely).map(|(next, before)| (next - before).abs()).sum();
        likely = next;
        if change < PRECISION {
            break;
        }
    }
    let accepted = |(state, likely): (usize, &f64)| -> f64 {
        let fits = moves[state].requests.iter().filter(|(.., to)| !to.is_empty());
        likely * fits.map(|(rate, compute, _)| rate * compute).sum::<f64>()
    };
    likely.iter().enumerate().map(accepted).sum::<f64>() / offered
}

/// The same when each request that fits gets the placement that is best in the long run (relative value iteration).
pub fn best(card: &Card, shares: &[f64], load: f64) -> f64 {
    let order = card.order(super::Policy::Balanced);
    let (rates, offered) = rates(card, shares, load);
    let chain = Chain::new(&order, shares);
    let moves = moves(&chain, card, &order, &rates);
    let pace = rates.iter().sum::<f64>() + f64::from(card.compute_slices) + 1.0;
    let mut value = vec![0.0; moves.len()];
    let mut gain = 0.0;
    for _ in 0..MOST_ROUNDS {
        let improved: Vec<f64> = moves
            .iter()
            .enumerate()
            .map(|(state, Moves { requests, ends })| {
                let mut sum = 0.0;
                let mut left = pace;
                for (rate, compute, to) in requests {
                    let best = to.iter().map(|to| value[*to]).max_by(f64::total_cmp);
                    if let Some(best) = best {
                        sum += rate * (compute + best);
                        left -= rate;
                    }
                }
                for to in ends {
                    sum += value[*to];
                    left -= 1.0;
                }
                (sum + left * value[state]) / pace
            })
            .collect();
        let changes = improved.iter().zip(&value).map(|(new, old)| new - old);
        let (least, most) =
            changes.fold((f64::MAX, f64::MIN), |(least, most), change| (least.min(change), most.max(change)));
        gain = (least + most) / 2.0 * pace;
        let base = improved[0];
        value = improved.into_iter().map(|value| value - base).collect();
        if (most - least) * pace < PRECISION {
            break;
        }
    }
    gain / offered
}
