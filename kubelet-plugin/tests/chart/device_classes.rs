//! The classes have one source, and their selectors never fail.

use std::collections::BTreeMap;
use std::fs;

use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{LONG, accepted, chart, cluster, objects, only, path, template};

fn specs(mut classes: Vec<Value>) -> Vec<(Value, Value)> {
    classes.sort_by_key(|class| class["metadata"]["name"].to_string());
    classes.into_iter().map(|class| (class["metadata"]["name"].clone(), class["spec"].clone())).collect()
}

#[tokio::test]
async fn the_chart_renders_what_lies_in_deviceclasses() {
    let mut files = 0;
    for entry in fs::read_dir(path("deviceclasses")).expect("readable") {
        let file = entry.expect("readable").path();
        if file.extension().is_some_and(|extension| extension == "yaml") {
            let name = file.file_name().expect("a name");
            let copy = path("charts/tessera/files/deviceclasses").join(name);
            assert_eq!(
                fs::read_to_string(&file).expect("text"),
                fs::read_to_string(&copy).expect("text"),
                "{copy:?}"
            );
            files += 1;
        }
    }
    let copies = fs::read_dir(path("charts/tessera/files/deviceclasses")).expect("readable").count();
    assert_eq!(copies, files);

    let directory = path("deviceclasses").display().to_string();
    let arguments = ["create", "--dry-run=server", "--output=json", "--filename", &directory];
    let applied = objects(&cluster().await.kubectl(&arguments).await.expect("accepted"));
    assert_eq!(applied.len(), files);
    let only_classes = ["--show-only=templates/deviceclasses.yaml"];
    let rendered = accepted(&template(&[], &only_classes).await.expect("rendered")).await;
    assert_eq!(specs(rendered), specs(applied));
}

#[tokio::test]
async fn another_driver_name_and_extended_resources_go_into_the_classes() {
    let only_classes = ["--show-only=templates/deviceclasses.yaml"];
    let values = [r#"driverName="x.example.com""#, "extendedResourceNames.enabled=true"];
    let text = template(&values, &only_classes).await.expect("rendered");
    assert!(!text.contains("gpu.tessera.dev"), "{text}");
    let classes = accepted(&text).await;
    assert_eq!(
        resources(&classes),
        [
            ("mig.x.example.com", None),
            ("mps.x.example.com", None),
            ("nvidia.com-gpu.shared.x.example.com", Some("nvidia.com/gpu.shared")),
            ("nvidia.com-gpu.x.example.com", Some("nvidia.com/gpu")),
            ("timeslice.x.example.com", None),
            ("x.example.com", None),
        ]
    );
    let values = [
        "extendedResourceNames.enabled=true",
        r#"extendedResourceNames.gpu="example.com/A_card""#,
        r#"extendedResourceNames.timeslice="""#,
    ];
    let classes = accepted(&template(&values, &only_classes).await.expect("rendered")).await;
    let named: Vec<_> = resources(&classes).into_iter().filter(|(_, name)| name.is_some()).collect();
    assert_eq!(named, [("example.com-a-card.gpu.tessera.dev", Some("example.com/A_card"))]);
}

#[tokio::test]
async fn under_nvidias_name_the_classes_are_nvidias_too() {
    let values = [
        r#"driverName="gpu.nvidia.com""#,
        "crds.install=false",
        r#"extendedResourceNames.mig.strategy="mixed""#,
        r#"extendedResourceNames.mig.profiles=["1g.10gb"]"#,
    ];
    let text = template(&values, &[]).await.expect("rendered");
    // Except for the kinds of our own, their API group, and names in it, of labels and the gate.
    let kinds = text
        .split(
            "---
",
        )
        .filter(|document| !document.contains("kind: CustomResourceDefinition"));
    let lines = kinds.flat_map(str::lines).filter(|line| line.contains("gpu.tessera.dev"));
    let own = ["gpu.tessera.dev/", "[gpu.tessera.dev]"];
    let is_own = |line: &&str| own.iter().any(|own| line.contains(own));
    let others: Vec<&str> = lines.filter(|line| !is_own(line)).collect();
    assert_eq!(others, [""; 0]);
    let objects = accepted(&text).await;
    let classes: Vec<Value> =
        objects.iter().filter(|object| object["kind"] == "DeviceClass").cloned().collect();
    assert_eq!(
        resources(&classes),
        [
            ("gpu.nvidia.com", None),
            ("mig-1g.10gb.gpu.nvidia.com", Some("nvidia.com/mig-1g.10gb")),
            ("mig.nvidia.com", None),
            ("mps.gpu.nvidia.com", None),
            ("nvidia.com-gpu.gpu.nvidia.com", Some("nvidia.com/gpu")),
            ("nvidia.com-gpu.shared.gpu.nvidia.com", Some("nvidia.com/gpu.shared")),
            ("timeslice.gpu.nvidia.com", None),
        ]
    );
    let policies = objects.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy");
    let policies: Vec<String> = policies.map(|policy| policy["spec"].to_string()).collect();
    let of_pool = |policy: &String| policy.contains("gpu.nvidia.com/");
    assert!(policies.iter().any(of_pool), "the pool that the plugin may write: {policies:?}");
    let of_driver =
        |policy: &String| policy.contains("== 'gpu.nvidia.com'") || policy.contains(r#"\"gpu.nvidia.com\""#);
    assert!(policies.iter().any(of_driver), "whose devices only some may allocate: {policies:?}");
    let plugin = &only(&objects, "DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    let arguments = plugin["args"].as_array().expect("arguments");
    assert!(arguments.contains(&json!("--driver-name=gpu.nvidia.com")), "{arguments:?}");
    let mounts = plugin["volumeMounts"].as_array().expect("mounts");
    assert!(mounts.iter().any(|mount| mount["mountPath"] == "/var/lib/kubelet/plugins/gpu.nvidia.com"));
}

/// NVIDIA's chart gives whole cards their name unasked.
#[tokio::test]
async fn extended_resources_are_off_but_under_nvidias_name() {
    for (values, on) in [
        (vec![], false),
        (vec![r#"driverName="gpu.nvidia.com""#], true),
        (vec![r#"driverName="gpu.nvidia.com""#, "extendedResourceNames.enabled=false"], false),
        (vec!["extendedResourceNames.enabled=true"], true),
    ] {
        let text = template(&values, &["--show-only=templates/deviceclasses.yaml"]).await.expect("rendered");
        assert_eq!(text.contains("extendedResourceName: nvidia.com/gpu\n"), on, "{values:?}");
    }
}

/// NVIDIA's chart already has the class: helm reports the conflict before installing anything.
#[tokio::test]
async fn a_class_of_another_release_is_not_taken_over() {
    let cluster = cluster().await;
    let theirs = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "taken.example.com",
        "annotations": {"meta.helm.sh/release-name": "dra-driver-nvidia-gpu", "meta.helm.sh/release-namespace": "theirs"},
        "labels": {"app.kubernetes.io/managed-by": "Helm"}}, "spec": {}});
    cluster.apply(&theirs.to_string()).await.expect("applied");
    let chart = chart();
    let install = [
        "install",
        "second",
        &chart,
        "--namespace",
        "taken",
        "--create-namespace",
        "--set",
        "driverName=taken.example.com",
    ];
    let error = cluster.helm(&install).await.expect_err("refused").to_string();
    assert!(error.contains("taken.example.com") && error.contains("cannot be imported"), "{error}");
}

/// Names of classes, with the extended resources they stand for.
fn resources(classes: &[Value]) -> Vec<(&str, Option<&str>)> {
    let mut resources: Vec<_> = classes
        .iter()
        .map(|class| {
            let name = class["metadata"]["name"].as_str().expect("a name");
            (name, class["spec"]["extendedResourceName"].as_str())
        })
        .collect();
    resources.sort_unstable();
    resources
}

/// kube-scheduler forgets an extended resource name when any class gives the name up, even if another class has it.
#[tokio::test]
async fn no_upgrade_takes_an_extended_resource_name_from_a_class_that_stays() {
    let single = r#"extendedResourceNames.mig.strategy="single""#;
    let profile = r#"extendedResourceNames.mig.profiles=["1g.10gb"]"#;
    let mut class_of = BTreeMap::new();
    let mut resource_of = BTreeMap::new();
    for values in [
        vec![],
        vec![r#"extendedResourceNames.mig.strategy="mixed""#, profile],
        vec![single, profile],
        vec![single, r#"extendedResourceNames.mig.pools=["small"]"#],
        vec![r#"extendedResourceNames.timeslice="""#],
        vec![
            r#"extendedResourceNames.timeslice="nvidia.com/gpu""#,
            r#"extendedResourceNames.gpu="nvidia.com/whole""#,
        ],
    ] {
        let values = [&["extendedResourceNames.enabled=true"][..], &values].concat();
        let text = template(&values, &["--show-only=templates/deviceclasses.yaml"]).await.expect("rendered");
        let classes = accepted(&text).await;
        for (class, resource) in resources(&classes) {
            let before = resource_of.insert(class.to_owned(), resource.map(str::to_owned));
            assert!(before.is_none_or(|before| before.as_deref() == resource), "{values:?}: {class}");
            let Some(resource) = resource else { continue };
            let before = class_of.insert(resource.to_owned(), class.to_owned());
            assert!(before.is_none_or(|before| before == class), "{values:?}: {resource}");
        }
    }
    assert_eq!(class_of["nvidia.com/gpu"], "nvidia.com-gpu.gpu.tessera.dev");
}

#[tokio::test]
async fn one_name_stands_for_cards_or_partitions_or_both_by_pool() {
    let selector = async |values: &[&str]| {
        let values = [&["extendedResourceNames.enabled=true"], values].concat();
        let text = template(&values, &["--show-only=templates/deviceclasses.yaml"]).await.expect("rendered");
        let classes = accepted(&text).await;
        let is_named = |class: &&Value| class["spec"]["extendedResourceName"] == "nvidia.com/gpu";
        let class = classes.iter().find(is_named).expect("a class with the name");
        class["spec"]["selectors"][0]["cel"]["expression"].as_str().expect("text").to_owned()
    };
    let single = r#"extendedResourceNames.mig.strategy="single""#;
    let profile = r#"extendedResourceNames.mig.profiles=["3g.40gb"]"#;
    let pools = r#"extendedResourceNames.mig.pools=["small","tiny"]"#;
    let of_driver = r#"device.driver == "gpu.tessera.dev" && device.attributes["gpu.tessera.dev"]."#;
    let cards = format!(r#"{of_driver}?type.orValue("") == "gpu""#);
    let partitions = format!(r#"{of_driver}?type.orValue("") == "mig""#);
    let of_profile = r#" && device.attributes["gpu.tessera.dev"].?profile.orValue("") == "3g.40gb""#;
    let of_pools = r#" && device.attributes["gpu.tessera.dev"].?gpuPool.orValue("") in ["small","tiny"]"#;
    assert_eq!(selector(&[]).await, cards);
    assert_eq!(selector(&[single, profile]).await, format!("{partitions}{of_profile}"));
    assert_eq!(selector(&[single, pools]).await, format!("{cards} || {partitions}{of_pools}"));
    let both = selector(&[single, pools, profile]).await;
    assert_eq!(both, format!("{cards} || {partitions}{of_pools}{of_profile}"));
}

#[tokio::test]
async fn partitions_have_the_names_of_the_device_plugin() {
    let only_classes = ["--show-only=templates/deviceclasses.yaml"];
    let enabled = "extendedResourceNames.enabled=true";
    let mixed = [
        enabled,
        r#"extendedResourceNames.mig.strategy="mixed""#,
        r#"extendedResourceNames.mig.profiles=["1g.10gb","1g.10gb+me","1g.24gb-me"]"#,
    ];
    let classes = accepted(&template(&mixed, &only_classes).await.expect("rendered")).await;
    let mig: Vec<_> = resources(&classes).into_iter().filter(|(name, _)| name.starts_with("mig-")).collect();
    assert_eq!(
        mig,
        [
            ("mig-1g.10gb.gpu.tessera.dev", Some("nvidia.com/mig-1g.10gb")),
            ("mig-1g.10gb.me.gpu.tessera.dev", Some("nvidia.com/mig-1g.10gb.me")),
            ("mig-1g.24gb-me.gpu.tessera.dev", Some("nvidia.com/mig-1g.24gb-me")),
        ]
    );
    for (values, part) in [
        (vec![r#"extendedResourceNames.mig.strategy="mixed""#], "needs profiles"),
        (vec![r#"extendedResourceNames.mig.strategy="single""#], "exactly one profile"),
        (
            vec![
                r#"extendedResourceNames.mig.strategy="single""#,
                r#"extendedResourceNames.mig.profiles=["1g.10gb","2g.20gb"]"#,
                r#"extendedResourceNames.mig.pools=["small"]"#,
            ],
            "one profile",
        ),
        (vec![r#"extendedResourceNames.mig.pools=["small"]"#], "strategy single"),
        (vec![r#"extendedResourceNames.timeslice="nvidia.com/gpu""#], "have one name"),
        (vec![r#"extendedResourceNames.mig.profiles=["1g10gb"]"#], "profiles"),
        (vec![r#"extendedResourceNames.mig.prefix="kubernetes.io/mig-""#], "Kubernetes' own"),
    ] {
        let error = template(&values, &[]).await.expect_err("refused").to_string();
        assert!(error.contains(part), "{values:?}: {error}");
    }
}

/// An error in a selector fails the scheduling of the pod, whichever device causes the error. The scheduler evaluates selectors for
/// every device of the node: here for one of a driver without our attributes, and for one of ours without a type.
#[tokio::test]
async fn selectors_hold_on_devices_of_other_drivers() {
    let cluster = cluster().await;
    let driver = "selectors.example.com";
    let values = [&*format!("driverName={driver:?}")];
    let classes = template(&values, &["--show-only=templates/deviceclasses.yaml"]).await.expect("rendered");
    cluster.apply(&classes).await.expect("applied");
    cluster.add_node_object("selectors").await.expect("a node");
    let slice = |name: &str, driver: &str, devices: Value| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": driver, "nodeName": "selectors", "devices": devices,
                "pool": {"name": format!("{driver}/selectors"), "generation": 1, "resourceSliceCount": 1}}})
        .to_string()
    };
    let text = |text: &str| json!({"string": text});
    let foreign = json!([{"name": "foreign"}, {"name": "number", "attributes": {"type": {"int": 1}}}]);
    let ours = json!([{"name": "untyped"}, {"name": "mig", "attributes": {"type": text("mig")}},
        {"name": "card", "attributes": {"type": text("gpu")}}]);
    cluster.apply(&slice("selectors-a", "a.example.com", foreign)).await.expect("applied");
    cluster.apply(&slice("selectors-b", driver, ours)).await.expect("applied");

    let client = cluster.client().await.expect("a client");
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), "default");
    let claim =
        serde_json::from_value(json!({"metadata": {"name": "selectors"}, "spec": {"devices": {"requests": [
        {"name": "card", "exactly": {"deviceClassName": driver}}]}}}));
    claims.create(&PostParams::default(), &claim.expect("a claim")).await.expect("created");
    let pod = serde_json::from_value(json!({"metadata": {"name": "selectors"}, "spec": {
        "nodeSelector": {"kubernetes.io/hostname": "selectors"},
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "card"}]}}],
        "resourceClaims": [{"name": "card", "resourceClaimName": "selectors"}]}}));
    let pods: Api<Pod> = Api::namespaced(client, "default");
    pods.create(&PostParams::default(), &pod.expect("a pod")).await.expect("created");

    let begin = Instant::now();
    let allocated = loop {
        let claim = claims.get("selectors").await.expect("the claim");
        let allocation =
            claim.status.and_then(|status| status.allocation).and_then(|allocation| allocation.devices);
        if let Some(results) = allocation.and_then(|devices| devices.results) {
            break results;
        }
        let pod = pods.get("selectors").await.expect("the pod");
        assert!(begin.elapsed() < LONG, "not allocated: {:?}", pod.status);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(allocated.iter().map(|result| &*result.device).collect::<Vec<_>>(), ["card"]);
}
