//! Times allocations: one JSON request per line on standard input, `{"id","p50_ns","p99_ns",…}` per line on standard
//! output. The counterpart of `oracle -measure`, for `cargo xtask bench allocator`.
//!
//! Each repetition has a fresh allocator; compiled selectors and what a watch would keep (inventory, what is held,
//! classes, claims) exist before.

use std::io::{BufRead as _, Write as _};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde::Deserialize;
use serde_json::{Value, json};
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;

const MOST_REPETITIONS: usize = 2_000;
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
struct Line {
    id: Value,
    node: Option<core::Node>,
    #[serde(default)]
    nodes: Vec<core::Node>,
    #[serde(default)]
    slices: Vec<ResourceSlice>,
    #[serde(default)]
    classes: Vec<DeviceClass>,
    #[serde(default)]
    allocated: Vec<ResourceClaim>,
    #[serde(default)]
    claims: Vec<ResourceClaim>,
}

type Failure = Box<dyn std::error::Error>;

fn measure(line: &str, selectors: &mut SelectorCache) -> Result<Value, Failure> {
    let line: Line = serde_json::from_str(line)?;
    let mut inventory = Inventory::new();
    for slice in &line.slices {
        inventory.add(slice)?;
    }
    inventory.shrink_to_fit();
    let mut held = Held::new();
    for claim in &line.allocated {
        held.add(&inventory, claim)?;
    }
    let classes: Classes = line.classes.iter().map(Class::from).collect();
    let claims: Vec<Claim> = line.claims.iter().map(Claim::try_from).collect::<Result<_, _>>()?;
    let mut nodes: Vec<Node> = line.nodes.iter().map(Node::from).collect();
    if nodes.is_empty() {
        nodes.push(line.node.as_ref().map(Node::from).unwrap_or_default());
    }
    let mut shares = 0u64;
    let mut share_id = || {
        shares += 1;
        format!("00000000-0000-4000-8000-{shares:012x}")
    };
    let mut times = Vec::new();
    let (mut is_allocated, mut error) = (false, None);
    let begin = Instant::now();
    while times.len() < MOST_REPETITIONS && (times.is_empty() || begin.elapsed() < LONGEST) {
        (is_allocated, error) = (false, None);
        let start = Instant::now();
        let allocator = Allocator::new(&inventory, &held, &classes);
        for node in &nodes {
            match allocator.allocate(node, &claims, selectors, &mut share_id) {
                Ok(results) => is_allocated |= std::hint::black_box(results).is_some(),
                Err(reason) => error = Some(reason.to_string()),
            }
        }
        times.push(start.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    let footprint = inventory.footprint();
    Ok(json!({
        "id": line.id,
        "p50_ns": times[times.len() / 2],
        "p99_ns": times[times.len() * 99 / 100],
        "repetitions": times.len(),
        "allocated": is_allocated,
        "error": error,
        "devices": footprint.devices,
        "bytes_per_device": footprint.bytes.checked_div(footprint.devices),
    }))
}

fn main() -> Result<(), Failure> {
    let mut selectors = SelectorCache::new();
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if !line.trim().is_empty() {
            writeln!(output, "{}", measure(&line, &mut selectors)?)?;
            output.flush()?;
        }
    }
    Ok(())
}
