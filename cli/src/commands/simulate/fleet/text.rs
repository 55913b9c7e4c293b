//! The report for people.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_simulate::fleet::Summary;
use tessera_simulate::{PolicyName, Spread};

use super::json::{cost, unused_cost};
use super::{PolicyRuns, Simulated, Variant, map, teams};
use crate::commands::allocate::some_of;
use crate::output::{self, printable};

/// Limit of reasons shown for each policy.
const REASONS: usize = 5;

/// Eighths of a block, for the allocation over time.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The full report.
pub fn report(simulated: &Simulated<'_>) -> String {
    let mut text: String = simulated.variants.iter().map(|variant| heading(simulated, variant)).collect();
    for Variant { name, pools, .. } in &simulated.variants {
        if let Some(pools) = pools {
            text += &format!("\nGpuPools, fleet {name}\n{}", pools.text());
        }
    }
    text += &figures(simulated);
    for variant in &simulated.variants {
        let title = match simulated.variants.len() {
            1 => String::new(),
            _ => format!(", fleet {}", variant.name),
        };
        text += &teams::text(simulated, variant, &title);
        text += &over_time(variant, &title);
        text += &wishes(simulated, variant, &title);
        text += &never(variant, &title);
        if let Some(PolicyRuns { policy, first, .. }) = variant.policies.first() {
            text += &format!("\nCards after {} by {policy}{title}\n", time(first.at));
            text += &map::text(&variant.fleet, &variant.workload, &first.holdings);
        }
    }
    text
}

fn heading(simulated: &Simulated<'_>, variant: &Variant) -> String {
    let models = variant.fleet.models();
    let price = simulated.cost(models.clone().into_iter());
    let price = price.map_or_else(String::new, |price| format!(", {price:.0} a month"));
    let models: Vec<String> = models.into_iter().map(|(model, count)| format!("{count} {model}")).collect();
    let (pods, held) = (variant.workload.pods.len(), variant.workload.held());
    let mut arrives = output::counted(pods, "pod");
    if !simulated.workload.is_empty() {
        arrives += &format!(" of {}", printable(&simulated.workload));
    }
    if held > 0 {
        let (claims, hold) = (output::counted(held, "claim"), if held == 1 { "holds" } else { "hold" });
        arrives += &format!("; {claims} {hold} devices from the beginning");
    }
    format!(
        "Fleet {}: {} with {}{price}; {arrives}\n",
        printable(&variant.name),
        output::counted(variant.fleet.nodes().len(), "node"),
        models.join(" and "),
    )
}

fn figures(simulated: &Simulated<'_>) -> String {
    let Simulated { variants, prices, seeds, .. } = simulated;
    let mut header = vec![
        "POLICY",
        "PLACED",
        "NEVER",
        "ALLOCATED",
        "MOST",
        "AT END",
        "FRAGMENTED",
        "WAITED",
        "95 %",
        "WORST",
        "END",
        "CARDS",
        "NODES",
    ];
    if variants.len() > 1 {
        header.insert(0, "FLEET");
    }
    if !prices.is_empty() {
        header.push("COST");
    }
    if tells_use(simulated) {
        header.push("USED");
        if !prices.is_empty() {
            header.push("UNUSED COST");
        }
    }
    let all = variants.iter().flat_map(|variant| variant.policies.iter().map(move |runs| (variant, runs)));
    let rows = all.clone().map(|(variant, runs)| {
        let mut row = row(simulated, variant, runs);
        if variants.len() > 1 {
            row.insert(0, variant.name.clone());
        }
        row
    });
    let mut text = format!("\n{}", output::table(&header, rows));
    text += "Pods that do not fit wait, and are retried by priority and in order of arrival whenever something ends.\n\
             ALLOCATED: percent of the cards, mean over the run; of each card the larger of its shares of compute and memory.\n\
             FRAGMENTED: percent of the free cards, at the time of the map, that a typical pod of this workload cannot use.\n\
             WAITED: mean over the placed pods. CARDS, NODES: most in use at once.\n";
    if !prices.is_empty() {
        text += "COST: of CARDS, a month.\n";
    }
    if tells_use(simulated) {
        text += "USED: percent of the cards, mean over the run: what pods hold, by the share of it that they use (busy).\n";
        if !prices.is_empty() {
            text += "UNUSED COST: of what is allocated and not used, a month, at the mean price of CARDS.\n";
        }
    }
    let has_gangs = variants.iter().any(|variant| variant.workload.pods.iter().any(|pod| pod.gang.is_some()));
    if has_gangs && all.clone().any(|(_, runs)| runs.policy != PolicyName::Tessera) {
        text += "Other policies than tessera place the pods of a gang one by one; devices held until the rest fits \
                 count as allocated.\n";
    }
    let (first, last) = (seeds[0], seeds[seeds.len() - 1]);
    let by_chance: Vec<&str> =
        all.filter(|(_, runs)| runs.summaries.len() > 1).map(|(_, runs)| runs.policy.name()).collect();
    if !by_chance.is_empty() {
        text += &format!(
            "Policies with random choices: means of seeds {first} to {last}, ± the 95 % confidence interval; all \
             below is for seed {first}.\n"
        );
    }
    text
}

fn row(simulated: &Simulated<'_>, variant: &Variant, runs: &PolicyRuns) -> Vec<String> {
    let count = runs.summaries.len() as f64;
    let mean = |of: &dyn Fn(&Summary) -> f64| runs.summaries.iter().map(of).sum::<f64>() / count;
    let whole =
        |number: f64| if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.1}") };
    let percent = |of: &dyn Fn(&Summary) -> f64| {
        let spread = Spread::of(&runs.summaries.iter().map(of).collect::<Vec<f64>>());
        match spread.half_width() {
            // As printed, or more.
            width if (0.05..f64::INFINITY).contains(&width) => format!("{:.1} ± {width:.1} %", spread.mean),
            _ => format!("{:.1} %", spread.mean),
        }
    };
    let time_of = |of: &dyn Fn(&Summary) -> Duration| {
        time(Duration::from_secs_f64(mean(&|summary| of(summary).as_secs_f64())))
    };
    let placed = mean(&|summary| summary.placed as f64);
    let mut row = vec![
        runs.policy.to_string(),
        whole(placed),
        whole(variant.workload.pods.len() as f64 - placed),
        percent(&|summary| summary.mean),
        percent(&|summary| summary.most),
        percent(&|summary| summary.end),
        match runs.first.fragmentation {
            None => "-".to_owned(),
            Some(_) => percent(&|summary| summary.fragmentation.unwrap_or(0.0)),
        },
    ];
    row.extend([0, 1, 2].map(|place| time_of(&|summary| summary.waited[place])));
    row.push(time_of(&|summary| summary.done_after));
    row.push(whole(mean(&|summary| summary.cards_used.values().sum::<usize>() as f64)));
    row.push(whole(mean(&|summary| summary.nodes_used as f64)));
    if !simulated.prices.is_empty() {
        row.push(format!("{:.0}", mean(&|summary| cost(simulated, summary).unwrap_or(0.0))));
    }
    if tells_use(simulated) {
        row.push(percent(&|summary| summary.used));
        if !simulated.prices.is_empty() {
            let unused = |summary: &Summary| unused_cost(simulated, variant, summary).unwrap_or(0.0);
            row.push(format!("{:.0}", mean(&unused)));
        }
    }
    row
}

/// Whether the workload says of any pod how busy it is.
fn tells_use(simulated: &Simulated<'_>) -> bool {
    simulated.variants.iter().any(|variant| variant.workload.pods.iter().any(|pod| pod.busy.is_some()))
}

/// A line for each policy, from the beginning to its end.
fn over_time(variant: &Variant, title: &str) -> String {
    let all = variant.policies.iter().map(|runs| (runs.policy, &runs.summaries[0]));
    let rows = all.filter(|(_, summary)| !summary.over_time.is_empty()).map(|(policy, summary)| {
        let block = |percent: &f64| BLOCKS[((percent / 100.0 * 8.0).round() as usize).min(8)];
        let line: String = summary.over_time.iter().map(block).collect();
        vec![policy.to_string(), format!("|{line}|"), time(summary.done_after)]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "\nAllocated over time{title}\n{}",
        output::table(&["POLICY", "|0 %: empty, 100 %: █|", "UNTIL"], rows)
    )
}

fn wishes(simulated: &Simulated<'_>, variant: &Variant, title: &str) -> String {
    let Some(first) = variant.policies.first().filter(|_| !simulated.wishes.is_empty()) else {
        return String::new();
    };
    let wishes = simulated.wishes.iter().map(|wish| wish.text.as_str());
    let header: Vec<&str> = std::iter::once("POLICY").chain(wishes).collect();
    let rows = variant.policies.iter().map(|runs| {
        let counts = runs.first.wishes.iter().map(usize::to_string);
        std::iter::once(runs.policy.to_string()).chain(counts).collect()
    });
    let at = time(first.first.at);
    format!("\nHow many more of one kind would fit after {at}{title}\n{}", output::table(&header, rows))
}

fn never(variant: &Variant, title: &str) -> String {
    let mut text = String::new();
    for PolicyRuns { policy, first, .. } in &variant.policies {
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (outcome, pod) in first.pods.iter().zip(&variant.workload.pods) {
            if let Some(why) = &outcome.why {
                reasons.entry(why).or_default().push(&pod.name);
            }
        }
        if reasons.is_empty() {
            continue;
        }
        let mut reasons: Vec<(&str, Vec<&str>)> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, pods)| std::cmp::Reverse(pods.len()));
        text += &format!("\nNever placed by {policy}{title}\n");
        for (why, pods) in reasons.iter().take(REASONS) {
            text += &format!("  {}: {}\n", some_of(pods, 4), printable(why));
        }
        let others: usize = reasons.iter().skip(REASONS).map(|(_, pods)| pods.len()).sum();
        if others > 0 {
            text += &format!("  and {others} more for other reasons (-o json has all)\n");
        }
    }
    text
}

/// `1d2h`, `5m30s`, `0s`: the two largest units.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let Some(first) = units.iter().position(|(unit, _)| seconds >= *unit) else { return "0s".to_owned() };
    let (unit, letter) = units[first];
    let mut text = format!("{}{letter}", seconds / unit);
    if let Some((next, letter)) = units.get(first + 1)
        && seconds % unit / next > 0
    {
        text += &format!("{}{letter}", seconds % unit / next);
    }
    text
}
