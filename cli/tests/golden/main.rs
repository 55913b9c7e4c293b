//! The program on files: what it prints and how it ends, compared with `tests/golden`. After a wanted change:
//! `UPDATE_GOLDEN=1 cargo test -p kubectl-gpu --test golden`, then read the difference.

#![allow(clippy::unwrap_used)] // The helpers are tests too, which clippy does not see.

mod bad_input;
mod batch;
mod explain;
mod migrate;
mod program;
mod words;

use program::{golden, run};

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
fn extended_resources() {
    for (command, pod) in
        [("allocate", "one"), ("allocate", "three"), ("explain", "many"), ("explain", "other")]
    {
        let name = format!("{command}-extended-{pod}");
        golden(&name, &[command, &format!("pod/{pod}"), "-f", "../extended.yaml"], "");
    }
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
