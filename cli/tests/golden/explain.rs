//! `kubectl gpu explain`.

use crate::program::{golden, run};

/// Gates, pools and room besides devices.
#[test]
fn explain_steering() {
    let file = "../pools.yaml";
    for pod in ["gated", "queued", "crowded", "proposed", "nothing", "unmade", "noted", "with-disk"] {
        golden(&format!("steering-{pod}"), &["explain", &format!("pod/{pod}"), "-f", file], "");
    }
    golden("steering-gated-allocate", &["allocate", "pod/gated", "-f", file], "");
    golden("steering-crowded-allocate", &["allocate", "pod/crowded", "-f", file], "");
    golden("steering-proposed-json", &["explain", "pod/proposed", "-f", file, "-o", "json"], "");
}

/// Which alternative it is, and why not an earlier one.
#[test]
fn explain_alternatives() {
    let files = ["-f", "../partitions.yaml", "-f", "../alternatives.yaml"];
    for name in ["first-fits", "last-fits", "none-fits", "has-half"] {
        let claim = format!("claim/{name}");
        golden(&format!("alternatives-{name}"), &[&["explain", &claim], &files[..]].concat(), "");
    }
    let json = [&["explain", "claim/last-fits", "-o", "json"], &files[..]].concat();
    let output = run(&json, "");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.matches("\"passedAlternatives\"").count(), 1, "{said}");
}

/// A request that names no type of device gets a whole card where there is one.
#[test]
fn explain_says_how_to_ask_for_less_than_a_card() {
    let files = ["-f", "../partitions.yaml", "-f", "../alternatives.yaml"];
    for name in ["wants-any", "wants-most", "has-any"] {
        let claim = format!("claim/{name}");
        golden(&format!("alternatives-{name}"), &[&["explain", &claim], &files[..]].concat(), "");
    }
}

#[test]
fn explain() {
    golden("explain-in-use", &["explain", "pod/trainer", "-f", "."], "");
    golden("explain-in-use-verbose", &["explain", "pod/trainer", "-f", ".", "-v"], "");
    golden("explain-fits", &["explain", "pod/small", "-f", "."], "");
    golden("explain-selector", &["explain", "claim/large", "-f", "."], "");
    golden("explain-misspelt", &["explain", "claim/misspelt", "-f", "."], "");
    golden("explain-allocated", &["explain", "claim/five", "-n", "research", "-f", "."], "");
}

/// Nodes with so many claims that not all can be thought away in turn.
#[test]
fn explain_says_where_it_did_not_look() {
    let mut text = String::from(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec: {}\n---\n\
         apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: wanted}\nspec: {devices: {requests: \
         [{name: r, exactly: {deviceClassName: c, count: 30}}]}}\n",
    );
    for node in 0..20 {
        let devices: Vec<String> = (0..40).map(|device| format!("{{name: d{device}}}")).collect();
        text += &format!(
            "---\napiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: s{node}}}\nspec: {{driver: d, \
             nodeName: n{node:02}, pool: {{name: n{node:02}, generation: 1, resourceSliceCount: 1}}, devices: [{}]}}\n",
            devices.join(", ")
        );
        // The last nodes lack less, and are looked at first.
        for device in 0..40 - node {
            text += &format!(
                "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: n{node:02}-{device}}}\nspec: \
                 {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: c}}}}]}}}}\nstatus: {{allocation: \
                 {{devices: {{results: [{{request: r, driver: d, pool: n{node:02}, device: d{device}}}]}}}}}}\n"
            );
        }
    }
    golden("explain-untried", &["explain", "claim/wanted", "-f", "-"], &text);
}

#[test]
fn explain_shares_counters_taints_and_constraints() {
    for claim in ["wants-whole", "wants-share", "wants-turns", "wants-sick", "wants-pair"] {
        let name = format!("explain-{claim}");
        golden(&name, &["explain", &format!("claim/{claim}"), "-f", "../sharing.yaml"], "");
    }
    golden("explain-json", &["explain", "claim/wants-whole", "-f", "../sharing.yaml", "-o", "json"], "");
}

/// No claim may tolerate the taint of managed cards, so that is no change that would help.
#[test]
fn explain_says_who_allocates_managed_cards() {
    for claim in ["one", "two"] {
        let name = format!("explain-managed-{claim}");
        golden(&name, &["explain", &format!("claim/{claim}"), "-f", "../managed.yaml"], "");
    }
    golden("explain-managed-extended", &["explain", "pod/asks", "-f", "../managed.yaml"], "");
    golden("explain-managed-converted", &["explain", "pod/converted", "-f", "../managed.yaml"], "");
}

/// The pod is bound, and its containers wait for a device that the plugin cannot prepare.
#[test]
fn explain_says_what_cannot_be_prepared() {
    for subject in ["pod/waits", "pod/runs", "claim/waits"] {
        let name = format!("explain-unprepared-{}", subject.replace('/', "-"));
        golden(&name, &["explain", subject, "-f", "../unprepared.yaml"], "");
    }
}

/// Priorities do nothing where kube-scheduler gives out devices.
#[test]
fn explain_says_who_of_lower_priority_stays() {
    for pod in ["urgent", "patient"] {
        let name = format!("explain-priorities-{pod}");
        golden(&name, &["explain", &format!("pod/{pod}"), "-f", "../priorities.yaml"], "");
    }
}

/// Claims that the API server refuses to make.
#[test]
fn explain_names_the_quota() {
    for pod in ["over", "refused", "extended", "made"] {
        let name = format!("explain-quota-{pod}");
        golden(&name, &["explain", &format!("pod/{pod}"), "-f", "../quota.yaml"], "");
    }
    golden("explain-quota-json", &["explain", "pod/over", "-f", "../quota.yaml", "-o", "json"], "");
}
