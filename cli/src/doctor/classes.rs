//! Selectors without matches, matching partitions too, or failing on a device.

use super::asked::{Asked, Failure, Verdict};
use super::{Facts, Finding, error, warning};

/// Problems of selectors, on the published devices.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    facts.published.asked().filter_map(|asked| finding(asked, facts.driver)).collect()
}

fn finding(asked: &Asked, driver: &str) -> Option<Finding> {
    let about = &asked.about;
    match asked.verdict(driver) {
        Verdict::Fails(failure) => Some(fails(asked, failure, driver)),
        // For claims, `kubectl gpu explain` reports this.
        _ if !asked.is_class => None,
        Verdict::Well => None,
        Verdict::Wrong(wrong) => Some(error(
            about,
            format!("the selector is not valid: {wrong}"),
            "correct it; kubectl gpu cel EXPRESSION tests one",
        )),
        Verdict::Nothing if asked.may_match_nothing => None,
        Verdict::Nothing => Some(warning(
            about,
            "no device matches it: pods with this class wait",
            format!(
                "kubectl gpu cel '{}' -v lists the devices; --device NAME shows the value of each part",
                asked.expressions.join(" && ")
            ),
        )),
        Verdict::ByAccident(types, other) => Some(warning(
            about,
            format!(
                "selects no type of device and matches {}: a request for a whole card gets {other} once no whole \
                 card is free",
                types.iter().map(|name| told_type(name)).collect::<Vec<_>>().join(" and ")
            ),
            format!(
                "add && device.attributes[\"{driver}\"].?type.orValue(\"\") == \"gpu\" to the selector (to take \
                 either, ask for a partition, else a card, with firstAvailable: \
                 examples/partitions/partition-or-card.yaml); or offer whole cards only, by a GpuPool with \
                 offer.partitioning.mode None (docs/gpu-pools.md)"
            ),
        )),
    }
}

fn fails(asked: &Asked, failure: &Failure, driver: &str) -> Finding {
    let Failure { device, node, is_partition, error: wrong } = failure;
    let kind = if *is_partition { "partition " } else { "" };
    let who = if asked.is_class { "pods with this class" } else { "its pods" };
    let what = format!(
        "the selector fails on {kind}{device} of {} ({wrong}): kube-scheduler cannot schedule {who} once it \
         evaluates this device",
        node.as_deref().unwrap_or("no node")
    );
    let wrong = wrong.to_string();
    let guarded = wrong.strip_prefix("no such key: ").map_or_else(
        || "guard the failing part: kubectl gpu cel EXPRESSION --device NAME shows it".to_owned(),
        |key| {
            format!("write device.attributes[\"{driver}\"].?{key}.orValue(\"\") in place of device.attributes[\"{driver}\"].{key}")
        },
    );
    let or_else = match is_partition {
        true => {
            "; or offer no partitions there, by a GpuPool with offer.partitioning.mode None (docs/gpu-pools.md)"
        }
        false => "",
    };
    error(&asked.about, what, guarded + or_else)
}

fn told_type(name: &str) -> &str {
    match name {
        "gpu" => "whole cards",
        "mig" => "partitions",
        "mps" => "shares by MPS",
        "timeslice" => "time-slices",
        other => other,
    }
}
