//! The DaemonSet of mps-host in the chart.

use clap::Parser as _;
use serde_json::{Value, json};
use tessera_mps_host::options::Options;

use crate::support::{accepted, strings, template};

const ENABLED: &str = "sharing.mps.enabled=true";

fn daemon_set<'a>(objects: &'a [Value], component: &str) -> &'a Value {
    let is_it = |object: &&Value| {
        let labels = &object["spec"]["selector"]["matchLabels"];
        object["kind"] == "DaemonSet" && labels["app.kubernetes.io/component"] == component
    };
    objects.iter().find(is_it).unwrap_or_else(|| panic!("no {component}"))
}

#[tokio::test]
async fn it_is_there_when_it_is_asked_for_and_upgrades_do_not_touch_it() {
    let without = accepted(&template(&[], &[]).await.expect("rendered")).await;
    assert_eq!(without.iter().filter(|object| object["kind"] == "DaemonSet").count(), 1);
    // The plugin removes leftovers of shares that end after MPS was switched off.
    let plugin = &daemon_set(&without, "kubelet-plugin")["spec"]["template"]["spec"];
    let mounts = plugin["containers"][0]["volumeMounts"].as_array().expect("mounts");
    assert!(mounts.iter().any(|mount| mount["mountPath"] == "/run/tessera/mps"), "{mounts:?}");

    let values = [ENABLED, r#"sharing.mps.directory="/run/x/""#];
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    let host = daemon_set(&objects, "mps-host");
    assert_eq!(host["spec"]["updateStrategy"]["type"], "OnDelete");
    let pod = &host["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["hostPID"], true);
    assert_eq!(pod["automountServiceAccountToken"], false);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        assert_eq!(container[probe], json!(null), "{probe}");
    }
    let options =
        Options::try_parse_from([vec!["mps-host"], strings(&container["args"])].concat()).expect("valid");
    assert_eq!(options.directory, std::path::Path::new("/run/x"));

    // Both have the directory at the node's path, and later mounts there reach the plugin.
    let plugin = daemon_set(&objects, "kubelet-plugin");
    let plugin_container = &plugin["spec"]["template"]["spec"]["containers"][0];
    assert!(strings(&plugin_container["args"]).contains(&"--mps-directory=/run/x"));
    for (container, propagation) in [(container, "Bidirectional"), (plugin_container, "HostToContainer")] {
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        let mount = mounts.iter().find(|mount| mount["name"] == "mps").expect("a mount");
        assert_eq!(mount["mountPath"], "/run/x");
        assert_eq!(mount["mountPropagation"], propagation);
    }
    assert_eq!(plugin["spec"]["updateStrategy"]["type"], "RollingUpdate");
}

#[tokio::test]
async fn wrong_values_are_refused_by_name() {
    for (value, says) in [
        ("sharing.mps.enabled=\"yes\"", "/sharing/mps/enabled"),
        ("sharing.mps.directory=\"run\"", "/sharing/mps/directory"),
        ("sharing.mps.directory=\"/run/../etc\"", "'..' is not allowed"),
        ("sharing.mps.directory=\"/var/lib/kubelet/plugins/gpu.tessera.dev/mps\"", "/sharing/mps/directory"),
        ("sharing.mps.replicas=3", "replicas"),
    ] {
        let error = template(&[ENABLED, value], &[]).await.expect_err(value).to_string();
        assert!(error.contains(says), "{value}: {error}");
    }
}

#[tokio::test]
async fn the_longest_directory_is_one_that_the_program_takes() {
    let directory = format!("/{}", "d".repeat(41));
    let longer = format!("{directory}d");
    let value = |directory: &str| format!("sharing.mps.directory={directory:?}");
    template(&[ENABLED, &value(&directory)], &[]).await.expect("rendered");
    template(&[ENABLED, &value(&longer)], &[]).await.expect_err("too long");
    assert!(Options::try_parse_from(["mps-host", "--directory", &directory]).is_ok());
    assert!(Options::try_parse_from(["mps-host", "--directory", &longer]).is_err());
}
