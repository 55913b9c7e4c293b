//! The chart's own kinds, and the mistakes that their schemas refuse.

use serde_json::{Value, json};

use crate::support::{accepted, cluster, template};

/// Helm keeps the CRD when the release is deleted, and applies an upgrade's changes.
#[tokio::test]
async fn own_kinds_come_with_the_chart_and_stay() {
    let objects = accepted(&template(&[], &[]).await.expect("rendered")).await;
    let definitions = objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
    let mut names = Vec::new();
    for definition in definitions {
        assert_eq!(definition["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
        names.push(&definition["metadata"]["name"]);
    }
    assert_eq!(json!(names), json!(["gpupools.gpu.tessera.dev", "gpuquotas.gpu.tessera.dev"]));
    let without = template(&["crds.install=false"], &[]).await.expect("rendered");
    assert!(!without.contains("CustomResourceDefinition"));
}

/// Mistakes are refused by the API server, as far as it can.
#[tokio::test]
async fn a_pool_with_a_mistake_is_refused() {
    let cluster = cluster().await;
    let pool = |spec: &Value| json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "p"}, "spec": spec});
    tessera_harness::installation::make_pools(cluster, &[pool(&json!({})).to_string()])
        .await
        .expect("accepted");
    for spec in [
        json!({"allocation": "Managed"}),
        json!({"allocation": "Managed", "placement": {"topology": "Required"}}),
        json!({"allocation": "Managed", "placement": {"gather": {"mode": "Move"}}}),
        json!({"placement": {"queue": "Strict", "gather": {"perHour": 2}}}),
    ] {
        cluster.apply(&pool(&spec).to_string()).await.expect("accepted");
    }
    for (spec, part) in [
        (json!({"prority": 1}), "prority"),
        (json!({"cards": ""}), "spec.cards"),
        (json!({"placement": {"topology": "Required"}}), "needs allocation Managed"),
        (json!({"allocation": "Steered", "placement": {"topology": "Required"}}), "needs allocation Managed"),
        (json!({"placement": {"gather": {"mode": "Move"}}}), "Move needs allocation Managed"),
        (
            json!({"allocation": "Managed", "placement": {"queue": "Strict", "gather": {"mode": "Move"}}}),
            "no queue Strict",
        ),
        (json!({"offer": {"sharing": {"timeSlicing": {"replicas": 1}}}}), "replicas"),
        (json!({"offer": {"sharing": {"mps": {"defaultShares": 101}}}}), "defaultShares"),
        (json!({"offer": {"sharing": {"mps": {"cards": false}}}}), "shares neither"),
        (
            json!({"offer": {"sharing": {"mps": {"cards": false, "partitions": ["1g.10gb"], "staticPartitions": true}}}}),
            "staticPartitions",
        ),
        (json!({"offer": {"partitioning": {"profiles": ["1g10gb"]}}}), "profiles"),
        (
            json!({"offer": {"partitioning": {"mode": "None", "profiles": ["1g.10gb"]}}}),
            "leave the profiles out",
        ),
        (json!({"offer": {"layout": ""}}), "layout"),
        (json!({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}), "need values"),
    ] {
        let error = cluster.apply(&pool(&spec).to_string()).await.expect_err(&spec.to_string()).to_string();
        assert!(error.contains(part), "{spec}: {error}");
    }
    let long = json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "p".repeat(64)}, "spec": {}});
    assert!(cluster.apply(&long.to_string()).await.expect_err("a long name").to_string().contains("63"));
}

#[tokio::test]
async fn a_quota_with_a_mistake_is_refused() {
    let cluster = cluster().await;
    let quota = |spec: &Value| json!({"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "GpuQuota", "metadata": {"name": "q"}, "spec": spec});
    tessera_harness::installation::make_pools(cluster, &[quota(&json!({})).to_string()])
        .await
        .expect("accepted");
    let cards = |more: Value| {
        let mut amount = json!({"name": "cards", "unit": "Cards"});
        amount.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"amounts": [amount]})
    };
    let many: Vec<Value> =
        (0..17).map(|number| json!({"name": format!("n{number}"), "unit": "Cards"})).collect();
    let (most, below) = (&many[..16], "must not exceed limit");
    for spec in [
        json!({"namespaceSelector": {}, "parent": "research", "weight": 10_000, "minRuntimeSeconds": 0}),
        json!({"amounts": most}),
        cards(json!({"guaranteed": 12, "limit": 24})),
        cards(json!({"guaranteed": "500m", "limit": 1})),
        cards(json!({"unit": "Memory", "guaranteed": "960Gi", "limit": "1.5Ti"})),
        cards(json!({"guaranteed": 0, "limit": "1M"})),
    ] {
        cluster.apply(&quota(&spec).to_string()).await.expect("accepted");
    }
    for (spec, part) in [
        (json!({"wieght": 1}), "wieght"),
        (json!({"weight": 0}), "spec.weight"),
        (json!({"parent": "q"}), "not its own parent"),
        (json!({"amounts": many}), "spec.amounts"),
        (json!({"amounts": [many[0], many[0]]}), "duplicate entries"),
        (json!({"amounts": [{"name": "A", "unit": "Cards"}]}), "amounts[0].name"),
        (cards(json!({"unit": "cards"})), "amounts[0].unit"),
        (cards(json!({"cards": ""})), "amounts[0].cards"),
        (cards(json!({"guaranteed": 2, "limit": "1500m"})), below),
        (cards(json!({"guaranteed": "1Ki", "limit": 1000})), below),
        (cards(json!({"guaranteed": -1})), "amounts[0].guaranteed"),
        (cards(json!({"limit": "-1"})), "amounts[0].limit"),
        (cards(json!({"limit": "many"})), "amounts[0].limit"),
        (cards(json!({"limit": 2_000_000})), "at most 1M cards"),
        (cards(json!({"unit": "Memory", "guaranteed": "2Ei"})), "1Ei of memory"),
        (cards(json!({"unit": "Memory", "limit": "500m"})), "m a thousandth"),
    ] {
        let error = cluster.apply(&quota(&spec).to_string()).await.expect_err(&spec.to_string()).to_string();
        assert!(error.contains(part), "{spec}: {error}");
    }
}
