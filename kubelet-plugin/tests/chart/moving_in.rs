//! Where another driver's chart was before: its values, and its DeviceClasses.

use std::fs;

use crate::support::{chart, cluster, path, template};

/// Every value of the table gets through the schema and is answered by what the table says.
#[tokio::test]
async fn values_of_other_charts_are_answered_by_what_to_write_instead() {
    let table = fs::read_to_string(path("charts/tessera/files/values-of-others.yaml")).expect("the table");
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(": ").expect("path: words"))
        .collect();
    assert!(rows.len() > 80, "{}", rows.len());
    // All at once, so that one call is enough; then those that have parts by themselves.
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

/// What `kubectl gpu migrate` prints for recorded clusters is values of this chart.
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

/// The steps of `kubectl gpu migrate --from nvidia-dra`, as far as helm is concerned: both charts for a while, under one name.
#[tokio::test]
async fn device_classes_of_another_release_are_taken_over_and_come_back_when_it_goes() {
    const DRIVER: &str = "moving.example.com";
    let cluster = cluster().await;
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    fs::create_dir(folder.path().join("templates")).expect("made");
    write("Chart.yaml", "apiVersion: v2\nname: theirs\nversion: 1.0.0\n");
    write("values.yaml", "gpus: {enabled: true}\n");
    write(
        "templates/class.yaml",
        &format!(
            "{{{{- if .Values.gpus.enabled }}}}\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {DRIVER}}}\nspec: \
             {{selectors: [{{cel: {{expression: \"device.driver == '{DRIVER}'\"}}}}]}}\n{{{{- end }}}}\n"
        ),
    );
    let theirs = folder.path().display().to_string();
    cluster.helm(&["install", "theirs", &theirs, "--namespace", "default"]).await.expect("installed");

    let chart = chart();
    let values = format!(
        "driverName={DRIVER},crds.install=false,controller.enabled=false,kubeletPlugin.nodeSelector.nowhere=here"
    );
    let ours = |verb| {
        [verb, "moving", &chart, "--namespace", "moving", "--create-namespace", "--set", &values]
            .map(str::to_owned)
    };
    let helm = async |arguments: [String; 8]| {
        cluster.helm(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let upgrade = ["upgrade", "theirs", &theirs, "--namespace", "default", "--reuse-values"];
    let selector = async |set: &[&str]| {
        cluster.helm(&[&upgrade[..], set].concat()).await.expect("upgraded");
        cluster.helm(&["get", "values", "theirs", "--namespace", "default"]).await.expect("values")
    };
    let kept = selector(&["--set-string", r"nodeSelector.gpu\.tessera\.dev/moved-in=no"]).await;
    assert!(kept.contains("gpu.tessera.dev/moved-in: \"no\""), "{kept}");
    let refused = helm(ours("install")).await.expect_err("helm takes over nothing unasked").to_string();
    assert!(refused.contains(DRIVER), "{refused}");
    let annotate = [
        "annotate",
        "--overwrite",
        "deviceclass",
        DRIVER,
        "meta.helm.sh/release-name=moving",
        "meta.helm.sh/release-namespace=moving",
    ];
    cluster.kubectl(&annotate).await.expect("annotated");
    helm(ours("install")).await.expect("taken over");
    // For nodes that have moved, and without the classes: null takes the nodeSelector away again.
    let free = selector(&["--set", r"gpus.enabled=false,nodeSelector.gpu\.tessera\.dev/moved-in=null"]).await;
    assert!(free.contains("enabled: false") && !free.contains("moved-in: \"no\""), "{free}");
    let gone =
        cluster.kubectl(&["get", "deviceclass", DRIVER]).await.expect_err("it went with their release");
    assert!(gone.to_string().contains("not found"), "{gone}");
    helm(ours("upgrade")).await.expect("upgraded");
    let class = cluster.kubectl(&["get", "deviceclass", DRIVER, "--output=yaml"]).await.expect("it is there");
    assert!(class.contains("type.orValue"), "ours: {class}");
    cluster.helm(&["uninstall", "theirs", "--namespace", "default"]).await.expect("uninstalled");
    cluster.helm(&["uninstall", "moving", "--namespace", "moving"]).await.expect("uninstalled");
}
