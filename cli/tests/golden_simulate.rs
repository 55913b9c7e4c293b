//! `kubectl gpu simulate` with a fleet and a workload: what it prints and how it ends, compared with `tests/golden`. After a wanted change:
//! `UPDATE_GOLDEN=1 cargo test -p kubectl-gpu --test golden_simulate`, then read the difference.

#![allow(clippy::unwrap_used)] // The helpers are tests too, which clippy does not see.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs it where the examples are.
fn run(arguments: &[&str]) -> Output {
    run_with(arguments, "")
}

/// Runs it with this on standard input.
fn run_with(arguments: &[&str], input: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kubectl-gpu"))
        .arg("simulate")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/simulate"))
        .env("KUBECONFIG", "no-such-kubeconfig")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    program.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    program.wait_with_output().unwrap()
}

fn golden(name: &str, arguments: &[&str]) {
    let output = run(arguments);
    let found = format!(
        "$ kubectl gpu simulate {}\n{}{}exit code {}\n",
        arguments.join(" "),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
        output.status.code().unwrap()
    );
    assert!(!found.contains('\u{1b}'), "colours without a terminal");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/simulate-{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{name} differs from {}", path.display());
}

const EIGHT: [&str; 2] = ["--nodes", "8xdgx-a100,cards=4"];

/// 36 cards are asked for, and there are 32.
#[test]
fn whole_cards_need_more_than_there_is() {
    let with =
        [&EIGHT[..], &["--workload", "whole-cards.csv", "--policy", "tessera,kube-scheduler", "--runs", "1"]]
            .concat();
    golden("fleet-whole-cards", &with);
}

/// The same in shares needs 19.
#[test]
fn shares_need_nineteen_cards() {
    let price = ["--price", "A100-SXM4-80GB=1500", "--wish", "4xgpu,1xgpu,15%"];
    let with = [&EIGHT[..], &["--workload", "shares.csv"], &price].concat();
    golden("fleet-shares", &with);
}

/// The whole cards again, with how busy the pods are.
#[test]
fn what_is_used_stands_beside_what_is_allocated() {
    let workload = ["--workload", "../../cli/tests/simulate/busy.csv", "--policy", "tessera"];
    let with = [&EIGHT[..], &workload, &["--price", "A100-SXM4-80GB=1500"]].concat();
    golden("fleet-busy", &with);
}

/// Pods of openb's trace, with their times.
#[test]
fn a_trace_on_a_fleet() {
    let with = [
        "--nodes",
        "1xdgx-a100",
        "--workload",
        "../../cli/tests/simulate/trace.csv",
        "--policy",
        "tessera,hami-binpack",
    ];
    golden("fleet-trace", &[&with[..], &["--at", "20m"]].concat());
}

/// Every policy on a trace's nodes and pods, without times.
#[test]
fn a_trace() {
    const NODES: &str = "../../crates/scheduling/simulate/tests/data/nodes.csv";
    const PODS: &str = "../../crates/scheduling/simulate/tests/data/pods.csv";
    golden("trace", &["--openb", NODES, PODS, "--runs", "2"]);
}

/// All of them, on nodes that pods must share.
#[test]
fn every_policy() {
    let policies = "tessera,kube-scheduler,hami-binpack,kai-binpack,fgd,fgd-best-fit,fgd-learning,best-fit,packing,clustering,\
                    dot-product,first-fit,random";
    let with = ["--nodes", "3xdgx-h100", "--workload", "a-week.csv", "--at", "4d", "--policy", policies];
    golden("fleet-policies", &with);
}

const TEN: [&str; 6] = [
    "--nodes",
    "1xdgx-a100,cards=4",
    "--nodes",
    "1xdgx-a100,cards=3,mig=on",
    "--nodes",
    "1xdgx-a100,cards=3",
];

#[test]
fn ten_cards_are_fifty_four_gpus() {
    golden(
        "fleet-logical-gpus",
        &[&TEN[..], &["--workload", "logical-gpus.csv", "--policy", "tessera"]].concat(),
    );
    let json = ["--workload", "logical-gpus.csv", "--policy", "tessera", "-o", "json"];
    golden("fleet-json", &[&TEN[..], &json].concat());
}

/// Pods come and go; gangs begin together; with more nodes beside it.
#[test]
fn a_week() {
    let with = [
        "--workload",
        "a-week.csv",
        "--nodes",
        "3xdgx-h100",
        "--add",
        "1xdgx-h100",
        "--at",
        "4d",
        "--runs",
        "2",
    ];
    golden(
        "fleet-week",
        &[&with[..], &["--policy", "tessera,kube-scheduler", "--wish", "8xgpu,1g.10gb"]].concat(),
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let workload = ["--workload", "shares.csv"];
    golden("fleet-no-machine", &[&workload[..], &["--nodes", "2xdgx-h1000"]].concat());
    golden("fleet-no-cards", &[&workload[..], &["--nodes", "2xdgx-h100,cards=0"]].concat());
    golden("fleet-no-model", &[&EIGHT[..], &workload, &["--price", "H100=1"]].concat());
    golden("fleet-no-policy", &[&EIGHT[..], &workload, &["--policy", "tessera-bare"]].concat());
    golden("fleet-no-workload", &EIGHT);
    golden("fleet-no-file", &[&EIGHT[..], &["--workload", "none.csv"]].concat());
    golden("fleet-no-wish", &[&EIGHT[..], &workload, &["--wish", "4"]].concat());
    golden("fleet-no-list", &[&EIGHT[..], &["--workload", "README.md"]].concat());
    golden("fleet-too-large", &[&workload[..], &["--nodes", "1500xt4", "--nodes", "1500xdgx-h100"]].concat());
    golden("fleet-nothing", &[]);
    golden("fleet-no-pool", &[&EIGHT[..], &workload, &["--pool", "../fleet/training.yaml"]].concat());
}

/// Two nodes are for shares alone.
#[test]
fn pools_of_a_file_decide_on_the_cards() {
    let with = ["--workload", "shares.csv", "--pool", "pools.yaml", "--wish", "4xgpu,1xgpu,15%"];
    let policies = ["--policy", "tessera,kube-scheduler", "--runs", "1"];
    golden("fleet-pools", &[&EIGHT[..], &with, &policies].concat());
}

/// Said as the status of the pools would say it.
#[test]
fn pools_overlap_and_fail_as_on_a_node() {
    let nodes = ["--nodes", "1xdgx-h100", "--nodes", "1xhgx-a100-40gb,label:zone=a", "--add", "1xdgx-h100"];
    let with =
        ["--pool", "../../cli/tests/simulate/pools.yaml", "--wish", "gpu,1g.10gb", "--policy", "tessera"];
    golden("fleet-pools-that-fail", &[&nodes[..], &with].concat());
    golden("fleet-pools-json", &[&["--nodes", "1xt4"], &with[..], &["-o", "json"]].concat());
}

/// Cards are carved as the plugin would; a layout that cannot be is said, and leaves them as they are.
#[test]
fn pools_with_mig_layouts() {
    let nodes = ["a", "b", "c", "d"].map(|zone| format!("1xdgx-a100,cards=2,label:zone={zone}"));
    let nodes: Vec<&str> = nodes.iter().flat_map(|group| ["--nodes", group]).collect();
    let data = "../../cli/tests/simulate";
    let files = ["laid-out.yaml", "layouts.yaml"].map(|file| format!("{data}/{file}"));
    let with = ["--pool", &files[0], "--mig-layouts", &files[1], "--policy", "tessera,first-fit"];
    golden("fleet-layouts", &[&nodes[..], &with, &["--wish", "gpu,1g.10gb,2g.20gb,3g.40gb"]].concat());
    let wrong = ["--pool", &files[0], "--mig-layouts", &files[0], "--wish", "gpu"];
    golden("fleet-no-layouts", &[&nodes[..], &wrong].concat());
}

/// `docs/fleet.md`, as it is written there.
#[test]
fn manifests_and_pools_of_the_fleet_worked_out() {
    let nodes = [
        "--nodes",
        "1xdgx-a100,cards=4,label:example.com/pool=training",
        "--nodes",
        "1xdgx-a100,cards=3,mig=on,label:example.com/pool=inference",
        "--nodes",
        "1xdgx-a100,cards=3,label:example.com/pool=notebooks",
    ];
    let with = ["--pool", "../fleet/pools.yaml", "-f", "../fleet", "--policy", "tessera"];
    golden("fleet-manifests", &[&nodes[..], &with].concat());
}

/// Jobs end at their deadlines; gangs by labels and by Jobs, and a PriorityClass.
#[test]
fn jobs_end_at_their_deadlines() {
    let with = [
        "--nodes",
        "3xdgx-h100",
        "-f",
        "../../cli/tests/simulate/jobs.yaml",
        "--policy",
        "tessera,first-fit",
    ];
    golden("fleet-jobs", &with);
}

/// One run of a CronJob; a JobSet is a gang, and so is each replica of a LeaderWorkerSet. A Job that waits for others is left out.
#[test]
fn sets_make_gangs() {
    let with = [
        "--nodes",
        "3xdgx-h100",
        "-f",
        "../../cli/tests/simulate/sets.yaml",
        "--policy",
        "tessera,first-fit",
    ];
    golden("fleet-sets", &with);
}

/// Pods ask as they ask NVIDIA's device plugin, or by the name that every class has; a class that is given takes a name over.
#[test]
fn extended_resources_become_claims() {
    let with =
        ["-f", "../../cli/tests/simulate/extended.yaml", "--policy", "tessera,kube-scheduler", "--runs", "1"];
    golden("fleet-extended", &[&["--nodes", "2xdgx-h100"], &with[..]].concat());
}

/// Manifests for NVIDIA's classes are simulated with its driver's name, unless another is given.
#[test]
fn manifests_of_nvidias_driver() {
    let with = ["-f", "../../cli/tests/simulate/nvidia.yaml", "--policy", "tessera,first-fit"];
    let nodes = ["--nodes", "1xdgx-h100"];
    golden("fleet-nvidia", &[&nodes[..], &with, &["--wish", "gpu,1g.10gb"]].concat());
    // Ignored slices do not choose.
    let slices = ["-f", "../../cli/tests/data/slices.yaml"];
    golden("fleet-ignored-slices", &[&nodes[..], &with, &slices].concat());
    golden("fleet-not-nvidia", &[&nodes[..], &with, &["--driver", "gpu.tessera.dev"]].concat());
}

/// What holds devices in a cluster keeps them; what waits gets what is left, or what is added.
#[test]
fn a_cluster_goes_on_from_where_it_is() {
    let data = "../../cli/tests/data";
    let files = ["slices.yaml", "cluster.yaml", "waiting.yaml"].map(|file| format!("{data}/{file}"));
    let files: Vec<&str> = files.iter().flat_map(|file| ["-f", file]).collect();
    let with = ["--add", "1xdgx-h100", "--wish", "gpu,2xgpu", "--policy", "tessera,first-fit"];
    golden("fleet-cluster", &[&files[..], &with].concat());
}

/// Of a dump only the pods that are missing come; who has a deadline leaves.
#[test]
fn a_dump_with_what_makes_its_pods() {
    let files = ["-f", "../../cli/tests/data/slices.yaml", "-f", "../../cli/tests/simulate/dump.yaml"];
    golden("fleet-dump", &[&files[..], &["--policy", "tessera,first-fit"]].concat());
}

/// What GpuPools would make of the cards of a cluster: told from what is published, with who holds devices already; or refused.
#[test]
fn pools_decide_on_the_cards_of_a_cluster() {
    let data = "../../cli/tests/simulate";
    let [edge, pools, slices, dump] = ["edge.yaml", "edge-pools.yaml", "../data/slices.yaml", "dump.yaml"]
        .map(|file| format!("{data}/{file}"));
    let with = ["--pool", &pools, "--wish", "gpu,15%", "--policy", "tessera,first-fit"];
    golden("fleet-pool-of-cluster", &[&["-f", &edge], &with[..]].concat());
    golden("fleet-pool-without-report", &[&["-f", &slices, "-f", &dump], &with[..]].concat());
}

/// A team takes back what others borrow: beside the same without quotas.
#[test]
fn teams_with_quotas() {
    let data = "../../cli/tests/simulate";
    let [list, quotas] = ["teams.csv", "quotas.yaml"].map(|file| format!("{data}/{file}"));
    let with = ["--nodes", "2xdgx-h100", "--workload", &list, "--quota", &quotas, "--policy"];
    golden("fleet-quotas", &[&with[..], &["tessera,first-fit"]].concat());
    let json = ["tessera", "--nodes", "1xdgx-h100", "-o", "json"];
    golden("fleet-quotas-json", &[&with[..], &json].concat());
    golden("fleet-quotas-no-tessera", &[&with[..], &["first-fit"]].concat());
    golden("fleet-no-quota", &["--nodes", "2xdgx-h100", "--workload", &list, "--quota", "pools.yaml"]);
}

/// A manifest that cannot be simulated is said with file, line and object.
#[test]
fn manifests_that_cannot_be_simulated() {
    let claims = |claim: &str| {
        format!(
            "spec: {{ containers: [{{ name: c, image: i }}], resourceClaims: [{{ name: gpu, {claim} }}] }}"
        )
    };
    let template = |class: &str, selector: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{ name: t }}\nspec: {{ spec: {{ devices: {{ \
             requests: [{{ name: r, exactly: {{ deviceClassName: {class}{selector} }} }}] }} }} }}\n---\n"
        )
    };
    let of_template = claims("resourceClaimTemplateName: t");
    let one = template("gpu.tessera.dev", "");
    let pod = |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{ name: p }}\n{spec}\n");
    let makes = |kind: &str, more: &str, labels: &str| {
        let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{ name: p }}\nspec: {{ {more} selector: {{}}, template: {{ metadata: {{ \
             labels: {{ {labels} }} }}, {of_template} }} }}\n"
        )
    };
    let job_set = |more: &str| {
        format!(
            "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {{ name: p }}\nspec: {{ replicatedJobs: [{{ name: a, {more} \
             template: {{ {of_template} }} }} }} }}] }}\n"
        )
    };
    let worker_set = |more: &str| {
        format!(
            "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {{ name: p }}\nspec: {{ {more}{} \
             leaderWorkerTemplate: {{ size: 2, workerTemplate: {{ {of_template} }} }} }}\n",
            if more.is_empty() { "" } else { "," }
        )
    };
    let selector = ", selectors: [{ cel: { expression: device.driver } }]";
    let limits =
        "spec: { containers: [{ name: c, image: i, resources: { limits: { nvidia.com/gpu: 1 } } }] }";
    let shared = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: { name: s }\nspec: { devices: { requests: [{ name: r, exactly: { deviceClassName: gpu.tessera.dev } }] } }\n---\n";
    let of_shared = claims("resourceClaimName: s");
    let gang = "gpu.tessera.dev/group: g, gpu.tessera.dev/group-size: \"2\"";
    for (text, parts) in [
        (
            pod(&of_template),
            ["line 1: Pod default/p cannot", "ResourceClaimTemplate default/t does not exist"],
        ),
        (pod(&of_shared), ["Pod default/p cannot", "ResourceClaim s does not exist"]),
        (template("gpu.tesera.dev", "") + &pod(&of_template), ["line 6: Pod", "gpu.tesera.dev"]),
        (
            template("gpu.tessera.dev", selector) + &pod(&of_template),
            ["Pod default/p cannot", "its claim gpu: must evaluate to bool"],
        ),
        (
            pod(&limits.replace("gpu:", "mig-9g.90gb:")),
            [
                "it has nvidia.com/mig-9g.90gb in its limits",
                "nvidia.com/mig-7g.80gb, nvidia.com/gpu, nvidia.com/gpu.shared",
            ],
        ),
        (
            pod(limits)
                .replace("v1", "serving.kserve.io/v1beta1")
                .replace("kind: Pod", "kind: InferenceService"),
            ["InferenceService p cannot be simulated", "line 1"],
        ),
        (
            shared.to_owned() + &pod(&of_shared) + "---\n" + &pod(&of_shared).replace("name: p", "name: q"),
            ["Pod default/q cannot", "several pods share the ResourceClaim s"],
        ),
        (one.clone() + &makes("DaemonSet", "", ""), ["DaemonSet p cannot be simulated", "line 6"]),
        (
            one.clone() + &makes("Deployment", "replicas: 1000000000,", ""),
            ["Deployment default/p", "100000 pods"],
        ),
        (
            one.clone() + &makes("Deployment", "replicas: 3,", gang),
            ["Deployment default/p", "3 pods in a gang of 2"],
        ),
        (
            one.clone()
                + &makes("Job", "parallelism: 2,", &format!("{gang}, gpu.tessera.dev/group-min: \"1\"")),
            ["Job default/p", "only gangs starting all together are simulated"],
        ),
        (
            one.clone() + &pod(&of_template.replace("spec: {", "spec: { priorityClassName: high,")),
            ["Pod default/p", "there is no PriorityClass high"],
        ),
        (one.clone() + &makes("Deployment", "replicas: many,", ""), ["line 9", "spec.replicas"]),
        (one.clone() + &makes("Deployment", "replicas: -1,", ""), ["Deployment default/p", "replicas is -1"]),
        (one.clone() + &makes("Job", "completions: -2,", ""), ["Job default/p", "completions is -2"]),
        (
            one.clone() + &job_set("replicas: 1000000, template: { spec: { parallelism: 1000000,"),
            ["JobSet default/p", "100000 pods"],
        ),
        (
            one.clone() + &job_set("replicas: -3, template: { spec: {"),
            ["line 6: JobSet default/p", "replicas is -3"],
        ),
        (
            one.clone() + &job_set("replicas: [], template: { spec: {"),
            ["line 9", "spec.replicatedJobs[0].replicas"],
        ),
        (one.clone() + &worker_set("replicas: 1000000000"), ["LeaderWorkerSet default/p", "100000 pods"]),
        (one.clone() + &worker_set("replicas: -1"), ["LeaderWorkerSet default/p", "replicas is -1"]),
        (
            one.clone()
                + &worker_set("startupPolicy: LeaderReady")
                    .replace("name: p", "name: p, labels: { gpu.tessera.dev/gang: enabled }"),
            ["LeaderWorkerSet default/p", "LeaderReady"],
        ),
        (
            one.clone() + &worker_set("").replace("size: 2", "size: 0"),
            ["LeaderWorkerSet default/p", "size is 0"],
        ),
        (
            one.clone() + &worker_set("").replace("workerTemplate", "workersTemplate"),
            ["line 9", "missing field `workerTemplate`"],
        ),
    ] {
        let output = run_with(&["--nodes", "1xdgx-h100", "-f", "-"], &text);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}\n{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{text}\n{said}");
    }
}
