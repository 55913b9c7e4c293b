//! Runs a cluster until killed or until standard input ends: for tests of the harness, and as a quick way to a
//! cluster by hand.
//!
//! Arguments: the tier (`scheduler` or `node`), the number of nodes, and optionally `panic` or `release`, done once
//! the cluster is ready. The first line on standard output is then the cluster's directory.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use tessera_harness::{Cluster, ClusterOptions};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let nodes = arguments.get(1).map_or(Ok(1), |word| word.parse()).context("the number of nodes")?;
    let options = match arguments.first().map(String::as_str) {
        Some("scheduler") | None => ClusterOptions::scheduler_tier(nodes),
        Some("node") => ClusterOptions::node_tier(nodes),
        Some(other) => bail!("there is no tier {other}"),
    };
    let cluster = Cluster::start(options).await?;
    println!("{}", cluster.state().display());
    std::io::stdout().flush()?;
    eprintln!("{}export KUBECONFIG={}", cluster.timings(), cluster.kubeconfig().display());
    match arguments.get(2).map(String::as_str) {
        Some("panic") => panic!("as asked"),
        Some("release") => {
            cluster.release()?;
        }
        _ => {
            let mut input = Vec::new();
            std::io::stdin().read_to_end(&mut input)?;
            cluster.shutdown().await?;
        }
    }
    Ok(())
}
