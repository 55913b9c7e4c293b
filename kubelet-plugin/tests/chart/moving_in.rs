//! Where another driver's chart was before: its values, and its DeviceClasses.

use std::fs;

use serde_json::{Value, json};
use tessera_harness::strangers::charts;
use tessera_harness::workspace;

use crate::support::{chart, cluster, path, strings, template};

/// Every value of the table passes the schema and is answered by the table's text.
#[tokio::test]
async fn values_of_other_charts_are_answered_by_what_to_write_instead() {
    let table = fs::read_to_string(path("charts/tessera/files/values-of-others.yaml")).expect("the table");
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(": ").expect("path: words"))
        .collect();
    assert!(rows.len() > 80, "{}", rows.len());
    // All at once, to need one call only; then the values with parts, by themselves.
    let is_whole = |path: &str| rows.iter().any(|(other, _)| other.starts_with(&format!("{path}.")));
    let (wholes, parts): (Vec<_>, Vec<_>) = rows.iter().partition(|(path, _)| is_whole(path));
    let values: Vec<String> = parts.iter().map(|(path, _)| format!(r#"{path}={{"a": true}}"#)).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let error = template(&values, &[]).await.expect_err("refused").to_string();
    for (path, words) in parts {
        assert!(error.contains(&format!("  {path}: here it is {words}")), "{path}: {error}");
    }
    for (path, words) in wholes {
        let value = format!(r#"{path}={{"unheard": {{}}}}"#);
        let error = template(&[&value], &[]).await.expect_err(path).to_string();
        assert!(error.contains(&format!("  {path}: here it is {words}")), "{path}: {error}");
        assert!(!error.contains(&format!("  {path}: here it is {words}\n  ")), "nothing else: {error}");
    }
}

/// A whole file of values as people have it, and images by the names of others.
#[tokio::test]
async fn a_values_file_of_nvidias_driver_is_answered_line_by_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("values.yaml");
    let values = "nvidiaDriverRoot: /run/nvidia/driver\ngpuResourcesEnabledOverride: true\nresources:\n  gpus: {enabled: \
                  true}\n  computeDomains: {enabled: false}\nfeatureGates: {MPSSupport: true, Unheard: true}\nimage:\n  \
                  repository: registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu\n  tag: v0.5.0\nkubeletPlugin:\n  \
                  tolerations: []\n  containers: {gpus: {resources: {}}}\n";
    fs::write(&file, values).expect("written");
    let error =
        template(&[], &["--values", &file.display().to_string()]).await.expect_err("refused").to_string();
    for says in [
        "nvidiaDriverRoot: here it is driverRoot\n",
        "gpuResourcesEnabledOverride: here it is nothing, ",
        "resources.gpus: here it is nothing, ",
        "resources.computeDomains: here it is nothing, ",
        "featureGates.MPSSupport: here it is sharing.mps.enabled\n",
        "kubeletPlugin.containers: here it is kubeletPlugin.resources, ",
        "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu is another driver's",
        "`kubectl gpu migrate`",
    ] {
        assert!(error.contains(says), "{says} is missing in {error}");
    }
    assert!(!error.contains("additional propert"), "{error}");
    for repository in
        ["nvcr.io/nvidia/k8s-device-plugin", "nvcr.io/nvidia", "mirror.example.com/gpu-operator"]
    {
        let error =
            template(&[&format!("image.repository={repository:?}")], &[]).await.expect_err(repository);
        assert!(error.to_string().contains("is another driver's"), "{repository}: {error}");
    }
    template(&[r#"image.repository="mirror.example.com/tessera""#], &[]).await.expect("ours");
}

/// Values printed by `kubectl gpu migrate` for recorded clusters are values of this chart.
#[tokio::test]
async fn values_of_a_migration_are_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    for from in ["nvidia-dra", "device-plugin", "gpu-operator"] {
        let golden = path(&format!("cli/tests/golden/migrate-{from}-values.txt"));
        let text = fs::read_to_string(golden).expect("the golden file");
        // Between the command and the exit code.
        let lines: Vec<&str> = text.lines().collect();
        let file = folder.path().join(format!("{from}.yaml"));
        fs::write(&file, lines[1..lines.len() - 1].join("\n")).expect("written");
        let objects = template(&[], &["--values", &file.display().to_string()]).await.expect(from);
        crate::support::accepted(&objects).await;
    }
}

/// Every value of others' charts is ours as well, or in the table. (The GPU Operator's chart is in no Go module.)
#[tokio::test]
async fn the_table_has_every_value_of_nvidias_charts() {
    let table =
        yaml(&fs::read_to_string(path("charts/tessera/files/values-of-others.yaml")).expect("the table"));
    let ours = yaml(&fs::read_to_string(path("charts/tessera/values.yaml")).expect("our values"));
    for chart in [charts::NVIDIA_DRA_DRIVER, charts::NVIDIA_DEVICE_PLUGIN] {
        let file = chart.directory().expect("downloaded").join("values.yaml");
        let theirs = yaml(&fs::read_to_string(&file).expect("their values"));
        let mut missing = Vec::new();
        find_missing("", &theirs, Some(&ours), &table, &mut missing);
        assert_eq!(missing, [""; 0], "{}", chart.module);
        let file = file.display().to_string();
        let error = template(&[], &["--values", &file]).await.expect_err("refused").to_string();
        assert!(error.contains(": here it is ") && !error.contains("additional propert"), "{error}");
    }
}

/// The paths in `theirs`, located at `at`, that are neither in `ours` nor in the table.
fn find_missing(at: &str, theirs: &Value, ours: Option<&Value>, table: &Value, missing: &mut Vec<String>) {
    let parts = theirs.as_object().filter(|parts| !parts.is_empty());
    // An empty object in our values takes anything: a nodeSelector.
    let is_open = ours.is_some_and(|ours| ours == &json!({}));
    if table.get(at).is_some() || is_open {
        return;
    }
    let Some(parts) = parts else {
        if ours.is_none() {
            missing.push(at.to_owned());
        }
        return;
    };
    for (key, part) in parts {
        let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
        find_missing(&at, part, ours.and_then(|ours| ours.get(key)), table, missing);
    }
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

/// The steps printed by `kubectl gpu migrate --from nvidia-dra`, run on NVIDIA's own chart, as far as a cluster without
/// kubelets can: both charts for a while, under one name.
#[tokio::test]
async fn the_steps_from_nvidias_chart_work() {
    const NODE: &str = "moving-in";
    let cluster = cluster().await;
    cluster.add_node_object(NODE).await.expect("a node");
    let slice = json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": NODE }, "spec": {
        "driver": "gpu.nvidia.com", "nodeName": NODE, "pool": { "name": NODE, "generation": 1, "resourceSliceCount": 1 },
        "devices": [{ "name": "gpu-0", "attributes": { "type": { "string": "gpu" } } }] } });
    cluster.apply(&slice.to_string()).await.expect("published");
    let theirs = charts::NVIDIA_DRA_DRIVER.directory().expect("downloaded").display().to_string();
    let values =
        "gpuResourcesEnabledOverride=true,nvidiaDriverRoot=/run/nvidia/driver,featureGates.MPSSupport=true";
    let install =
        ["install", "nvidia", &theirs, "--namespace", "nvidia", "--create-namespace", "--set", values];
    cluster.helm(&install).await.expect("NVIDIA's chart");

    let folder = tempfile::tempdir().expect("a folder");
    let migrate = async |output: &str| {
        let programs = tokio::task::spawn_blocking(|| workspace::build_packages(&["kubectl-gpu"]));
        let program = programs.await.expect("no panic").expect("built").join("kubectl-gpu");
        let mut command = tokio::process::Command::new(program);
        command.args(["migrate", "--from", "nvidia-dra", "-n", "nvidia", "-o", output, "--kubeconfig"]);
        let output = command.arg(cluster.kubeconfig()).output().await.expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    for (name, output) in [("values.yaml", "values"), ("manifests.yaml", "yaml")] {
        fs::write(folder.path().join(name), migrate(output).await).expect("written");
    }
    let plan: Value = serde_json::from_str(&migrate("json").await).expect("JSON");
    assert_eq!(plan["values"]["driverName"], "gpu.nvidia.com", "{plan}");
    assert_eq!(plan["values"]["driverRoot"], "/run/nvidia/driver", "{plan}");
    assert_eq!(plan["values"]["sharing"]["mps"]["enabled"], true, "{plan}");
    // Of the defaults of their chart nothing is left to say but this.
    let about =
        plan["notes"].as_array().expect("notes").iter().map(|note| note["about"].as_str().expect("text"));
    assert_eq!(
        about.collect::<Vec<_>>(),
        ["partitions", "resources.computeDomains", "taints of sick cards"],
        "{plan}"
    );

    // As people paste them, by a shell. The controller would be in the way of other tests of this cluster.
    let programs = ["kubectl", "helm"].map(|name| cluster.program(name).expect("built"));
    let folders = programs.iter().map(|path| path.parent().expect("a folder").display().to_string());
    let search = folders.chain([std::env::var("PATH").expect("a PATH")]).collect::<Vec<_>>().join(":");
    let values = format!("--values {}/values.yaml --set controller.enabled=false", folder.path().display());
    let run = async |step: &str| {
        let step = step
            .replace("CHART", &theirs)
            .replace("charts/tessera", &format!("{} --set crds.install=false", chart()))
            .replace("--values values.yaml", &values);
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", &step]).env("PATH", &search).env("HOME", folder.path()).current_dir(&folder);
        let output = shell.env("KUBECONFIG", cluster.kubeconfig()).output().await.expect("a shell");
        assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
    };
    // Nodes are only API objects, and the kind GpuPool belongs to others here.
    let is_played = |step: &&str| {
        !["kubectl gpu", "kubectl drain", "kubectl wait", "kubectl apply"]
            .iter()
            .any(|not| step.starts_with(not))
    };
    let steps = &plan["steps"];
    let groups = ["before", "nodes", "after"]
        .map(|group| steps[group].as_array().expect("steps"))
        .into_iter()
        .flatten();
    let commands: Vec<&str> =
        groups.flat_map(|group| strings(&group["commands"])).filter(is_played).collect();
    assert!(
        commands.iter().any(|command| command.starts_with("kubectl annotate deviceclass")),
        "{commands:?}"
    );
    for command in &commands {
        run(command).await;
    }

    let class = cluster
        .kubectl(&["get", "deviceclass", "gpu.nvidia.com", "--output=yaml"])
        .await
        .expect("it is there");
    assert!(class.contains("type.orValue"), "ours: {class}");
    let selector = async |daemon_set: &str, namespace: &str| {
        let path = "jsonpath={.spec.template.spec.nodeSelector}";
        let get = ["get", "daemonset", daemon_set, "--namespace", namespace, "--output", path];
        cluster.kubectl(&get).await.expect("it is there")
    };
    assert_eq!(selector("tessera-kubelet-plugin", "tessera-system").await, "", "it runs on every node");
    // Theirs is still there, on every node, for ComputeDomains alone.
    let path = "jsonpath={.items[*].spec.template.spec['containers','nodeSelector']}";
    let theirs = cluster.kubectl(&["get", "daemonset", "--namespace", "nvidia", "--output", path]).await;
    let theirs = theirs.expect("it is there");
    assert!(theirs.contains(r#""name":"compute-domains""#), "{theirs}");
    assert!(!theirs.contains(r#""name":"gpus""#) && !theirs.contains("moved-in"), "{theirs}");
    cluster.helm(&["uninstall", "nvidia", "--namespace", "nvidia"]).await.expect("uninstalled");
    cluster.helm(&["uninstall", "tessera", "--namespace", "tessera-system"]).await.expect("uninstalled");
}
