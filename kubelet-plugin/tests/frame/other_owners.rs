//! Others who give out this node's cards are told, and nothing is done against them.

use std::fs;
use std::os::unix::net::UnixListener;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;

use crate::node::{Node, cluster};

/// The notes of the node's Events with this reason.
async fn told(node: &Node, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(node.client.clone(), "default");
    let of_node = ListParams::default().fields(&format!("reason={reason},regarding.name={}", node.name));
    let events = events.list(&of_node).await.unwrap().items;
    events.into_iter().filter_map(|event| event.note).collect()
}

#[tokio::test]
async fn the_device_plugin_and_the_mig_manager_are_told_once() {
    let node = Node::new("owners", "t4").await;
    let sockets = node.kubelet_directory().join("device-plugins");
    fs::create_dir_all(&sockets).unwrap();
    let listener = UnixListener::bind(sockets.join("nvidia-gpu.sock")).unwrap();
    let plugin = node.plugin(None);
    let _registered = node.register().await;
    plugin.ready().await;
    node.until_event("CardsOwnedByOthers").await;
    let label = |label: &str| ["label".to_owned(), "node".to_owned(), node.name.clone(), label.to_owned()];
    let run = async |arguments: [String; 4]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        cluster().await.kubectl(&arguments).await.unwrap();
    };
    run(label("nvidia.com/mig.config.state=success")).await;
    let is = |text: &str| plugin.get("/metrics").1.contains(text);
    plugin.until("the MIG manager", || is("tessera_other_owners{owner=\"mig_manager\"} 1")).await;
    plugin.logged("NVIDIA's MIG manager is on this node").await;
    assert!(
        is("tessera_other_owners{owner=\"device_plugin\"} 1")
            && is("tessera_other_owners{owner=\"dra_driver\"} 0")
    );
    assert_eq!(node.devices().await.len(), 1, "what is published stays");

    drop(listener);
    run(label("nvidia.com/mig.config.state-")).await;
    plugin.until("gone", || is("tessera_other_owners{owner=\"mig_manager\"} 0")).await;
    node.until_event("OtherOwnerGone").await;
    plugin.until("gone", || is("tessera_other_owners{owner=\"device_plugin\"} 0")).await;
    let mut notes = told(&node, "CardsOwnedByOthers").await;
    notes.sort();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(
        notes[0].starts_with("NVIDIA's MIG manager")
            && notes[0].contains("nvidia.com/mig.config.state=success")
    );
    assert!(
        notes[1].contains("nvidia-gpu.sock")
            && notes[1].contains("nvidia.com/gpu.deploy.device-plugin=false")
    );
}
