//! Prints the results.

use anyhow::Result;
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::simulation::Outcome;

/// A value for each of the compared orders.
#[derive(Clone, Debug)]
pub struct Orders<T> {
    /// By name: the lowest start first.
    pub by_name: T,
    /// `placementOrder: Balanced`, the default.
    pub balanced: T,
    /// `placementOrder: HighestStart`.
    pub highest_start: T,
}

impl<T> Orders<T> {
    /// Applies `make` to each.
    ///
    /// # Errors
    /// The first error of `make`.
    pub fn map<U>(&self, make: impl Fn(&T) -> Result<U>) -> Result<Orders<U>> {
        Ok(Orders {
            by_name: make(&self.by_name)?,
            balanced: make(&self.balanced)?,
            highest_start: make(&self.highest_start)?,
        })
    }

    fn as_list(&self) -> [&T; 3] {
        [&self.by_name, &self.balanced, &self.highest_start]
    }
}

/// Fraction of the requested compute slices accepted, 0 to 1, for one mix.
pub struct MixReport {
    /// The mix.
    pub mix: &'static str,
    /// On one card in the long run; exact.
    pub one_card: Orders<f64>,
    /// With the best placement policy.
    pub one_card_best: f64,
    /// With the product's.
    pub one_card_managed: Outcome,
    /// On one card until full; exact.
    pub one_card_filling: Orders<f64>,
    /// With the best placement policy.
    pub one_card_filling_best: f64,
    /// With the product's.
    pub one_card_filling_managed: Outcome,
    /// On one node with eight cards in the long run.
    pub eight_cards: Orders<Outcome>,
    /// The same with the balanced order, one placement after the other across all cards.
    pub across_cards: Outcome,
    /// With the product's choice.
    pub eight_cards_managed: Outcome,
    /// On one node with eight cards until full.
    pub eight_cards_filling: Orders<Outcome>,
    /// With the product's choice.
    pub eight_cards_filling_managed: Outcome,
    /// On many nodes in the long run.
    pub fleet: Option<FleetReport>,
}

/// The same on many nodes.
pub struct FleetReport {
    /// Any fitting node.
    pub random: Orders<Outcome>,
    /// The first such node.
    pub first: Orders<Outcome>,
    /// With the product's choice of node and device.
    pub managed: Outcome,
}

impl MixReport {
    /// All figures of a row, in the order of the columns.
    fn figures(&self) -> Vec<f64> {
        let simulated = |orders: &Orders<Outcome>| orders.as_list().map(|outcome| outcome.accepted);
        let mut all: Vec<f64> = self.one_card.as_list().into_iter().copied().collect();
        all.extend([self.one_card_best, self.one_card_managed.accepted]);
        all.extend(self.one_card_filling.as_list());
        all.extend([self.one_card_filling_best, self.one_card_filling_managed.accepted]);
        all.extend(simulated(&self.eight_cards));
        all.extend([self.eight_cards_managed.accepted, self.across_cards.accepted]);
        all.extend(simulated(&self.eight_cards_filling));
        all.push(self.eight_cards_filling_managed.accepted);
        if let Some(fleet) = &self.fleet {
            all.extend(simulated(&fleet.random));
            all.extend(simulated(&fleet.first));
            all.push(fleet.managed.accepted);
        }
        all
    }

    /// By how much the product's choice accepts more than the best order where both are simulated, with the standard
    /// error of the difference: on eight cards, filling eight cards, and on the fleet.
    fn more_than_best(&self) -> Vec<(f64, f64)> {
        let best = |orders: &[&Orders<Outcome>]| {
            let all = orders.iter().flat_map(|orders| orders.as_list());
            all.copied().max_by(|one, other| one.accepted.total_cmp(&other.accepted)).unwrap_or_default()
        };
        let mut all = vec![
            self.eight_cards_managed.more_than(&best(&[&self.eight_cards])),
            self.eight_cards_filling_managed.more_than(&best(&[&self.eight_cards_filling])),
        ];
        let fleet = self.fleet.iter();
        all.extend(fleet.map(|fleet| fleet.managed.more_than(&best(&[&fleet.random, &fleet.first]))));
        all
    }

    /// The largest standard error of the simulated values.
    fn error(&self) -> f64 {
        let all = self.eight_cards.as_list().into_iter().chain(self.eight_cards_filling.as_list());
        let fleet = self.fleet.iter().flat_map(|fleet| {
            fleet.random.as_list().into_iter().chain(fleet.first.as_list()).chain([&fleet.managed])
        });
        let managed = [&self.one_card_managed, &self.one_card_filling_managed, &self.eight_cards_managed];
        let all =
            all.chain(fleet).chain(managed).chain([&self.eight_cards_filling_managed, &self.across_cards]);
        all.map(|outcome| outcome.error).fold(0.0, f64::max)
    }

    /// One object.
    pub fn json(&self) -> Value {
        fn named<T>(orders: &Orders<T>, value: impl Fn(&T) -> Value) -> Value {
            json!({
                "byName": value(&orders.by_name),
                "balanced": value(&orders.balanced),
                "highestStart": value(&orders.highest_start),
            })
        }
        let exact = |orders: &Orders<f64>, best: f64| {
            let mut object = named(orders, |value| json!(value));
            object["best"] = json!(best);
            object
        };
        let outcome =
            |outcome: &Outcome| json!({"accepted": outcome.accepted, "standardError": outcome.error});
        let with_managed = |mut object: Value, managed: &Outcome| {
            object["managed"] = outcome(managed);
            object
        };
        let mut eight_cards = named(&self.eight_cards, outcome);
        eight_cards["acrossCards"] = outcome(&self.across_cards);
        let one_card = exact(&self.one_card, self.one_card_best);
        let filling = exact(&self.one_card_filling, self.one_card_filling_best);
        let eight_filling = named(&self.eight_cards_filling, outcome);
        let more = |(more, error): (f64, f64)| json!({"accepted": more, "standardError": error});
        let more: Vec<Value> = self.more_than_best().into_iter().map(more).collect();
        json!({
            "mix": self.mix,
            "oneCard": with_managed(one_card, &self.one_card_managed),
            "oneCardFilling": with_managed(filling, &self.one_card_filling_managed),
            "eightCards": with_managed(eight_cards, &self.eight_cards_managed),
            "eightCardsFilling": with_managed(eight_filling, &self.eight_cards_filling_managed),
            "fleet": self.fleet.as_ref().map(|fleet| json!({
                "random": named(&fleet.random, outcome), "first": named(&fleet.first, outcome),
                "managed": outcome(&fleet.managed),
            })),
            "managedMoreThanBest": {
                "eightCards": more.first(), "eightCardsFilling": more.get(1), "fleet": more.get(2),
            },
        })
    }
}

const ORDERS: [&str; 3] = ["by name", "balanced", "highest"];

/// Prints tables; the first `counted` mixes are averaged.
pub fn print(reports: &[MixReport], counted: usize, load: f64, nodes: usize) {
    let rows: Vec<(&str, Vec<f64>)> = reports.iter().map(|report| (report.mix, report.figures())).collect();
    let part = |title: String, columns: &[&str], from: usize| {
        println!("{title}");
        let mut table = Table::new();
        table.set_header(["mix"].iter().chain(columns));
        let add = |table: &mut Table, name: &str, figures: &[f64]| {
            let figures =
                figures[from..from + columns.len()].iter().map(|part| format!("{:.2}", part * 100.0));
            table.add_row([name.to_owned()].into_iter().chain(figures));
        };
        for (name, figures) in &rows {
            add(&mut table, name, figures);
        }
        let counted = &rows[..counted.min(rows.len())];
        let means: Vec<f64> = (0..counted[0].1.len())
            .map(|column| {
                counted.iter().map(|(_, figures)| figures[column]).sum::<f64>() / counted.len() as f64
            })
            .collect();
        add(&mut table, &format!("mean of {}", counted.len()), &means);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}\n");
    };
    let with = |last: &[&'static str]| [&ORDERS[..], last].concat();
    part(format!("One card, load {load}, exact but for managed"), &with(&["best", "managed"]), 0);
    part("One card, filling, exact but for managed".to_owned(), &with(&["best", "managed"]), 5);
    part(format!("8 cards, load {load}"), &with(&["managed", "balanced, across cards"]), 10);
    part("8 cards, filling".to_owned(), &with(&["managed"]), 15);
    if nodes > 0 {
        part(format!("{nodes} nodes of 8 cards, load {load}, any node on which it fits"), &ORDERS, 19);
        part(format!("{nodes} nodes of 8 cards, load {load}, the first such node"), &with(&["managed"]), 22);
    }
    let of_best = |report: &MixReport| report.one_card_managed.accepted / report.one_card_best;
    let least = reports.iter().min_by(|one, other| of_best(one).total_cmp(&of_best(other)));
    if let Some(report) = least {
        println!(
            "One card, load {load}: managed accepts at least {:.2} % of the best ({}).",
            100.0 * of_best(report),
            report.mix
        );
    }
    print_more_than_best(reports, nodes);
    let error = reports.iter().map(MixReport::error).fold(0.0, f64::max);
    println!(
        "Accepted compute slices, % of those requested. Simulated figures have a standard error of up to {:.2}; they are \
         of the same requests, so that their differences have less.",
        error * 100.0
    );
}

/// How the product's choice does against the best order of each mix.
fn print_more_than_best(reports: &[MixReport], nodes: usize) {
    println!("\nManaged, points more than the best order of the mix (standard error of the difference)");
    let mut table = Table::new();
    let fleet = (nodes > 0).then(|| format!("{nodes} nodes"));
    table.set_header(["mix", "8 cards", "8 cards, filling"].map(str::to_owned).into_iter().chain(fleet));
    for report in reports {
        let figures = report.more_than_best().into_iter();
        let figures = figures.map(|(more, error)| format!("{:+.2} ({:.2})", 100.0 * more, 100.0 * error));
        table.add_row([report.mix.to_owned()].into_iter().chain(figures));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}\n");
}
