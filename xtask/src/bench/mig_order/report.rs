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

/// Fraction of the requested compute slices that was accepted, 0 to 1, for one mix.
pub struct MixReport {
    /// The mix.
    pub mix: &'static str,
    /// On one card in the long run; exact.
    pub one_card: Orders<f64>,
    /// With the best placement policy.
    pub one_card_best: f64,
    /// On one card that is filled; exact.
    pub one_card_filling: Orders<f64>,
    /// With the best placement policy.
    pub one_card_filling_best: f64,
    /// On one node with eight cards in the long run.
    pub eight_cards: Orders<Outcome>,
    /// The same with the balanced order, one placement after the other across all cards.
    pub across_cards: Outcome,
    /// On one node with eight cards that are filled.
    pub eight_cards_filling: Orders<Outcome>,
    /// On many nodes in the long run.
    pub fleet: Option<Orders<Outcome>>,
}

impl MixReport {
    /// All figures of a row, in the order of the columns.
    fn figures(&self) -> Vec<f64> {
        let simulated = |orders: &Orders<Outcome>| orders.as_list().map(|outcome| outcome.accepted);
        let mut all: Vec<f64> = self.one_card.as_list().into_iter().copied().collect();
        all.push(self.one_card_best);
        all.extend(self.one_card_filling.as_list());
        all.push(self.one_card_filling_best);
        all.extend(simulated(&self.eight_cards));
        all.push(self.across_cards.accepted);
        all.extend(simulated(&self.eight_cards_filling));
        all.extend(self.fleet.as_ref().map(simulated).into_iter().flatten());
        all
    }

    /// The largest standard error of the simulated values.
    fn error(&self) -> f64 {
        let all = self.eight_cards.as_list().into_iter().chain(self.eight_cards_filling.as_list());
        let all = all.chain(self.fleet.iter().flat_map(Orders::as_list)).chain([&self.across_cards]);
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
        let mut eight_cards = named(&self.eight_cards, outcome);
        eight_cards["acrossCards"] = outcome(&self.across_cards);
        json!({
            "mix": self.mix,
            "oneCard": exact(&self.one_card, self.one_card_best),
            "oneCardFilling": exact(&self.one_card_filling, self.one_card_filling_best),
            "eightCards": eight_cards,
            "eightCardsFilling": named(&self.eight_cards_filling, outcome),
            "fleet": self.fleet.as_ref().map(|fleet| named(fleet, outcome)),
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
    let with = |last: &'static str| [ORDERS[0], ORDERS[1], ORDERS[2], last];
    part(format!("One card, load {load}, exact"), &with("best"), 0);
    part("One card, filling, exact".to_owned(), &with("best"), 4);
    part(format!("8 cards, load {load}"), &with("balanced, across cards"), 8);
    part("8 cards, filling".to_owned(), &ORDERS, 12);
    if nodes > 0 {
        part(format!("{nodes} nodes of 8 cards, load {load}, any node on which it fits"), &ORDERS, 15);
    }
    let error = reports.iter().map(MixReport::error).fold(0.0, f64::max);
    println!(
        "Accepted compute slices, % of those requested. Simulated figures have a standard error of up to {:.2}; they are \
         of the same requests, so that their differences have less.",
        error * 100.0
    );
}
