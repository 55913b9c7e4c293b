//! The controller in the chart.

use clap::Parser as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use tessera_controller::options::{Command, Options};
use tessera_kube_util::lease::{self, Leadership, LeaseOptions};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::{LONG, accepted, cluster, connect, file, of_component, only, strings, template};

#[tokio::test]
async fn every_option_of_the_controller_in_the_chart_exists() {
    let values = [
        r#"driverName="x.example.com""#,
        r#"controller={"httpPort": 1234, "logLevel": "debug,h2=info", "logFormat": "json", "replicas": 3}"#,
        r#"steering={"schedulerName": "own-scheduler"}"#,
        r#"managed={"schedulerNames": ["volcano", "own-scheduler"]}"#,
        r#"fleetPage={"exposed": true}"#,
        r#"quota={"enabled": false, "exempt": ["incident", "pager"], "reclaimTo": "FairShare"}"#,
        r#"prices={"currency": "USD", "perCardHour": {"NVIDIA H100 80GB HBM3": 2.5}}"#,
    ];
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    let deployment = &only(&objects, "Deployment")["spec"];
    assert_eq!(deployment["replicas"], 3);
    let pod = &deployment["template"]["spec"];
    let arguments = [vec!["controller"], strings(&pod["containers"][0]["args"])].concat();
    let options = Options::try_parse_from(arguments).expect("valid");
    assert_eq!(options.driver_name, "x.example.com");
    assert_eq!(options.http_address.port(), 1234);
    assert_eq!((&*options.namespace, &*options.lease_name), ("default", "rendered-tessera-controller"));
    assert_eq!(options.fleet_address, "0.0.0.0:8081".parse().unwrap());
    assert!(!options.quotas);
    assert_eq!(options.schedulers, ["own-scheduler", "volcano"]);
    assert_eq!(options.quota_exempt, ["incident", "pager"]);
    assert_eq!(format!("{:?}", options.quota_reclaim_to), "FairShare");
    let plugins = options.plugins.expect("the plugins' labels");
    let of_plugin = of_component(&objects, "kubelet-plugin");
    let labels = &only(&of_plugin, "DaemonSet")["spec"]["selector"]["matchLabels"];
    for label in plugins.split(',') {
        let (name, value) = label.split_once('=').expect("a label");
        assert_eq!(labels[name], value, "{plugins}");
    }
    assert_eq!(plugins.split(',').count(), labels.as_object().unwrap().len());
    let prices: serde_json::Value = serde_json::from_str(file(&objects, "prices.json")).unwrap();
    assert_eq!(prices["perCardHour"]["NVIDIA H100 80GB HBM3"], 2.5);
    let former = [r#"fleetPage={"prices": {"currency": "USD", "perCardHour": {"A": 3.5}}}"#];
    let former = accepted(&template(&former, &[]).await.expect("rendered")).await;
    let former: serde_json::Value = serde_json::from_str(file(&former, "prices.json")).unwrap();
    assert_eq!(former["perCardHour"]["A"], 3.5);
    assert_eq!(options.prices.expect("prices").to_str(), Some("/etc/tessera/prices.json"));
    let container = &pod["containers"][0];
    let socket = options.probe_socket.expect("a socket for probes");
    // Others can keep a port busy.
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let command = json!(["controller", "probe", format!("--socket={}", socket.display()), path]);
        assert_eq!(container[probe]["exec"]["command"], command);
        assert_eq!(container[probe]["httpGet"], json!(null));
    }
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let is_of_socket =
        |mount: &&serde_json::Value| socket.starts_with(mount["mountPath"].as_str().expect("a path"));
    assert_eq!(mounts.iter().find(is_of_socket).expect("a mount")["name"], "probes");
    assert_eq!(pod["containers"][0]["env"][0]["name"], "POD_NAME");

    let arguments = [
        vec!["controller"],
        strings(&only(&objects, "Job")["spec"]["template"]["spec"]["containers"][0]["args"]),
    ]
    .concat();
    let Some(Command::Ungate(ungate)) = Options::try_parse_from(arguments).expect("valid").command else {
        panic!("the Job lifts gates");
    };
    let is_binding = |object: &&serde_json::Value| object["kind"] == "MutatingAdmissionPolicyBinding";
    let mut bindings: Vec<_> =
        objects.iter().filter(is_binding).map(|object| &object["metadata"]["name"]).collect();
    bindings.sort_by_key(|name| name.as_str());
    assert_eq!(json!(ungate.bindings), json!(bindings));
    let role = objects.iter().find(|object| {
        object["kind"] == "ClusterRole"
            && object["metadata"]["name"].as_str().is_some_and(|name| name.ends_with("-ungate"))
    });
    assert_eq!(role.expect("a role")["rules"][0]["resourceNames"], json!(bindings));
}

#[tokio::test]
async fn it_needs_nothing_of_the_node() {
    let objects = accepted(&template(&[], &[]).await.expect("rendered")).await;
    for kind in ["Deployment", "Job"] {
        let pod = &only(&objects, kind)["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"], json!({"seccompProfile": {"type": "RuntimeDefault"}}));
        let context = &pod["containers"][0]["securityContext"];
        assert_eq!(
            *context,
            json!({"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "readOnlyRootFilesystem": true,
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
        );
        let volumes = pod["volumes"].as_array().into_iter().flatten();
        assert!(volumes.into_iter().all(|volume| volume.get("emptyDir").is_some()), "{kind}");
    }
}

#[tokio::test]
async fn without_the_controller_nothing_holds_pods_back() {
    let kinds = [
        "Deployment",
        "PodDisruptionBudget",
        "Job",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ];
    let count = async |values: &[&str]| {
        let objects = accepted(&template(values, &[]).await.expect("rendered")).await;
        kinds.map(|kind| objects.iter().filter(|object| object["kind"] == kind).count())
    };
    assert_eq!(count(&[]).await, [1, 1, 1, 1, 4]);
    assert_eq!(count(&["steering.enabled=false"]).await, [1, 1, 0, 0, 0]);
    assert_eq!(count(&["controller.enabled=false"]).await, [0, 0, 0, 0, 0]);
    // The API of the policy is not there yet.
    let old = template(&[], &["--kube-version", "1.35.2"]).await.expect("rendered");
    assert!(old.contains("kind: Deployment") && !old.contains("kind: MutatingAdmissionPolicy"), "{old}");
}

#[tokio::test]
async fn wrong_values_are_refused_by_name() {
    for (value, says) in [
        ("controller.replicas=0", "/controller/replicas"),
        ("controller.httpPort=80", "/controller/httpPort"),
        ("controller.replica=1", "replica"),
        ("steering.schedulerName=\"a \\\"b\"", "/steering/schedulerName"),
        ("steering.enabled=\"yes\"", "/steering/enabled"),
    ] {
        let error = template(&[value], &[]).await.expect_err(value).to_string();
        assert!(error.contains(says), "{value}: {error}");
    }
}

#[tokio::test]
async fn what_admits_the_plugin_admits_the_controller() {
    let values = ["criticalPodsQuota=true", "networkPolicy.enabled=true"];
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    let classes = &only(&objects, "ResourceQuota")["spec"]["scopeSelector"]["matchExpressions"][0]["values"];
    assert_eq!(*classes, json!(["system-node-critical", "system-cluster-critical"]));
    let own = of_component(&objects, "controller");
    let deployment = &only(&own, "Deployment")["spec"];
    for kind in ["NetworkPolicy", "PodDisruptionBudget"] {
        let spec = &only(&own, kind)["spec"];
        let selector = if kind == "NetworkPolicy" { &spec["podSelector"] } else { &spec["selector"] };
        assert_eq!(*selector, deployment["selector"], "{kind}");
    }
}

/// With the chart's rights, at the real API server.
#[tokio::test]
async fn two_controllers_agree_by_the_lease() {
    const NAMESPACE: &str = "election";
    let cluster = cluster().await;
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await.expect("created");
    let rendered = template(&[], &["--show-only=templates/controller-rbac.yaml", "--namespace", NAMESPACE]);
    let rendered = rendered.await.expect("rendered");
    cluster.kubectl_with_input(&["create", "--filename=-"], &rendered).await.expect("created");
    let name = "rendered-tessera-controller";
    let config = cluster.service_account_config(NAMESPACE, name, None).await.expect("a token");
    let client = connect(config).await;
    let start = |holder: &str| {
        let (sender, leadership) = watch::channel(Leadership::Following { holder: None });
        let shutdown = CancellationToken::new();
        let options = LeaseOptions::new(NAMESPACE, name, holder);
        let task = tokio::spawn(lease::follow(client.clone(), options, sender, shutdown.clone()));
        (leadership, shutdown, task)
    };
    let leads = async |leadership: &mut watch::Receiver<Leadership>| {
        let leads = leadership.wait_for(|leadership| leadership.may_write_until().is_some());
        drop(tokio::time::timeout(LONG, leads).await.expect("in time").expect("running"));
    };
    let (mut first, stop_first, first_task) = start("first");
    leads(&mut first).await;
    let (mut second, stop_second, second_task) = start("second");
    let follows =
        second.wait_for(|leadership| *leadership == Leadership::Following { holder: Some("first".into()) });
    drop(tokio::time::timeout(LONG, follows).await.expect("in time").expect("running"));
    stop_first.cancel();
    first_task.await.expect("no panic").expect("valid");
    leads(&mut second).await;
    stop_second.cancel();
    second_task.await.expect("no panic").expect("valid");
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = leases.get(name).await.expect("there").spec.expect("a specification");
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some(""), Some(1)));
    cluster.kubectl_with_input(&["delete", "--filename=-"], &rendered).await.expect("deleted");
}
