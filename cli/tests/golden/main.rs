//! The program on files: what it prints and how it ends, compared with `tests/golden`. After a wanted change:
//! `UPDATE_GOLDEN=1 cargo test -p kubectl-gpu --test golden`, then read the difference.

#![allow(clippy::unwrap_used)] // The helpers are tests too, which clippy does not see.

mod batch;
mod migrate;
mod program;
mod words;

use program::{folder, golden, run};

#[test]
fn doctor() {
    golden("doctor", &["doctor", "-f", "../doctor.yaml"], "");
    golden("doctor-node", &["doctor", "-f", "../doctor.yaml", "--node", "node-b"], "");
    golden("doctor-json", &["doctor", "-f", "../doctor.yaml", "--node", "node-c", "-o", "json"], "");
    golden("doctor-well", &["doctor", "-f", "../doctor-well.yaml"], "");
    let clean = ["doctor", "-f", "../doctor-clean.yaml"];
    golden("doctor-clean", &clean, "");
    golden("doctor-asked", &[&clean[..], &["-f", "../doctor-asked.yaml"]].concat(), "");
    // What NVIDIA's driver lets pass where it publishes no partitions.
    let selectors = ["doctor", "-f", "../doctor-selectors.yaml"];
    golden("doctor-selectors", &selectors, "");
    golden("doctor-no-node", &["doctor", "-f", "../doctor.yaml", "--node", "node-x"], "");
}

#[test]
fn top() {
    for rows in ["nodes", "cards", "pods", "namespaces"] {
        golden(&format!("top-{rows}"), &["top", rows, "-f", "../fleet.json"], "");
    }
    golden("top-sorted", &["top", "pods", "-f", "../fleet.json", "--sort-by", "memory", "-n", "search"], "");
    golden("top-json", &["top", "namespaces", "-f", "../fleet.json", "-o", "json", "--node", "node-a"], "");
    golden("top-no-node", &["top", "cards", "-f", "../fleet.json", "--node", "node-c"], "");
    for rows in ["pods", "namespaces"] {
        golden(&format!("top-{rows}-teams"), &["top", rows, "-f", "../teams-fleet.json"], "");
    }
    golden("top-idle", &["top", "--idle", "-f", "../idle-fleet.json"], "");
    golden("top-idle-json", &["top", "--idle", "-n", "vision", "-f", "../idle-fleet.json", "-o", "json"], "");
    golden("top-idle-nobody", &["top", "--idle", "-f", "../fleet.json"], "");
    golden("top-no-fleet", &["top", "-f", "slices.yaml"], "");
}

#[test]
fn queue() {
    golden("queue", &["queue", "-f", "../fleet.json"], "");
    golden("queue-json", &["queue", "-n", "search", "-f", "../fleet.json", "-o", "json"], "");
    golden("queue-teams", &["queue", "-f", "../teams-fleet.json"], "");
    golden("queue-teams-json", &["queue", "-n", "images", "-f", "../teams-fleet.json", "-o", "json"], "");
    golden("queue-nobody", &["queue", "-n", "nobody", "-f", "../fleet.json"], "");
}

/// As who knows kubectl types it.
#[test]
fn all_namespaces_are_the_default() {
    for (command, file) in
        [("queue", "../fleet.json"), ("top", "../fleet.json"), ("get", "../partitions.yaml")]
    {
        let all = run(&[command, "-f", file], "");
        assert_eq!(all.status.code(), Some(0), "{command}");
        assert_eq!(run(&[command, "-n", "nobody", "-A", "-f", file], "").stdout, all.stdout, "{command}");
    }
}

const ADVISE: [&str; 5] = ["advise", "--fleet", "../advise-fleet.json", "-f", "../advise.yaml"];

#[test]
fn advise() {
    let with = |more: &[&'static str]| [&ADVISE[..], more].concat();
    golden("advise", &with(&[]), "");
    golden("advise-yaml", &with(&["-o", "yaml"]), "");
    golden("advise-json", &with(&["-n", "vision", "-o", "json"]), "");
    golden("advise-longer", &with(&["-n", "search", "--min-observed", "8h"]), "");
    golden("advise-nothing", &with(&["-n", "search", "--min-observed", "48h", "-o", "yaml"]), "");
    let shared = ["advise", "--fleet", "../advise-neighbours.json", "-f", "../advise.yaml"];
    golden("advise-neighbours", &shared, "");
    golden("advise-neighbours-json", &[&shared[..], &["-n", "team", "-o", "json"]].concat(), "");
    golden("advise-nobody", &with(&["-n", "nobody"]), "");
    golden("advise-no-time", &with(&["--min-observed", "3"]), "");
    golden("advise-no-fleet", &["advise", "--fleet", "slices.yaml", "-f", "../advise.yaml"], "");
}

/// What is advised is there to be had, by the same scheduler that the claims came to.
#[test]
fn advised_manifests_can_be_allocated() {
    let output = run(&[&ADVISE[..], &["-o", "yaml"]].concat(), "");
    let advised = String::from_utf8(output.stdout).unwrap();
    // A template is tried by a pod that names it.
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: tries, namespace: vision}\nspec:\n  containers: [{name: \
               c, image: i, resources: {claims: [{name: gpu}]}}]\n  resourceClaims: [{name: gpu, \
               resourceClaimTemplateName: train-advised}]\n";
    for (namespace, subject, device) in [
        ("vision", "pod/tries", "gpu-9a-00-mig-2g20gb-0"),
        ("search", "claim/notebook-advised", "gpu-18-00-mps"),
        ("research", "claim/render-advised", "gpu-02-00-ts"),
    ] {
        let arguments = ["allocate", subject, "-n", namespace, "-f", "../advise.yaml", "-f", "-"];
        let output = run(&arguments, &format!("{advised}{pod}"));
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{subject}: {said}\n{advised}");
        assert!(said.contains(&format!(" {device} ")) || said.contains(&format!(" {device}\n")), "{said}");
    }
}

#[test]
fn defrag() {
    // Two small partitions in the wrong places, and a whole card without an owner.
    let partitions = |more: &[&'static str]| {
        [&["defrag", "-f", "../partitions.yaml", "-f", "../defrag-partitions.yaml"], more].concat()
    };
    golden("defrag-profile", &partitions(&["--profile", "3g.40gb"]), "");
    golden("defrag-fits", &partitions(&["--profile", "2g.20gb"]), "");
    golden("defrag-stays", &partitions(&["--cards", "1"]), "");
    golden("defrag-too-large", &partitions(&["--cards", "3"]), "");
    golden("defrag-no-profile", &partitions(&["--profile", "half"]), "");
    golden("defrag-no-such-profile", &partitions(&["--profile", "1g.5gb"]), "");
    let managed = |more: &[&'static str]| [&["defrag", "-f", "../defrag-managed.yaml"], more].concat();
    golden("defrag-for", &managed(&["--for", "pod/train"]), "");
    golden("defrag-waiting", &managed(&[]), "");
    golden("defrag-json", &managed(&["--cards", "2", "-o", "json"]), "");
    golden("defrag-empty-node", &managed(&["--empty-node"]), "");
    golden("defrag-runs", &managed(&["--for", "pod/embed-0"]), "");
    golden("defrag-nobody", &partitions(&[]), "");
}

#[test]
fn simulate() {
    let (nodes, pods) = (
        "../../../crates/scheduling/simulate/tests/data/nodes.csv",
        "../../../crates/scheduling/simulate/tests/data/pods.csv",
    );
    let some = ["simulate", "--openb", nodes, pods, "--policy", "tessera-bare,fgd,random", "--runs", "3"];
    golden("simulate", &some, "");
    // All policies: these numbers are the same everywhere, and change only with a policy.
    golden(
        "simulate-json",
        &["simulate", "--openb", nodes, pods, "--runs", "2", "--seed", "7", "-o", "json"],
        "",
    );
    golden("simulate-swapped", &["simulate", "--openb", pods, nodes], "");
    golden("simulate-no-file", &["simulate", "--openb", nodes, "no-such.csv"], "");
    golden("simulate-no-policy", &["simulate", "--openb", nodes, pods, "--policy", "fgd,first"], "");
    golden("simulate-no-runs", &["simulate", "--openb", nodes, pods, "--runs", "0"], "");
}

const MEMORY: &str = r#"device.attributes["gpu.tessera.dev"].memoryMiB >= 40000"#;

#[test]
fn cel() {
    let some = r#"device.attributes["gpu.tessera.dev"].index < 2"#;
    golden("cel-matches", &["cel", some, "-f", "slices.yaml"], "");
    golden("cel-none", &["cel", "device.driver == 'x'", "-f", "slices.yaml"], "");
    let misspelt = r#"device.attributes["gpu.tessera.dev"].memoryMib >= 40000 && device.driver == "x""#;
    golden("cel-misspelt", &["cel", misspelt, "-f", "slices.yaml", "-v"], "");
    golden("cel-no-selector", &["cel", "device.driver + 1", "-f", "slices.yaml"], "");
    golden("cel-device", &["cel", MEMORY, "-f", "slices.yaml", "--device", "node-a/gpu-18-00"], "");
    golden(
        "cel-device-json",
        &["cel", MEMORY, "-f", "slices.yaml", "--device", "node-b/gpu-18-00", "-o", "json"],
        "",
    );
    golden("cel-device-ambiguous", &["cel", MEMORY, "-f", "slices.yaml", "--device", "gpu-18-00"], "");
}

#[test]
fn allocate() {
    golden("allocate", &["allocate", "-f", "."], "");
    golden("allocate-claim-yaml", &["allocate", "claim/one", "-f", ".", "-o", "yaml"], "");
    golden("allocate-unknown", &["allocate", "pod/trainr", "-f", "."], "");
    golden("allocate-without-cluster", &["allocate", "-f", "waiting.yaml"], "");
}

#[test]
fn pools() {
    let file = "../pools.yaml";
    golden("pools", &["pools", "-f", file], "");
    golden("pools-wide", &["pools", "-f", file, "-o", "wide"], "");
    golden("pools-training", &["pools", "training", "-f", file], "");
    golden("pools-inference-wide", &["pools", "inference", "-f", file, "-o", "wide"], "");
    golden("pools-inference-json", &["pools", "inference", "-f", file, "-o", "json"], "");
    golden("pools-broken", &["pools", "broken", "-f", file], "");
    golden("pools-notebooks", &["pools", "notebooks", "-f", file], "");
    golden("pools-unknown", &["pools", "trainings", "-f", file], "");
    golden("pools-none", &["pools", "-f", "slices.yaml"], "");
}

#[test]
fn quota() {
    let file = "../quotas.yaml";
    golden("quota", &["quota", "-f", file], "");
    golden("quota-wide", &["quota", "-f", file, "-o", "wide"], "");
    golden("quota-vision", &["quota", "vision", "-f", file], "");
    golden("quota-vision-json", &["quota", "vision", "-f", file, "-o", "json"], "");
    golden("quota-research", &["quota", "research", "-f", file], "");
    golden("quota-native", &["quota", "-f", file, "--native"], "");
    golden("quota-native-research", &["quota", "research", "-f", file, "--native"], "");
    golden("quota-unknown", &["quota", "visoin", "-f", file], "");
    golden("quota-none", &["quota", "-f", "slices.yaml"], "");
}

#[test]
fn kueue() {
    golden("kueue", &["kueue", "-f", "../kueue.yaml"], "");
    golden("kueue-admission-check", &["kueue", "-f", "../kueue.yaml", "--admission-check"], "");
    golden("kueue-configuration", &["kueue", "-f", "../kueue.yaml", "--configuration"], "");
    golden("kueue-no-pool", &["kueue", "-f", "../quotas.yaml", "-f", "../pools.yaml"], "");
}

#[test]
fn report() {
    let file = "../quotas.yaml";
    let of = |more: &[&'static str]| [&["report", "-f", file], more].concat();
    golden("report", &of(&[]), "");
    golden("report-csv", &of(&["--from", "2026-10", "--to", "2026-10-01", "-o", "csv"]), "");
    golden("report-cost", &of(&["--from", "2026-11-01", "--to", "2026-11", "--price", "2.5"]), "");
    let models = ["--by-model", "--from", "2026-10", "--price", "NVIDIA H100 80GB HBM3=2.5", "--price", "1"];
    golden("report-models", &of(&models), "");
    golden("report-models-csv", &of(&[&models[..], &["-o", "csv"]].concat()), "");
    golden("report-json", &of(&["--to", "2026-09", "--price", "2", "-o", "json"]), "");
    golden("report-nothing", &of(&["--from", "2027-01"]), "");
    golden("report-no-quota", &["report", "-f", "slices.yaml"], "");
    golden("report-no-date", &of(&["--from", "lately"]), "");
}

#[test]
fn a_pool_that_says_what_no_pool_can_is_placed() {
    let pool =
        "apiVersion: gpu.tessera.dev/v1alpha1\nkind: GpuPool\nmetadata: {name: a}\nspec:\n  prority: 1\n";
    let output = run(&["pools", "-f", "-"], pool);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard input, document 1, line ") && said.contains("`prority`"), "{said}");
}

/// A fault under a running pod, a layout that waits, a card of which nothing is offered, and pods that see cards without a claim.
#[test]
fn what_is_wrong_with_cards_is_named_everywhere() {
    let file = ["-f", "../faults.yaml"];
    golden("faults-topology", &[&["topology"][..], &file].concat(), "");
    golden("faults-topology-node", &[&["topology", "node-a"][..], &file].concat(), "");
    golden("faults-explain", &[&["explain", "pod/linked", "-n", "team"][..], &file].concat(), "");
    golden("faults-doctor", &[&["doctor"][..], &file].concat(), "");
}

#[test]
fn topology() {
    let file = "../pools.yaml";
    golden("topology", &["topology", "-f", file], "");
    golden("topology-node-a", &["topology", "node-a", "-f", file], "");
    golden("topology-node-b", &["topology", "node-b", "-f", file], "");
    golden("topology-node-b-json", &["topology", "node-b", "-f", file, "-o", "json"], "");
    golden("topology-node-c", &["topology", "node-c", "-f", file], "");
    golden("topology-unknown", &["topology", "nod-a", "-f", file], "");
    golden("topology-unreported", &["topology", "node-a", "-f", "slices.yaml", "-f", "cluster.yaml"], "");
}

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

#[test]
fn get() {
    let file = "../partitions.yaml";
    golden("get", &["get", "-f", file], "");
    golden("get-wide", &["get", "devices", "-f", file, "-o", "wide", "--all"], "");
    golden("get-claims", &["get", "claims", "-f", file, "-o", "wide"], "");
    golden("get-shares", &["get", "-f", "../pools.yaml"], "");
    golden("get-json", &["get", "devices", "-f", "../pools.yaml", "--node", "node-b", "-o", "json"], "");
    golden("get-nothing", &["get", "claims", "-f", file, "-n", "nobody"], "");
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
fn partitions() {
    let file = "../partitions.yaml";
    for name in ["wants-card", "wants-full", "wants-half", "wants-many", "wants-other"] {
        golden(&format!("partitions-{name}"), &["explain", &format!("claim/{name}"), "-f", file], "");
    }
    golden("partitions-wants-full-yaml", &["explain", "claim/wants-full", "-f", file, "-o", "yaml"], "");
    golden("partitions-has-part", &["explain", "claim/has-part", "-f", file], "");
    golden("partitions-allocate", &["allocate", "-f", file], "");
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

#[test]
fn new_expressions_are_refused_as_the_api_server_refuses_them() {
    let complex = r#"device.attributes["gpu.tessera.dev"].productName.matches(device.driver) &&
        lists.range(2000).all(x, lists.range(2000).all(y, device.driver != ""))"#;
    golden("cel-complex", &["cel", complex, "-f", "slices.yaml", "--device", "node-a/gpu-18-00"], "");
    let unbounded = r#"true || device.driver.split("").all(a, device.driver.split("").all(b, device.driver.split("").all(c, a + b + c != "")))"#;
    golden("cel-unbounded", &["cel", unbounded, "-f", "slices.yaml"], "");
    golden(
        "cel-complex-json",
        &["cel", unbounded, "-f", "slices.yaml", "-o", "json", "--device", "node-b/gpu-18-00"],
        "",
    );
    let gated = r#"device.attributes["gpu.tessera.dev"].type.includes("gpu")"#;
    golden("cel-gated", &["cel", gated, "-f", "slices.yaml"], "");
    let long = format!("device.driver == '{}'", "x".repeat(11_000));
    let output = run(&["cel", &long, "-f", "slices.yaml"], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("Too long: may not be more than 10240 bytes; it has 11019"), "{said}");
}

#[test]
fn extended_resources() {
    for (command, pod) in
        [("allocate", "one"), ("allocate", "three"), ("explain", "many"), ("explain", "other")]
    {
        let name = format!("{command}-extended-{pod}");
        golden(&name, &[command, &format!("pod/{pod}"), "-f", "../extended.yaml"], "");
    }
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
fn files_without_objects() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    file("empty.yaml", "");
    file("comments.yaml", "# nothing\n---\n# more\n---\n");
    let of = |name: &str| {
        let path = folder.path().join(name);
        let output = run(&["allocate", "-f", path.to_str().unwrap()], "");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for name in ["empty.yaml", "comments.yaml"] {
        let (code, said) = of(name);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(name) && said.contains("has no Kubernetes object in it"), "{said}");
    }
    // Beside a file that has one it is worth a word.
    file("größe.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: knöten}\n");
    let path = folder.path().to_str().unwrap();
    let output = run(&["allocate", "claim/ä", "-f", path], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("warning: ") && said.contains("there is no ResourceClaim ä"), "{said}");
    assert_eq!(run(&["allocate", "-f", "-"], "").status.code(), Some(2));
}

/// A file of aliases that would be billions of values, and one of a hundred thousand levels.
#[test]
fn bombs_end_in_an_error() {
    let mut bomb = String::from("k0: &k0 [x, x]\n");
    for level in 1..40 {
        bomb += &format!("k{level}: &k{level} [*k{}, *k{}]\n", level - 1, level - 1);
    }
    for text in [bomb, "[".repeat(100_000), format!("a: {}", "{b: ".repeat(100_000))] {
        let output = run(&["allocate", "-f", "-"], &text);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("error: standard input, document 1, line "), "{said}");
        assert!(said.len() < 1000, "{said}");
    }
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

/// DeviceTaintRules count like the taints of devices.
#[test]
fn rules_that_taint_devices_are_respected() {
    for claim in ["one", "two", "tolerant"] {
        let name = format!("explain-taint-rules-{claim}");
        golden(&name, &["explain", &format!("claim/{claim}"), "-f", "../taint-rules.yaml"], "");
    }
    golden("allocate-taint-rules", &["allocate", "-f", "../taint-rules.yaml"], "");
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

#[test]
fn documents_that_are_no_objects_are_placed() {
    let slices = std::fs::read_to_string(folder().join("data/slices.yaml")).unwrap();
    let with = |more: &str| format!("{slices}---\n{more}");
    let arguments = ["allocate", "-f", "-"];
    golden("document-no-object", &arguments, &with("hello: world\n"));
    golden("document-wrong-type", &arguments, &with("apiVersion: v1\nkind: Pod\nmetadata:\n  name: [a]\n"));
    golden("document-broken", &arguments, &with("apiVersion: v1\nkind: {\n"));
    golden("document-twice", &arguments, &format!("{slices}\n---\n{slices}"));
    let old = "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: a}\n";
    golden("document-old-version", &arguments, &with(old));
    let unknown = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec:\n  devices:\n    \
                   requests:\n    - name: r\n      exactly:\n        deviceClasName: x\n        deviceClassName: c\n";
    golden("document-unknown-field", &arguments, &with(unknown));
}

#[test]
fn line_protocols() {
    let cel = concat!(
        r#"{"id":1,"expression":"device.driver == \"d\"","driver":"d"}"#,
        "\nbroken\n\n[]\n",
        r#"{"id":2,"expression":7}"#,
        "\n",
        r#"{"id":"three","expression":"device.capacity[\"d\"].m.compareTo(quantity(\"1Ki\")) == 0","driver":"d","capacity":{"m":{"value":1024}}}"#,
        "\n",
        r#"{"id":4,"expression":"device.attributes[\"d\"].x","driver":"d"}"#,
        "\n",
        r#"{"id":5,"expression":"1 +"}"#
    );
    golden("cel-lines", &["cel", "--lines"], cel);
    let slice = r#"{"metadata":{"name":"s"},"spec":{"driver":"d","nodeName":"n","pool":{"name":"n","generation":1,"resourceSliceCount":1},"devices":[{"name":"a"},{"name":"b"}]}}"#;
    let claim = |count: u32| {
        format!(
            r#"{{"metadata":{{"name":"c","namespace":"x"}},"spec":{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"k","allocationMode":"ExactCount","count":{count}}}}}]}}}}}}"#
        )
    };
    let request = |id: u32, count: u32, class: &str| {
        format!(
            r#"{{"id":{id},"node":{{"metadata":{{"name":"n"}}}},"slices":[{slice}],"classes":[{{"metadata":{{"name":"{class}"}},"spec":{{}}}}],"allocated":[],"claims":[{}]}}"#,
            claim(count)
        )
    };
    let lines = format!(
        "{}\n{}\n{}\n{}\n",
        request(1, 2, "k"),
        request(2, 3, "k"),
        request(3, 1, "other"),
        r#"{"id":4,"features":["Nonsense"],"claims":[]}"#
    );
    golden("allocate-lines", &["allocate", "--lines"], &lines);
}

#[test]
fn misuse_ends_with_2() {
    for arguments in [
        &["allocate", "pod", "-f", "."][..],
        &["explain", "-f", "."],
        &["cel"],
        &["allocate", "-f", "no-such-file"],
        &["allocate", "-f", "no-such-\u{1b}[31mfile"],
        &["allocate", "--lines", "-f", "."],
        &["nonsense"],
        &["topology", "a", "b"],
        &["advise", "--min-observed", "-1h"],
        &["advise", "--min-observed", "soon"],
        &["pools", "-f", ".", "-o", "text"],
        &["ungate"],
        &["migrate"],
        &["migrate", "--from", "hami"],
        &["get", "pods"],
        &["get", "-w", "-f", "."],
        &["resume"],
        &["resume", "claim/x", "--kubeconfig", "no-such-kubeconfig"],
        &["ungate", "pod", "--all"],
        &["ungate", "claim/x", "--kubeconfig", "no-such-kubeconfig"],
    ] {
        let output = run(arguments, "");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?} says nothing");
        assert!(!output.stderr.contains(&0x1b), "{arguments:?} controls the terminal");
    }
}

/// A name with `-A` would be a pod of which namespace?
#[test]
fn ungate_takes_names_or_all() {
    for arguments in
        [&["ungate", "pod", "--all"][..], &["ungate", "pod", "-A"], &["ungate", "--all", "-A", "-n", "x"]]
    {
        let said = String::from_utf8(run(arguments, "").stderr).unwrap();
        assert!(said.contains("cannot be used with"), "{arguments:?}: {said}");
    }
}
