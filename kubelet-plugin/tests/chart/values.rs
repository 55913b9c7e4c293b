//! Rendering of the chart for different values.

use std::fs;

use serde_json::{Value, json};

use crate::support::{accepted, chart, cluster, file, of_component, only, path, strings, template};

#[tokio::test]
async fn helm_finds_no_fault() {
    cluster().await.helm(&["lint", "--strict", &chart()]).await.expect("no fault");
}

#[tokio::test]
async fn wrong_values_are_refused_by_name() {
    for (value, says) in [
        ("driverName=\"GPU.example.com\"", "/driverName"),
        ("driverName=\"\"", "/driverName"),
        ("drivername=\"gpu.example.com\"", "drivername"),
        ("deviceAccess=\"full\"", "'auto', 'privileged', 'runtime', 'none'"),
        ("deviceAccess=\"runtime\"", "needs runtimeClassName"),
        ("driverRoot=\"run/nvidia\"", "/driverRoot"),
        ("driverRoot=\"/run/../..\"", "'..' is not allowed"),
        ("sysfsRoot=\"sys\"", "/sysfsRoot"),
        ("emulated.hardware=\"dgx-a100-80gb\"", "'hgx-a100-80gb'"),
        ("emulated.directory=\"/a/../b\"", "'..' is not allowed"),
        (r#"emulated={"hardware": "t4", "directory": "/x", "arguments": 4}"#, "/emulated/arguments"),
        ("extendedResourceNames.enabled=\"yes\"", "/extendedResourceNames/enabled"),
        ("extendedResourceNames.gpu=\"gpu\"", "/extendedResourceNames/gpu"),
        ("extendedResourceNames.gpu=\"x.kubernetes.io/gpu\"", "Kubernetes' own"),
        ("extendedResourceNames.mig=\"nvidia.com/mig\"", "mig"),
        ("migLayouts.label=\"a\"", "label"),
        ("nodeConfigs={}", "nodeConfigs"),
        (r#"health.classes={"lost": "Evict"}"#, "/health/classes/lost"),
        (r#"health.classes={"nvlink": "Off"}"#, "nvlink"),
        (r#"health.xids={"seventy": "Off"}"#, "seventy"),
        (r#"health.recovery="Reboot""#, "/health/recovery"),
        (r#"migLayouts.configs={"a": []}"#, "/migLayouts/configs/a"),
        (
            r#"migLayouts.configs={"a": [{"devices": "some", "mig-enabled": false}]}"#,
            "/migLayouts/configs/a/0/devices",
        ),
        (r#"migLayouts.configs={"a": [{"devices": "all", "mig-enable": false}]}"#, "mig-enable"),
        ("kubeletPlugin.httpPort=70000", "/kubeletPlugin/httpPort"),
        ("kubeletPlugin.terminationGracePeriodSeconds=3", "/kubeletPlugin/terminationGracePeriodSeconds"),
        ("kubeletPlugin.replicas=3", "replicas"),
        ("hookDirectory=\"/opt/../hooks\"", "'..' is not allowed"),
        (r#"kubeletPlugin.disabledHooks=["Update LDCache"]"#, "/kubeletPlugin/disabledHooks/0"),
        ("image.tag=\"a b\"", "/image/tag"),
        ("admissionPolicy.checkConfigurations=true", "checkConfigurations"),
        ("metrics.podMonitor.interval=\"often\"", "/metrics/podMonitor/interval"),
        ("metrics.grafanaDashboards.label=\"a\"", "label"),
        (r#"networkPolicy.metricsFrom=[{"namespace": "monitoring"}]"#, "namespace"),
        ("networkPolicy.metricsFrom=[{}]", "/networkPolicy/metricsFrom/0"),
    ] {
        let error = template(&[value], &[]).await.expect_err(value).to_string();
        assert!(error.contains(says), "{value}: {error}");
    }
}

/// Names of the data files, and the other names in them: all names known to `gpu-emulator`.
#[test]
fn the_schema_has_every_emulated_machine() {
    let mut known = vec![String::new()];
    for entry in fs::read_dir(path("crates/base/hardware/data/machines")).expect("readable") {
        let file = entry.expect("readable").path();
        known.push(file.file_stem().expect("a name").to_string_lossy().into_owned());
        let machine: Value = serde_json::from_str(&fs::read_to_string(&file).expect("text")).expect("JSON");
        let facts = machine["facts"].as_array().expect("facts").iter();
        let others = facts.filter_map(|fact| fact["values"]["alsoCalled"].as_array()).flatten();
        known.extend(others.map(|name| name.as_str().expect("a name").to_owned()));
    }
    known.sort_unstable();
    let schema = fs::read_to_string(path("charts/tessera/values.schema.json")).expect("text");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    assert_eq!(schema["properties"]["emulated"]["properties"]["hardware"]["enum"], json!(known));
}

#[tokio::test]
async fn the_defaults_are_accepted_and_privileged_for_the_device_nodes_only() {
    let objects = accepted(&template(&[], &[]).await.expect("rendered")).await;
    let pod = &only(&objects, "DaemonSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["privileged"], true);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(pod["hostNetwork"], json!(null));
    assert_eq!(pod["hostPID"], json!(null));
    let strategy = &only(&objects, "DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"];
    assert_eq!(*strategy, json!({"maxSurge": 1, "maxUnavailable": 0}));
    // Every path read by the kubelet must be the same path in the pod.
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    for directory in
        ["/var/lib/kubelet/plugins/gpu.tessera.dev", "/var/lib/kubelet/plugins_registry", "/var/run/cdi"]
    {
        let mount = mounts.iter().find(|mount| mount["mountPath"] == directory).expect(directory);
        let volumes = pod["volumes"].as_array().expect("volumes");
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("a volume");
        assert_eq!(volume["hostPath"]["path"], directory);
    }
    let classes: Vec<_> = objects.iter().filter(|object| object["kind"] == "DeviceClass").collect();
    assert_eq!(classes.len(), 4);
    for class in classes {
        assert_eq!(class["spec"]["extendedResourceName"], json!(null), "not taken over unasked");
    }
    for kind in ["ResourceQuota", "Service", "PodMonitor", "NetworkPolicy"] {
        assert!(!objects.iter().any(|object| object["kind"] == kind), "{kind} is off by default");
    }
}

/// nvidia-ctk writes a temporary file, and the container's root is read-only. Containers with a user namespace run the program
/// for hooks as another user, who may not pass the kubelet's directory.
#[tokio::test]
async fn nvidia_ctk_can_write_and_all_may_pass_to_the_program_for_hooks() {
    let values = [
        r#"hookDirectory="/opt/hooks/""#,
        r#"kubeletPlugin.disabledHooks=["update-ldcache", "enable-cuda-compat"]"#,
        "gdrcopyEnabled=true",
        "mofedEnabled=true",
    ];
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    let pod = &only(&objects, "DaemonSet")["spec"]["template"]["spec"];
    let volume_at = |path: &str| {
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        let mount = mounts.iter().find(|mount| mount["mountPath"] == path).expect(path);
        assert_ne!(mount["readOnly"], true, "{path}");
        let volumes = pod["volumes"].as_array().expect("volumes");
        volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("a volume")
    };
    assert!(volume_at("/tmp")["emptyDir"].is_object());
    assert_eq!(
        volume_at("/opt/hooks")["hostPath"],
        json!({"path": "/opt/hooks", "type": "DirectoryOrCreate"})
    );
    let arguments = strings(&pod["containers"][0]["args"]);
    for argument in [
        "--hook-directory=/opt/hooks",
        "--disable-hooks=update-ldcache,enable-cuda-compat",
        "--other-drivers=gdrcopy,mofed",
    ] {
        assert!(arguments.contains(&argument), "{argument} in {arguments:?}");
    }
    for root in ["/var/lib/kubelet", "/run"] {
        let objects = accepted(&template(&[], &[]).await.expect("rendered")).await;
        let pod = &only(&objects, "DaemonSet")["spec"]["template"]["spec"];
        let arguments = strings(&pod["containers"][0]["args"]);
        let at_root = format!("--hook-directory={root}");
        assert!(!arguments.iter().any(|argument| argument.starts_with(&at_root)), "{arguments:?}");
    }
}

/// If the driver's root is not the node's, the kubelet's checkpoint can't be read through the driver's root. The directory is
/// mounted and not the file, because the kubelet replaces the file.
#[tokio::test]
async fn the_plugin_reads_what_the_kubelet_remembers_whatever_the_drivers_root_is() {
    for root in ["/", "/run/nvidia/driver", "/var/lib/emulated-gpus"] {
        let values = [&format!("driverRoot={root:?}"), r#"kubeletDirectory="/var/lib/k/""#];
        let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
        let pod = &only(&objects, "DaemonSet")["spec"]["template"]["spec"];
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        let mount = mounts.iter().find(|mount| mount["mountPath"] == "/var/lib/k").expect("a mount");
        assert_eq!(mount["readOnly"], true);
        assert_eq!(mount["mountPropagation"], "HostToContainer", "no volume of a pod is held on to");
        let volumes = pod["volumes"].as_array().expect("volumes");
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("a volume");
        assert_eq!(volume["hostPath"], json!({"path": "/var/lib/k", "type": "Directory"}));
    }
}

#[tokio::test]
async fn libraries_of_the_driver_may_be_elsewhere() {
    let values = [r#"driverPaths=["usr/lib/nvidia/tesla", "/opt/vendor/bin"]"#];
    let objects =
        accepted(&template(&values, &["--set", "sharing.mps.enabled=true"]).await.expect("rendered")).await;
    let daemon_sets: Vec<_> = objects.iter().filter(|object| object["kind"] == "DaemonSet").collect();
    assert_eq!(daemon_sets.len(), 2);
    for daemon_set in daemon_sets {
        let arguments = strings(&daemon_set["spec"]["template"]["spec"]["containers"][0]["args"]);
        let expected = "--driver-paths=usr/lib/nvidia/tesla,/opt/vendor/bin";
        assert!(arguments.contains(&expected), "{arguments:?}");
    }
    for wrong in [r#"driverPaths=["../lib"]"#, r#"driverPaths=["usr//lib"]"#, r#"driverPaths=["/"]"#] {
        let error = template(&[wrong], &[]).await.expect_err(wrong).to_string();
        assert!(error.contains("/driverPaths"), "{error}");
    }
}

#[tokio::test]
async fn emulated_cards_need_no_privileges() {
    let values = [
        r#"driverRoot="/var/lib/emulated-gpus""#,
        r#"sysfsRoot="/driver-root/sys""#,
        r#"procRoot="/driver-root/proc""#,
        r#"kubeletDirectory="/var/lib/k/""#,
    ];
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    let pod = &only(&objects, "DaemonSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["privileged"], false);
    assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let arguments: Vec<&str> =
        container["args"].as_array().expect("args").iter().filter_map(|argument| argument.as_str()).collect();
    for expected in [
        "--driver-root=/driver-root",
        "--host-driver-root=/var/lib/emulated-gpus",
        "--sysfs-root=/driver-root/sys",
        "--proc-root=/driver-root/proc",
        "--kubelet-directory=/var/lib/k",
    ] {
        assert!(arguments.contains(&expected), "{expected} in {arguments:?}");
    }
    let paths: Vec<_> =
        pod["volumes"].as_array().expect("volumes").iter().map(|v| &v["hostPath"]["path"]).collect();
    assert!(!paths.contains(&&json!("/dev")), "{paths:?}");
    assert!(paths.contains(&&json!("/var/lib/k/plugins_registry")), "{paths:?}");
}

#[tokio::test]
async fn the_chart_makes_emulated_machines() {
    let emulated = r#"emulated.hardware="hgx-h100-80gb""#;
    let more = [emulated, r#"emulated.directory="/opt/gpus""#, r#"emulated.arguments=["--cards", "4"]"#];
    let objects =
        accepted(&template(&more, &["--set", "sharing.mps.enabled=true"]).await.expect("rendered")).await;
    let daemon_sets: Vec<_> = objects.iter().filter(|object| object["kind"] == "DaemonSet").collect();
    assert_eq!(daemon_sets.len(), 2);
    for daemon_set in daemon_sets {
        let volumes = daemon_set["spec"]["template"]["spec"]["volumes"].as_array().expect("volumes");
        let root = volumes.iter().find(|volume| volume["name"] == "driver-root").expect("a volume");
        assert_eq!(root["hostPath"]["path"], "/opt/gpus");
    }
    let plugin = of_component(&objects, "kubelet-plugin");
    let pod =
        &plugin.iter().find(|object| object["kind"] == "DaemonSet").expect("one")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["securityContext"]["privileged"], false);
    let machine = &pod["initContainers"][0];
    assert_eq!(machine["securityContext"]["capabilities"], json!({"drop": ["ALL"], "add": ["MKNOD"]}));
    let arguments = json!([
        "node",
        "/driver-root",
        "--stay",
        "--hardware=hgx-h100-80gb",
        "--seed=$(NODE_NAME)",
        "--cards",
        "4"
    ]);
    assert_eq!(machine["args"], arguments);
    let both = template(&[emulated, r#"driverRoot="/run/nvidia/driver""#], &[]).await.expect_err("both");
    assert!(both.to_string().contains("leave driverRoot"), "{both}");
}

#[tokio::test]
async fn every_option_of_the_plugin_in_the_chart_exists() {
    use clap::Parser as _;
    let values = [
        r#"sysfsRoot="/driver-root/sys""#,
        r#"procRoot="/driver-root/proc""#,
        r#"driverName="x.example.com""#,
        r#"kubeletPlugin={"httpPort": 1234, "logLevel": "debug,h2=info", "logFormat": "json",
            "usageIntervalSeconds": 30, "hostPID": true}"#,
        "managed.handoverSeconds=90",
    ];
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    let container = &only(&objects, "DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    let arguments =
        container["args"].as_array().expect("args").iter().filter_map(|argument| argument.as_str());
    let from_environment = ["--node-name=n", "--pod-uid=u"];
    let all = ["kubelet-plugin"].into_iter().chain(arguments).chain(from_environment);
    let options = tessera_kubelet_plugin::options::Options::try_parse_from(all).expect("valid");
    assert_eq!(options.driver_name, "x.example.com");
    assert_eq!(options.http_address.port(), 1234);
    assert_eq!(options.managed_handover.as_secs(), 90);
    assert_eq!(options.usage_interval.as_secs(), 30);
    assert_eq!(only(&objects, "DaemonSet")["spec"]["template"]["spec"]["hostPID"], true);
    assert_eq!(options.probe_socket.as_deref(), Some(std::path::Path::new("/run/tessera/probe.sock")));
    let limit =
        only(&objects, "DaemonSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64();
    assert!(options.shutdown_timeout.as_secs() < limit.expect("a number"));
    let names: Vec<_> =
        container["env"].as_array().expect("env").iter().map(|variable| &variable["name"]).collect();
    assert_eq!(names, ["NODE_NAME", "POD_UID", "MALLOC_ARENA_MAX"]);
}

/// The schema of the chart and the plugin know the same classes.
#[tokio::test]
async fn what_faults_mean_reaches_the_plugin() {
    use clap::Parser as _;
    use tessera_api::health::{HealthClass, HealthEffect, HealthFault, OwnRecovery};
    let classes: serde_json::Map<_, _> =
        HealthClass::ALL.map(|class| (class.name().to_owned(), json!("NoExecute"))).into_iter().collect();
    let classes = format!("health.classes={}", json!(classes));
    let recovery = r#"health.recovery="Reset""#;
    let values = [classes.as_str(), r#"health.xids={"31": "Informational"}"#, recovery];
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    let container = &only(&objects, "DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    let arguments =
        container["args"].as_array().expect("args").iter().filter_map(|argument| argument.as_str());
    let all = ["kubelet-plugin"].into_iter().chain(arguments).chain(["--node-name=n"]);
    let options = tessera_kubelet_plugin::options::Options::try_parse_from(all).expect("valid");
    for class in HealthClass::ALL.into_iter().filter(|class| *class != HealthClass::Xid) {
        assert_eq!(options.health_policy.effect(&HealthFault::new(class)), HealthEffect::NoExecute);
    }
    assert_eq!(options.health_policy.effect_of_xid(79), HealthEffect::NoExecute);
    assert_eq!(options.health_policy.effect_of_xid(31), HealthEffect::Informational);
    assert_eq!(options.health_policy.recovery(), OwnRecovery::Reset);
}

/// The plugin can read the chart's file, with all features of the format.
#[tokio::test]
async fn layouts_reach_the_plugin() {
    use tessera_inventory::layout::LayoutFile;
    let configs = r#"migLayouts.configs={"all-balanced": [
        {"device-filter": ["0x20B210DE", "0x20B510DE"], "devices": "all", "mig-enabled": true,
         "mig-devices": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
        {"device-filter": "0x233010DE", "devices": [0, 1], "mig-enabled": false}]}"#;
    let objects = accepted(&template(&[configs], &[]).await.expect("rendered")).await;
    let text = file(&objects, "config.yaml");
    let file = LayoutFile::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let entries = file.config("all-balanced").expect("there").entries();
    assert_eq!(entries[0].device_filter.iter().copied().collect::<Vec<_>>(), [0x20b2_10de, 0x20b5_10de]);
    assert_eq!(entries[0].mig_devices["1g.10gb"], 2);
    assert!(!entries[1].mig_enabled);
    let container = &only(&objects, "DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    let variable = |name: &str| {
        let variables = container["env"].as_array().expect("env");
        variables.iter().find(|variable| variable["name"] == name).map(|variable| variable["value"].clone())
    };
    assert_eq!(variable("MIG_LAYOUT_FILE"), Some("/etc/tessera-mig/config.yaml".into()));

    let own =
        template(&[r#"migLayouts.configMap="default-mig-parted-config""#], &[]).await.expect("rendered");
    assert!(own.contains("name: default-mig-parted-config"), "an existing ConfigMap");
    assert!(!own.contains("config.yaml: "));
}

#[tokio::test]
async fn what_is_off_by_default_is_accepted_when_switched_on() {
    let values = [
        "criticalPodsQuota=true",
        "metrics.service.enabled=true",
        r#"deviceAccess="runtime""#,
        r#"runtimeClassName="nvidia""#,
        r#"image.pullSecrets=[{"name": "s"}]"#,
        r#"kubeletPlugin.nodeSelector={"a": "b"}"#,
        r#"kubeletPlugin.env=[{"name": "A", "value": "b"}]"#,
        r#"kubeletPlugin.podLabels={"team": "a"}"#,
    ];
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    only(&objects, "ResourceQuota");
    for component in ["kubelet-plugin", "controller"] {
        only(&of_component(&objects, component), "Service");
    }
    let pod = &only(&objects, "DaemonSet")["spec"]["template"]["spec"];
    assert_eq!(pod["runtimeClassName"], "nvidia");
    assert_eq!(pod["containers"][0]["securityContext"]["privileged"], false);
}

/// The kubelet's probes must not use a port others can keep busy.
#[tokio::test]
async fn probes_ask_within_the_container() {
    let objects = accepted(&template(&[], &[]).await.expect("rendered")).await;
    let pod = &only(&objects, "DaemonSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let command = json!(["kubelet-plugin", "probe", "--socket=/run/tessera/probe.sock", path]);
        assert_eq!(container[probe]["exec"]["command"], command);
        assert_eq!(container[probe]["httpGet"], json!(null));
        // Longer than the program's own time limit, to leave time for a report of the missing conditions.
        assert!(container[probe]["timeoutSeconds"].as_u64() >= Some(5));
    }
    let mount = json!({"name": "probes", "mountPath": "/run/tessera"});
    assert!(container["volumeMounts"].as_array().expect("mounts").contains(&mount));
    let volumes = pod["volumes"].as_array().expect("volumes");
    let volume = volumes.iter().find(|volume| volume["name"] == "probes").expect("a volume");
    assert_eq!(volume["emptyDir"], json!({"medium": "Memory", "sizeLimit": "1Mi"}), "not on the node's disk");
}

#[tokio::test]
async fn a_network_policy_lets_in_the_controller_and_who_is_named_and_nobody_else() {
    const ENABLED: &str = "networkPolicy.enabled=true";
    const ALONE: &str = "controller.enabled=false";
    let all = accepted(&template(&[ENABLED], &[]).await.expect("rendered")).await;
    let objects = of_component(&all, "kubelet-plugin");
    let of_controller = of_component(&all, "controller");
    let labels = &only(&of_controller, "Deployment")["spec"]["selector"]["matchLabels"];
    let controller = json!([{ "podSelector": { "matchLabels": labels } }]);
    assert_eq!(only(&objects, "NetworkPolicy")["spec"]["ingress"][0]["from"], controller);
    let objects = accepted(&template(&[ENABLED, ALONE], &[]).await.expect("rendered")).await;
    let objects = of_component(&objects, "kubelet-plugin");
    let policy = &only(&objects, "NetworkPolicy")["spec"];
    assert_eq!(policy["policyTypes"], json!(["Ingress"]), "it reaches the API server");
    assert_eq!(policy["ingress"].as_array().map_or(0, Vec::len), 0, "nobody: {policy}");
    let set = &only(&objects, "DaemonSet")["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"], set["selector"]["matchLabels"]);

    let peers = json!([
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
        {"ipBlock": {"cidr": "10.0.0.0/8"}},
    ]);
    let from = format!("networkPolicy.metricsFrom={peers}");
    let objects = accepted(&template(&[ENABLED, ALONE, &from], &[]).await.expect("rendered")).await;
    let objects = of_component(&objects, "kubelet-plugin");
    let ingress = &only(&objects, "NetworkPolicy")["spec"]["ingress"];
    assert_eq!(*ingress, json!([{"from": peers, "ports": [{"port": "http", "protocol": "TCP"}]}]));
}

#[tokio::test]
async fn the_plugin_may_do_what_it_does_and_nothing_more() {
    let objects = accepted(&template(&[], &[]).await.expect("rendered")).await;
    let objects = of_component(&objects, "kubelet-plugin");
    assert_eq!(
        only(&objects, "ClusterRole")["rules"],
        json!([
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]},
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"],
             "resourceNames": ["gpu.tessera.dev"], "verbs": ["associated-node:patch"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "watch"]},
            {"apiGroups": ["gpu.tessera.dev"], "resources": ["gpupools"], "verbs": ["list", "watch"]},
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"],
             "verbs": ["get", "list", "watch", "create", "update", "delete"]},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        ])
    );
    // Who may patch a claim's status could change its allocation there.
    let old = template(&[], &["--kube-version", "1.35.2"]).await.expect("rendered");
    assert!(!old.contains("resourceclaims/"), "{old}");
}

/// The chart's roles for people grant reading only, and nobody has a role before a binding.
#[tokio::test]
async fn roles_for_people_read_and_are_bound_to_nobody() {
    let roles = async |values: &[&str]| {
        let objects = accepted(&template(values, &[]).await.expect("rendered")).await;
        of_component(&objects, "kubectl-gpu")
    };
    let all = roles(&[]).await;
    let kinds: Vec<_> = all.iter().filter_map(|role| role["kind"].as_str()).collect();
    assert_eq!(kinds, ["ClusterRole", "ClusterRole", "ClusterRole", "Role"]);
    let rules = all.iter().flat_map(|role| role["rules"].as_array().expect("rules"));
    let writes =
        rules.filter(|rule| strings(&rule["verbs"]).iter().any(|v| !["get", "list", "watch"].contains(v)));
    let writes: Vec<_> = writes.map(|rule| &rule["resources"]).collect();
    assert_eq!(writes, [&json!(["pods/portforward"])]);
    let of_view = |roles: &[Value]| {
        let label = "rbac.authorization.k8s.io/aggregate-to-view";
        let of_view = roles.iter().filter(|role| role["metadata"]["labels"][label] == "true");
        of_view.flat_map(|role| role["rules"].as_array().cloned().expect("rules")).collect::<Vec<_>>()
    };
    let claims = json!({"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims", "resourceclaimtemplates"],
        "verbs": ["get", "list", "watch"]});
    assert_eq!(of_view(&all), [claims]);
    assert_eq!(of_view(&roles(&["userRoles.aggregateToView=false"]).await), [] as [Value; 0]);
    assert_eq!(roles(&["userRoles.enabled=false"]).await, [] as [Value; 0]);
}
