//! `cargo xtask oracle`: compares our allocator with Kubernetes' own on generated requests.

mod shrink;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Value;
use tessera_allocator::selectors::SelectorCache;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_harness::workspace;
use tessera_oracle::{Generator, Oracle, ours};

/// Arguments of `cargo xtask oracle`.
#[derive(Args)]
pub struct OracleArguments {
    /// Seed of the requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of requests.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Release of Kubernetes that is asked, and answered as.
    #[arg(long, default_value_t)]
    kubernetes: KubernetesVersion,
}

/// Both answers to a request, in the compared form.
fn answers(
    version: KubernetesVersion,
    oracle: &mut Oracle,
    selectors: &mut SelectorCache,
    request: &Value,
) -> Result<[Value; 2]> {
    let theirs: Value = serde_json::from_str(&oracle.ask(&request.to_string()))?;
    // Half of the requests prune from the start.
    let patience = request["id"].as_u64().unwrap_or(0).is_multiple_of(2).then_some(0);
    let ours = ours::answer_as(version, request, selectors, patience);
    Ok([ours::comparable(&ours), ours::comparable(&theirs)])
}

/// Compares; a disagreement is shrunk and added to the allocator's test cases.
///
/// # Errors
/// When the oracle does not answer or a case cannot be written.
pub fn run(arguments: &OracleArguments) -> Result<ExitCode> {
    let version = arguments.kubernetes;
    let mut oracle = Oracle::start(version);
    let mut selectors = SelectorCache::new();
    let mut generator = Generator::new(arguments.seed);
    let (mut allocated, mut unfit, mut failed, mut disagreements) = (0u64, 0u64, 0u64, 0u64);
    for id in 0..arguments.count {
        let request = generator.request(id);
        let [ours, theirs] = answers(version, &mut oracle, &mut selectors, &request)?;
        match (theirs["error"].is_string(), theirs["allocations"].is_array()) {
            (true, _) => failed += 1,
            (_, true) => allocated += 1,
            _ => unfit += 1,
        }
        if ours == theirs {
            continue;
        }
        disagreements += 1;
        if disagreements > 5 {
            continue;
        }
        let small = shrink::shrink(request, |request| {
            answers(version, &mut oracle, &mut selectors, request).is_ok_and(|[ours, theirs]| ours != theirs)
        });
        let [ours, theirs] = answers(version, &mut oracle, &mut selectors, &small)?;
        let path = workspace::root()
            .join(format!("crates/scheduling/allocator/tests/cases/seed-{}-{id}.json", arguments.seed));
        std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&small)?))
            .with_context(|| format!("write {}", path.display()))?;
        println!("disagreement, kept as {}\n  ours       {ours}\n  Kubernetes {theirs}", path.display());
    }
    println!(
        "seed {}: {} requests: {allocated} allocated, {unfit} do not fit, {failed} failed, {disagreements} disagreements",
        arguments.seed, arguments.count
    );
    Ok(if disagreements == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
