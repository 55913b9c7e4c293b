//! The node configurations in the chart's values, as the plugin reads them.

use serde_json::{Value, json};
use tessera_api::{
    NodeConfigs,
    offer::{PartitioningMode, PlacementOrder, TimeSliceInterval},
};

use crate::support::{accepted, only, template};

#[tokio::test]
async fn the_plugin_reads_what_the_values_say() {
    let configs = json!({
        "training": {},
        "all": {
            "wholeCards": false,
            "partitioning": {"mode": "OnDemand", "profiles": ["1g.10gb", "1g.10gb+me", "1g.24gb+me.all"], "placementOrder": "HighestStart"},
            "sharing": {
                "mps": {"cards": false, "partitions": ["3g.40gb"], "defaultShares": 2, "maxClients": 16},
                "timeSlicing": {"replicas": 10, "interval": "Medium"},
            },
        },
        "static": {"sharing": {"mps": {"staticPartitions": true}}},
        "notebooks": {"partitioning": {"mode": "None"}, "sharing": {"timeSlicing": {"replicas": 4}}},
    });
    let values = [format!("nodeConfigs.configs={configs}"), r#"nodeConfigs.default="training""#.to_owned()];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let objects = accepted(&template(&values, &[]).await.expect("rendered")).await;
    let map = only(&objects, "ConfigMap");
    let text = map["data"]["node-configs.yaml"].as_str().expect("a file");
    let object: Value = serde_saphyr::from_str(text).expect("YAML");
    let configs = NodeConfigs::decode(&object).expect("every configuration is right");
    let all = configs.get("all").expect("there");
    assert!(!all.whole_cards && all.partitioning.placement_order == PlacementOrder::HighestStart);
    let slicing = all.sharing.time_slicing.as_ref().expect("time-slices");
    assert_eq!((slicing.replicas, slicing.interval), (10, TimeSliceInterval::Medium));
    let mps = configs.get("static").expect("there").sharing.mps.as_ref().expect("shares");
    assert!(mps.static_partitions && mps.cards);
    assert_eq!(configs.get("notebooks").expect("there").partitioning.mode, PartitioningMode::None);

    let container = &only(&objects, "DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    let variable = |name: &str| {
        let variables = container["env"].as_array().expect("a list");
        variables.iter().find(|variable| variable["name"] == name).map(|variable| variable["value"].clone())
    };
    assert_eq!(variable("NODE_CONFIG"), Some(json!("training")));
    assert_eq!(variable("NODE_CONFIG_LABEL"), Some(json!("gpu.tessera.dev/config")));
    let mounts = container["volumeMounts"].as_array().expect("a list");
    let mount = mounts.iter().find(|mount| mount["name"] == "node-configs").expect("mounted");
    let file = variable("NODE_CONFIGS").expect("set");
    assert_eq!(file, format!("{}/node-configs.yaml", mount["mountPath"].as_str().expect("a path")));

    let plain = template(&[], &[]).await.expect("rendered");
    assert!(!plain.contains("NODE_CONFIG"), "nothing configured, nothing to read");
}

#[tokio::test]
async fn values_that_the_plugin_would_refuse_are_refused() {
    for (values, part) in [
        (r#"nodeConfigs.configs={"a":{"sharng":{}}}"#, "sharng"),
        (r#"nodeConfigs.configs={"a":{"partitioning":{"profiles":["1g10gb"]}}}"#, "profiles"),
        (r#"nodeConfigs.configs={"a":{"sharing":{"timeSlicing":{"replicas":1}}}}"#, "replicas"),
        (r#"nodeConfigs.configs={"a":{"sharing":{"mps":{"defaultShares":101}}}}"#, "defaultShares"),
        (
            r#"nodeConfigs.configs={"a":{"sharing":{"mps":{"cards":false,"partitions":["1g.10gb"],"staticPartitions":true}}}}"#,
            "mps",
        ),
        (r#"nodeConfigs.configs={"a b":{}}"#, "a b"),
        (r#"nodeConfigs.default="b""#, "no configuration"),
    ] {
        let error = template(&[values], &[]).await.expect_err(values).to_string();
        assert!(error.contains(part), "{values}: {error}");
    }
}
