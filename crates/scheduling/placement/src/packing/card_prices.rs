//! Value of the remainder of a card, by the prices of the requested sizes.
//!
//! The cutting-stock problem: cut cards into the requested sizes, in their proportions, for as much demand as possible. The dual of
//! its linear programme prices each size in cards: at its length for sizes filling cards without waste, higher for sizes leaving a
//! remainder nobody wants. A remainder has the value of the best content fitting into it, by an unbounded knapsack.

/// Sizes are hundredths of a card, 0 to 100.
pub const SIZES: usize = 101;

/// A whole card, as a size.
const CARD: usize = SIZES - 1;

/// Limit of steps of the linear programme, usually finished after some dozen. Prices after fewer steps are usable but worse.
const STEPS: usize = 5000;

/// Prices of sizes and of remainders, in cards.
#[derive(Clone, Debug, PartialEq)]
pub struct CardPrices {
    of_size: [f64; SIZES],
    of_rest: [f64; SIZES],
    expected: [f64; SIZES],
}

impl CardPrices {
    /// Prices for these requested amounts, by size. A whole card has price 1, whether requested or not.
    #[must_use]
    pub fn new(amounts: &[f64; SIZES]) -> Self {
        let mut of_size = CuttingStock::new(amounts).solve();
        of_size[CARD] = 1.0;
        let all: f64 = amounts[1..].iter().sum();
        let mut expected = [0.0; SIZES];
        let mut up_to = 0.0;
        for size in 1..SIZES {
            up_to += amounts[size];
            expected[size] = size as f64 / 100.0 * up_to / all.max(1e-9);
        }
        Self { of_rest: fill(&of_size), of_size, expected }
    }

    /// Price of one request of this size.
    #[must_use]
    pub fn of_size(&self, size: usize) -> f64 {
        self.of_size[size.min(CARD)]
    }

    /// Value of so many free thousandths of a card: the best content fitting into them.
    #[must_use]
    pub fn of_rest(&self, free: u16) -> f64 {
        self.of_rest[usize::from(free / 10).min(CARD)]
    }

    /// The same free thousandths, times the fraction of requests fitting into them. In the long run, with departures, this predicts
    /// better than the best content: a request too large now will fit beside something else.
    #[must_use]
    pub fn expected_of_rest(&self, free: u16) -> f64 {
        self.expected[usize::from(free / 10).min(CARD)]
    }
}

/// Best sum of prices by size of the remainder.
fn fill(prices: &[f64; SIZES]) -> [f64; SIZES] {
    let mut best = [0.0; SIZES];
    for rest in 1..SIZES {
        best[rest] = best[rest - 1];
        for size in 1..=rest {
            let with = best[rest - size] + prices[size];
            if with > best[rest] {
                best[rest] = with;
            }
        }
    }
    best
}

/// The linear programme, by column generation: the greatest load `L` with `L · demand[size] ≤ Σ cuts[pattern][size] · x[pattern]`
/// for each size, and `Σ x ≤ 1`. One row for each size, and the last for cards.
struct CuttingStock {
    sizes: Vec<usize>,
    /// By size: its fraction of all requests.
    demand: Vec<f64>,
    /// The inverse of the basis, by row.
    inverse: Vec<Vec<f64>>,
    /// Values of the basic variables.
    values: Vec<f64>,
    /// By basis position: the row of the slack in the basis, if any.
    slacks: Vec<Option<usize>>,
    prices: Vec<f64>,
}

/// A column to enter the basis, with its gain.
struct Column {
    entries: Vec<f64>,
    gain: f64,
    slack: Option<usize>,
}

impl CuttingStock {
    fn new(amounts: &[f64; SIZES]) -> Self {
        let sizes: Vec<usize> = (1..SIZES).filter(|size| amounts[*size] > 0.0).collect();
        let all: f64 = amounts.iter().sum();
        let rows = sizes.len() + 1;
        let mut inverse = vec![vec![0.0; rows]; rows];
        for (row, entries) in inverse.iter_mut().enumerate() {
            entries[row] = 1.0;
        }
        // Small distinct values avoid degenerate steps without gain.
        let mut values: Vec<f64> = (1..=sizes.len()).map(|row| 1e-9 * row as f64).collect();
        values.push(1.0);
        Self {
            demand: sizes.iter().map(|size| amounts[*size] / all).collect(),
            sizes,
            inverse,
            values,
            slacks: (0..rows).map(Some).collect(),
            prices: vec![0.0; rows],
        }
    }

    /// Prices of the sizes, in cards.
    fn solve(mut self) -> [f64; SIZES] {
        for _ in 0..STEPS {
            let Some(column) = self.best_column() else { break };
            if !self.enter(column) {
                break;
            }
        }
        let mut prices = [0.0; SIZES];
        let of_card = self.prices[self.sizes.len()].max(1e-12);
        for (row, size) in self.sizes.iter().enumerate() {
            prices[*size] = (self.prices[row] / of_card).max(0.0);
        }
        prices
    }

    /// The column with the greatest gain per unit: a slack, more load, or another way to cut a card.
    fn best_column(&self) -> Option<Column> {
        let rows = self.prices.len();
        let cards = self.sizes.len();
        let mut best = Column { entries: Vec::new(), gain: 1e-9, slack: None };
        for row in 0..rows {
            if -self.prices[row] > best.gain && !self.slacks.contains(&Some(row)) {
                let mut entries = vec![0.0; rows];
                entries[row] = 1.0;
                best = Column { entries, gain: -self.prices[row], slack: Some(row) };
            }
        }
        let load: f64 = self.prices.iter().zip(&self.demand).map(|(price, part)| price * part).sum();
        if 1.0 - load > best.gain {
            let mut entries = self.demand.clone();
            entries.push(0.0);
            best = Column { entries, gain: 1.0 - load, slack: None };
        }
        let (worth, cut) = self.best_cut();
        if worth - self.prices[cards] > best.gain {
            let mut entries = vec![0.0; rows];
            entries[cards] = 1.0;
            for row in cut {
                entries[row] -= 1.0;
            }
            best = Column { entries, gain: worth - self.prices[cards], slack: None };
        }
        (!best.entries.is_empty()).then_some(best)
    }

    /// The most valuable way to cut a card, as rows of sizes.
    fn best_cut(&self) -> (f64, Vec<usize>) {
        let mut best = [0.0; SIZES];
        let mut chosen = [None; SIZES];
        for rest in 1..SIZES {
            best[rest] = best[rest - 1];
            for (row, size) in self.sizes.iter().enumerate() {
                let price = self.prices[row];
                if *size <= rest && price > 0.0 && best[rest - size] + price > best[rest] + 1e-12 {
                    best[rest] = best[rest - size] + price;
                    chosen[rest] = Some(row);
                }
            }
        }
        let mut cut = Vec::new();
        let mut rest = CARD;
        while rest > 0 {
            rest -= chosen[rest].map_or(1, |row| {
                cut.push(row);
                self.sizes[row]
            });
        }
        (best[CARD], cut)
    }

    /// Puts the column into the basis. Returns false if the column is unbounded.
    fn enter(&mut self, column: Column) -> bool {
        let product = |row: &Vec<f64>| row.iter().zip(&column.entries).map(|(a, b)| a * b).sum::<f64>();
        let change: Vec<f64> = self.inverse.iter().map(product).collect();
        let mut leaving = None;
        let mut least = f64::INFINITY;
        for (row, change) in change.iter().enumerate() {
            if *change > 1e-9 && self.values[row].max(0.0) / change < least {
                least = self.values[row].max(0.0) / change;
                leaving = Some(row);
            }
        }
        let Some(leaving) = leaving else { return false };
        let pivot: Vec<f64> = self.inverse[leaving].iter().map(|entry| entry / change[leaving]).collect();
        for (row, change) in change.iter().enumerate() {
            if row != leaving && *change != 0.0 {
                for (entry, pivot) in self.inverse[row].iter_mut().zip(&pivot) {
                    *entry -= change * pivot;
                }
                self.values[row] -= change * least;
            }
        }
        for (price, pivot) in self.prices.iter_mut().zip(&pivot) {
            *price += column.gain * pivot;
        }
        self.inverse[leaving] = pivot;
        self.values[leaving] = least;
        self.slacks[leaving] = column.slack;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(amounts: &[(usize, f64)]) -> CardPrices {
        let mut all = [0.0; SIZES];
        for (size, amount) in amounts {
            all[*size] = *amount;
        }
        CardPrices::new(&all)
    }

    fn assert_near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-6, "{found} is not {wanted}");
    }

    #[test]
    fn sizes_that_fill_cards_are_worth_their_length() {
        let halves = prices(&[(50, 3.0)]);
        assert_near(halves.of_size(50), 0.5);
        assert_near(halves.of_rest(490), 0.0);
        assert_near(halves.of_rest(990), 0.5);
        // Equal amounts of 70 and 30: every card takes one of each.
        let pairs = prices(&[(30, 1.0), (70, 1.0)]);
        assert_near(pairs.of_size(30) + pairs.of_size(70), 1.0);
    }

    #[test]
    fn what_leaves_a_remainder_that_nobody_wants_is_worth_the_card() {
        let prices = prices(&[(60, 1.0)]);
        assert_near(prices.of_size(60), 1.0);
        assert_near(prices.of_rest(590), 0.0);
        // With far more of 40 than of 60, cards are cut into two of 40.
        let mixed = self::prices(&[(40, 10.0), (60, 1.0)]);
        assert_near(mixed.of_size(40), 0.5);
        assert_near(mixed.of_size(60), 0.5);
    }

    #[test]
    fn whole_cards_have_a_price_before_anything_is_asked_for() {
        let nothing = prices(&[]);
        assert_near(nothing.of_rest(1000), 1.0);
        assert_near(nothing.of_rest(990), 0.0);
        assert_near(prices(&[(20, 1.0), (100, 3.0)]).expected_of_rest(500), 0.125);
    }
}
