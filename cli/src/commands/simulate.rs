//! `kubectl gpu simulate`: how much of a fleet would get allocated.

mod fleet;

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use tessera_simulate::openb::{LONGEST_LINE, NodeReader};
use tessera_simulate::{Arrivals, Filling, LOADS, PolicyName, Report, TooManyArrivals, Trace};

use crate::arguments::SimulateArguments;
use crate::output::{self, CommandError, Verdict};

/// Final load of a run: cards requested by its pods, in percent.
const LAST_LOAD: u64 = LOADS[LOADS.len() - 1];

/// Where the policies are compared with each other, of [`LOADS`].
const COMPARED: usize = 2;

/// Runs the command.
///
/// # Errors
/// A file is no part of a trace, or the trace would not fill its fleet.
pub fn run(arguments: &SimulateArguments) -> Result<Verdict, CommandError> {
    let [nodes, pods] = arguments.openb.as_slice() else { return fleet::run(arguments) };
    let trace = read(nodes, pods)?;
    let policies = policies(&arguments.policies, &PolicyName::ALL, &PolicyName::ALL)?;
    let seeds: Vec<u64> = (0..arguments.runs).map(|run| arguments.seed.wrapping_add(run)).collect();
    let report = simulate(&trace, &policies, &seeds)
        .map_err(|error| CommandError::Asked(format!("{}: {error}", pods.display())))?;
    match arguments.output {
        Some(format) => output::structured(format, &report)?,
        None => output::print(&text(&trace, &report, &seeds))?,
    }
    Ok(Verdict::Yes)
}

/// Policies of these names, in their order and without duplicates; the usual policies if there are no names.
fn policies(
    names: &[String],
    usual: &[PolicyName],
    known: &[PolicyName],
) -> Result<Vec<PolicyName>, CommandError> {
    let mut policies = if names.is_empty() { usual.to_vec() } else { Vec::new() };
    for name in names {
        let policy = PolicyName::among(known, name)
            .map_err(|error| CommandError::Asked(format!("--policy: {error}")))?;
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    Ok(policies)
}

fn read(nodes: &Path, pods: &Path) -> Result<Trace, CommandError> {
    let mut reader = NodeReader::default();
    lines(nodes, |line| reader.line(line))?;
    let mut reader = reader.finish().map_err(|error| wrong(nodes, &error))?;
    lines(pods, |line| reader.line(line))?;
    reader.finish().map_err(|error| wrong(pods, &error))
}

fn wrong(file: &Path, error: &dyn Display) -> CommandError {
    CommandError::Asked(format!("{}: {error}", file.display()))
}

/// Reads a file line by line; an overlong line is truncated and refused as such.
fn lines<E: Display>(file: &Path, mut take: impl FnMut(&str) -> Result<(), E>) -> Result<(), CommandError> {
    let mut reader = BufReader::new(File::open(file).map_err(|error| wrong(file, &error))?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(LONGEST_LINE as u64 + 2).read_until(b'\n', &mut line);
        if read.map_err(|error| wrong(file, &error))? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        take(text.strip_suffix('\n').unwrap_or(&text)).map_err(|error| wrong(file, &error))?;
    }
}

/// Runs all jobs on all cores, with a progress bar of this template and length. Results are in the order of the jobs.
fn on_all_cores<J: Sync, R: Send>(
    template: &str,
    length: u64,
    jobs: &[J],
    run: impl Fn(&J, &ProgressBar) -> R + Sync,
) -> Vec<R> {
    let progress = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(template) {
        progress.set_style(style);
    }
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Option<R>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(place) else { return };
            let result = run(job, &progress);
            found.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(result);
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    progress.finish_and_clear();
    found.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// All policies with all seeds.
fn simulate(trace: &Trace, policies: &[PolicyName], seeds: &[u64]) -> Result<Report, TooManyArrivals> {
    let jobs: Vec<(PolicyName, u64)> =
        policies.iter().flat_map(|policy| seeds.iter().map(|seed| (*policy, *seed))).collect();
    let template = "{bar:30} {pos}/{len} runs, {elapsed}: {msg}";
    let runs = on_all_cores(template, jobs.len() as u64, &jobs, |(policy, seed), progress| {
        progress.set_message(policy.name());
        let arrivals = Arrivals::up_to(trace, *seed, LAST_LOAD)?;
        let filling = Filling::run(trace, &arrivals, *policy, *seed);
        progress.inc(1);
        Ok(filling)
    });
    let runs: Vec<Filling> = runs.into_iter().collect::<Result<_, _>>()?;
    let of_policies = policies.iter().copied().zip(runs.chunks(seeds.len()).map(<[_]>::to_vec));
    Ok(Report { policies: of_policies.collect() })
}

fn text(trace: &Trace, report: &Report, seeds: &[u64]) -> String {
    let first = &report.policies[0];
    let header = ["POLICY", "80 %", "95 %", "100 %", "130 %", "FRAGMENTED", "BEHIND"];
    let rows = report.policies.iter().map(|(policy, runs)| {
        let summary = Report::summary(runs);
        let mut row = vec![policy.to_string()];
        row.extend(summary.allocated_at.0.iter().zip(summary.sd.0).map(|(mean, sd)| match seeds.len() {
            1 => format!("{mean:.2}"),
            _ => format!("{mean:.2} ± {sd:.2}"),
        }));
        row.push(format!("{:.1}", summary.fragmentation_at.0[0]));
        let behind = Report::ahead(&first.1, runs, COMPARED);
        row.push(match behind.half_width() {
            _ if *policy == first.0 => "-".to_owned(),
            width if width.is_finite() => format!("{:.2} ± {width:.2}", behind.mean),
            _ => format!("{:.2}", behind.mean),
        });
        row
    });
    let table = output::table(&header, rows);
    format!(
        "{} with {}, {}; seeds {} to {}\n\n{table}\n\
         Percent of the cards allocated when the arrived pods ask for 80, 95, 100 and 130 % of them: mean ± standard\n\
         deviation. FRAGMENTED: percent of the free cards at 80 % that a typical pod cannot use. BEHIND: how much less\n\
         than {} allocates at 100 %, on the same arrivals, with the 95 % confidence interval.\n",
        output::counted(trace.nodes().len(), "node"),
        output::counted((trace.capacity() / 1000) as usize, "card"),
        output::counted(trace.pods().len(), "pod"),
        seeds[0],
        seeds[seeds.len() - 1],
        first.0,
    )
}
