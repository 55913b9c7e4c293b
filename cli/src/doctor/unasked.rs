//! Pods with visible cards on our nodes but no request for any.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

use super::{Facts, Finding, warning};
use crate::unasked::{How, Unasked};

/// Limit of nodes named; beyond the limit only their number is shown.
const NAMED: usize = 3;

/// Such pods, by their creator.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let of_files = || facts.objects.pods.values().filter_map(|pod| Unasked::of(pod)).collect();
    let all: Vec<Unasked> = match facts.live {
        Some(live) => live.unasked.clone().unwrap_or_default(),
        None => of_files(),
    };
    let mut nodes: BTreeMap<(&str, &How), (usize, BTreeSet<&str>)> = BTreeMap::new();
    for Unasked { node, owner, how } in &all {
        let has_cards = facts.published.drivers_of(node).contains(facts.driver);
        let known = facts.objects.node(node);
        if !facts.is_asked(node) || !has_cards || known.is_some_and(|node| !may_run(node)) {
            continue;
        }
        let (pods, nodes) = nodes.entry((owner, how)).or_default();
        *pods += 1;
        nodes.insert(node);
    }
    let finding = |((owner, how), (pods, nodes)): ((&str, &How), (usize, BTreeSet<&str>))| {
        let on = match nodes.len() {
            count if count > NAMED => format!("{count} nodes"),
            _ => nodes.into_iter().collect::<Vec<_>>().join(", "),
        };
        let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
        let (why, besides) = match how {
            How::Variable => (
                "NVIDIA_VISIBLE_DEVICES is set and gives access to cards where NVIDIA's runtime is the default"
                    .to_owned(),
                "make another runtime the node's default: claims do not need NVIDIA's",
            ),
            How::RuntimeClass(class) => (
                format!(
                    "the RuntimeClass {class} gives access to every card if the image sets NVIDIA_VISIBLE_DEVICES, \
                     as NVIDIA's images do"
                ),
                "leave runtimeClassName out: claims do not need it",
            ),
        };
        warning(
            owner,
            format!(
                "{pods} with cards but without a claim on {on}: {why}; this includes cards held by claims, and is \
                 not counted anywhere"
            ),
            format!(
                "add claims for the cards in use, or set NVIDIA_VISIBLE_DEVICES=void in the containers; {besides} \
                 (docs/kubernetes.md)"
            ),
        )
    };
    nodes.into_iter().map(finding).collect()
}

/// Whether the node may have NVIDIA's runtime: listed among its handlers, or the handlers are unknown.
fn may_run(node: &Node) -> bool {
    let handlers = node.status.as_ref().and_then(|status| status.runtime_handlers.as_ref());
    let Some(handlers) = handlers.filter(|handlers| !handlers.is_empty()) else { return true };
    handlers.iter().any(|handler| handler.name.as_deref().is_some_and(|name| name.contains("nvidia")))
}
