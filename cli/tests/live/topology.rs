use serde_json::{Value, json};
use tessera_harness::shared;

use crate::run;

#[tokio::test(flavor = "multi_thread")]
async fn shows_the_cards_of_a_node() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let slice = |node: &str, report: Value| {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": node,
                "annotations": { tessera_api::node_report::ANNOTATION: report.to_string() },
            },
            "spec": {
                "driver": "cards.tessera.dev",
                "nodeName": node,
                "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
                "devices": [{ "name": "gpu-07-00" }, { "name": "gpu-0f-00" }],
            },
        })
    };
    let report = json!({
        "cards": { "0000:07:00.0": {}, "0000:0f:00.0": { "pool": "training" } },
        "links": [["0000:07:00.0", "0000:0f:00.0", 12]],
        "otherPairs": "SYS",
    });
    let slices = [slice("cli-cards-1", report), slice("cli-cards-2", json!({}))];
    cluster.apply(&slices.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let (code, said, one) = run(&kubeconfig, &["topology", "cli-cards-1", "-o", "json"]).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        one["links"],
        json!([{ "cards": ["0000:07:00.0", "0000:0f:00.0"], "nvlinks": 12, "pcie": "SYS" }])
    );
    assert_eq!(one["cards"][1]["pool"], "training", "{said}");
    let (code, said, _) = run(&kubeconfig, &["topology"]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("cli-cards-1") && said.contains("cli-cards-2"), "{said}");
}
