//! What teams had, and how long they waited, with the GpuQuotas of a file and without.

use serde_json::{Value, json};
use tessera_api::gpu_quota::Unit;
use tessera_simulate::PolicyName;
use tessera_simulate::fleet::{AmountReport, RunReport, TeamReport, TeamsReport, Waits};

use super::json::rounded;
use super::text::time;
use super::{Simulated, Variant};
use crate::output::{self, printable};

/// A variant with quotas, and the same fleet without.
struct Compared<'s> {
    variant: &'s Variant,
    with: &'s RunReport,
    without: &'s RunReport,
    teams: &'s TeamsReport,
}

impl<'s> Compared<'s> {
    /// `None` for a variant without quotas.
    fn of(simulated: &'s Simulated<'_>, variant: &'s Variant) -> Option<Self> {
        let of_tessera = |variant: &'s Variant| {
            let mut runs = variant.policies.iter();
            runs.find(|runs| runs.policy == PolicyName::Tessera).map(|runs| &runs.first)
        };
        let with = of_tessera(variant)?;
        let without = of_tessera(simulated.variants.get(variant.without_quotas?)?)?;
        Some(Self { variant, with, without, teams: with.teams.as_ref()? })
    }

    fn waits(&self, team: &TeamReport) -> [Waits; 2] {
        [self.with, self.without].map(|report| team.waits(&self.variant.workload, report))
    }
}

/// The table of teams; nothing for a variant without quotas.
pub fn text(simulated: &Simulated<'_>, variant: &Variant, title: &str) -> String {
    let Some(compared) = Compared::of(simulated, variant) else { return String::new() };
    let header = [
        "TEAM",
        "PODS",
        "NEVER",
        "WAITED",
        "95 %",
        "WITHOUT",
        "95 %",
        "AMOUNT",
        "GUARANTEED",
        "USED",
        "BORROWED",
        "EVICTED",
        "TAKEN BACK",
    ];
    let mut rows = Vec::new();
    for team in &compared.teams.teams {
        let [with, without] = compared.waits(team);
        let name = if team.name.is_empty() { "-".to_owned() } else { printable(&team.name) };
        let mut row = vec![name, with.pods.to_string(), with.never.to_string()];
        row.extend(with.waited.into_iter().chain(without.waited).map(time));
        let mut amounts = team.amounts.iter().map(amount);
        row.extend(amounts.next().unwrap_or_else(|| ["-"; 4].map(str::to_owned)));
        row.extend([team.evictions.to_string(), format!("{:.1}", team.taken_back_card_hours)]);
        rows.push(row);
        rows.extend(amounts.map(|amount| {
            let mut row = vec![String::new(); 7];
            row.extend(amount);
            row.resize(header.len(), String::new());
            row
        }));
    }
    format!(
        "\nTeams by tessera{title}\n{}\
         WAITED: median of the placed pods; WITHOUT: the same without quotas. USED, BORROWED: means over the run. EVICTED: pods, \
         which begin\nanew; TAKEN BACK: card-hours that these had run. Cards were free for {:.1} card-hours while pods waited for \
         room.\n",
        output::table(&header, rows),
        compared.teams.idle_card_hours,
    )
}

fn amount(amount: &AmountReport) -> [String; 4] {
    let AmountReport { name, unit, guaranteed, used, borrowed } = amount;
    let mean = |measure: u64| match unit {
        Unit::Cards => unit.text(measure),
        Unit::Memory => unit.text(measure >> 30 << 30),
    };
    [printable(name), unit.text(*guaranteed), mean(*used), mean(*borrowed)]
}

/// The same for programs.
pub fn json(simulated: &Simulated<'_>, variant: &Variant) -> Option<Value> {
    let compared = Compared::of(simulated, variant)?;
    let waits = |Waits { pods, never, waited: [median, most] }: Waits| {
        json!({
            "placed": pods - never, "never": never, "waitedSecondsMedian": rounded(median.as_secs_f64()),
            "waitedSeconds95Percent": rounded(most.as_secs_f64()),
        })
    };
    let amount = |amount: &AmountReport| {
        let [name, guaranteed, used, borrowed] = self::amount(amount);
        json!({ "name": name, "unit": amount.unit, "guaranteed": guaranteed, "used": used, "borrowed": borrowed })
    };
    let team = |team: &TeamReport| {
        let [with, without] = compared.waits(team).map(waits);
        json!({
            "team": team.name, "namespaces": team.namespaces, "pods": with, "podsWithoutQuotas": without,
            "amounts": team.amounts.iter().map(amount).collect::<Vec<_>>(),
            "evictions": team.evictions, "takenBackCardHours": rounded(team.taken_back_card_hours),
        })
    };
    Some(json!({
        "teams": compared.teams.teams.iter().map(team).collect::<Vec<_>>(),
        "idleCardHours": rounded(compared.teams.idle_card_hours),
    }))
}
