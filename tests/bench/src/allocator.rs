//! `cargo xtask bench allocator`: our allocator and Kubernetes' own on the same requests.

mod cases;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use clap::Args;
use comfy_table::Table;
use serde_json::{Value, json};
use tessera_api::kubernetes::KubernetesVersion;
use tessera_harness::workspace;

/// Arguments of `cargo xtask bench allocator`.
#[derive(Args)]
pub struct AllocatorArguments {
    /// Allocate requests, one JSON object per line; by default the built-in cases.
    #[arg(long)]
    cases: Option<PathBuf>,
    /// `json` prints one line per case instead of a table.
    #[arg(short, long, value_parser = ["table", "json"], default_value = "table")]
    output: String,
    /// Print the built-in cases, in the form of `--cases`, without measuring.
    #[arg(long)]
    print_cases: bool,
    /// Leave out the fleet of 5,000 nodes, which takes a minute to read.
    #[arg(long)]
    small: bool,
}

/// Measures and prints.
///
/// # Errors
/// When a side cannot be built or run, or the cases cannot be read.
pub fn run(arguments: &AllocatorArguments) -> Result<ExitCode> {
    let lines: Vec<String> = match &arguments.cases {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cases {}", path.display()))?
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(str::to_owned)
            .collect(),
        None => cases::all(arguments.small).iter().map(Value::to_string).collect(),
    };
    if arguments.print_cases {
        for line in lines {
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    workspace::build(&["--profile", "dist", "-p", "tessera-allocator", "--example", "measure"])?;
    let ours = measure(&workspace::target()?.join("dist/examples/measure"), &[], &lines)?;
    let theirs =
        measure(&tessera_oracle::program::path(KubernetesVersion::default()), &["-measure"], &lines)?;
    let mut table = Table::new();
    table.set_header(["case", "p50", "p99", "Kubernetes p50", "p99", "ratio p50", "p99", "result"]);
    for (our, their) in ours.iter().zip(&theirs) {
        let number = |value: &Value, name: &str| value[name].as_u64().unwrap_or_default();
        let of = |name| (number(our, name), number(their, name));
        let (p50, p99) = (of("p50_ns"), of("p99_ns"));
        if arguments.output == "json" {
            println!(
                "{}",
                json!({
                    "id": our["id"], "p50_ns": p50.0, "p99_ns": p99.0, "go_p50_ns": p50.1, "go_p99_ns": p99.1,
                    "allocated": our["allocated"], "go_allocated": their["allocated"], "go_error": their["error"],
                    "bytes_per_device": our["bytes_per_device"],
                })
            );
            continue;
        }
        let ratio = |(our, their): (u64, u64)| format!("{:.1}", their as f64 / our.max(1) as f64);
        let result = match (our["allocated"].as_bool(), their["error"].as_str()) {
            (_, Some(error)) => format!("Kubernetes: {error}"),
            (Some(true), None) => "allocated".to_owned(),
            _ => "does not fit".to_owned(),
        };
        table.add_row([
            our["id"].to_string(),
            micros(p50.0),
            micros(p99.0),
            micros(p50.1),
            micros(p99.1),
            ratio(p50),
            ratio(p99),
            result,
        ]);
    }
    if arguments.output == "table" {
        println!("{table}\nTimes are in µs.");
    }
    Ok(ExitCode::SUCCESS)
}

fn micros(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1e3)
}

fn measure(program: &Path, arguments: &[&str], lines: &[String]) -> Result<Vec<Value>> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let mut input = child.stdin.take().context("standard input is a pipe")?;
    let output = BufReader::new(child.stdout.take().context("standard output is a pipe")?);
    let mut answers = output.lines();
    let mut all = Vec::with_capacity(lines.len());
    for line in lines {
        input.write_all(line.as_bytes())?;
        input.write_all(b"\n")?;
        let answer = answers.next().with_context(|| format!("{} ended early", program.display()))??;
        all.push(serde_json::from_str(&answer)?);
    }
    drop(input);
    child.wait()?;
    Ok(all)
}
