//! Claims of time-slices whose programs hold more memory than their part, as the plugin tells them.

use serde_json::json;

use crate::{
    idle::{condition, notes, process, until_condition},
    node::Node,
    usage::{claim, device, pod, start},
};

/// What the Events of this reason say of a pod, once there is one.
async fn told(node: &Node, pod: &str, reason: &str) -> Vec<String> {
    tessera_fakes::poll::until_async("an Event", async || !notes(node, pod, reason).await.is_empty()).await;
    notes(node, pod, reason).await
}

#[tokio::test]
async fn a_claim_above_its_part_is_told_and_so_is_the_neighbour_that_it_endangers() {
    let node = Node::new("overuse", "hgx-h100-80gb").await;
    node.pool("slices", json!({"offer": {"sharing": {"timeSlicing": {"replicas": 4}}}})).await;
    let plugin = start(&node, 1);
    let registered = node.register().await;
    plugin.ready().await;
    let slice = format!("{}-ts", device(&node, 1));
    let (grows, keeps) = (pod(&node).await, pod(&node).await);
    let (greedy, modest) = (claim(&node, &slice, &grows).await, claim(&node, &slice, &keeps).await);
    for answer in registered.prepare(&[greedy.clone(), modest.clone()]).await.unwrap().values() {
        answer.as_ref().unwrap();
    }
    process(&node, 81, &grows.1, "container");
    process(&node, 82, &grows.1, "container");
    process(&node, 91, &keeps.1, "container");
    node.machine.let_happen("process add --card 1 --pid 91 --memory-mib 1000 --busy 0");
    node.machine.let_happen("process add --card 1 --pid 81 --memory-mib 30000 --busy 0");
    until_condition(&node, &greedy, "MemoryOveruse", "True", "AboveItsPart").await;
    let said = told(&node, &grows.0, "MemoryOveruse").await;
    assert!(said[0].contains("hold 30000 MiB") && said[0].contains("its part is 20000 MiB"), "{said:?}");
    assert_eq!(notes(&node, &keeps.0, "MemoryEndangered").await, [""; 0]);

    node.machine.let_happen("process add --card 1 --pid 82 --memory-mib 35000 --busy 0");
    until_condition(&node, &greedy, "MemoryOveruse", "True", "EndangersNeighbours").await;
    let said = told(&node, &keeps.0, "MemoryEndangered").await;
    assert!(said[0].contains("has not used 19000 MiB"), "{said:?}");

    // One that comes later is told, too.
    let comes = pod(&node).await;
    let late = claim(&node, &slice, &comes).await;
    process(&node, 95, &comes.1, "container");
    node.machine.let_happen("process add --card 1 --pid 95 --memory-mib 500 --busy 0");
    for answer in registered.prepare(&[late]).await.unwrap().values() {
        answer.as_ref().unwrap();
    }
    let said = told(&node, &comes.0, "MemoryEndangered").await;
    assert!(said[0].contains("has not used 19500 MiB"), "{said:?}");
    assert_eq!(notes(&node, &keeps.0, "MemoryEndangered").await.len(), 1);

    for pid in [81, 82] {
        node.machine.let_happen(&format!("process remove --card 1 --pid {pid}"));
    }
    until_condition(&node, &greedy, "MemoryOveruse", "False", "WithinItsPart").await;
    assert_eq!(condition(&node, &modest, "MemoryOveruse").await, None);
    assert_eq!(plugin.terminate().await.code(), Some(0));
}
