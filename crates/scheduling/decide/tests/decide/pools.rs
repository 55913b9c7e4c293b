//! Status reported for pools.

use serde_json::json;

use crate::leader::leader;
use crate::objects::*;

#[test]
fn cards_are_counted_by_what_is_held_of_them() {
    let mut fed = Fed::with_nodes(&[("a", 4)]);
    fed.bind("whole", "gpu", "a", &[card(0)]);
    fed.bind("half", "half", "a", &[format!("{}-mig-3g40gb-0", card(1))]);
    let pools = fed.decider.pools();
    let main = &pools["main"];
    assert_eq!((main.nodes, main.cards, main.offered), (1, 4, 12));
    assert_eq!((main.allocated, main.unallocatable), (1_500, 0));
}

#[test]
fn extended_resources_that_only_managed_cards_could_provide_are_told() {
    let mut fed = leader(&[("a", 1)]);
    let mut class = json!({ "metadata": { "name": "nvidia" }, "spec": { "extendedResourceName": "nvidia.com/gpu", "selectors": [
        { "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] } });
    fed.apply(read::<k8s_openapi::api::resource::v1::DeviceClass>(class.clone()).into());
    class["metadata"]["name"] = json!("others");
    class["spec"] = json!({ "extendedResourceName": "example.com/nic", "selectors": [
        { "cel": { "expression": "device.driver == 'nic.example.com'" } }] });
    fed.apply(read::<k8s_openapi::api::resource::v1::DeviceClass>(class).into());
    let unprovided = fed.decider.pools()["main"].unprovided.clone();
    assert_eq!(unprovided.into_iter().collect::<Vec<_>>(), ["nvidia.com/gpu"]);
    // With a card available to kube-scheduler, the resource is provided.
    fed.apply(node("b"));
    slices("b", 1, steered()).into_iter().for_each(|slice| fed.apply(slice));
    assert!(fed.decider.pools()["main"].unprovided.is_empty());
}

#[test]
fn the_fleet_is_shown_with_who_holds_what() {
    let mut fed = Fed::with_nodes(&[("b", 1), ("a", 2)]);
    fed.bind("whole", "gpu", "a", &[card(0)]);
    fed.bind("half", "half", "a", &[format!("{}-mig-3g40gb-4", card(1))]);
    fed.ask("late", "gpu", 2);
    fed.decide();
    let mut pass = tessera_decide::ViewPass::default();
    assert!(fed.decider.view_next(&mut pass));
    // The loop may run between two nodes. A node added meanwhile is in the view.
    fed.apply(node("c"));
    slices("c", 1, steered()).into_iter().for_each(|slice| fed.apply(slice));
    while fed.decider.view_next(&mut pass) {}
    let view = fed.decider.view(pass, fed.now).into_view();
    assert_eq!(view.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let cards: Vec<_> = view.nodes[0].cards.values().collect();
    assert_eq!((cards[0].allocated, cards[1].allocated, cards[1].memory_mib), (1_000, 500, 80 * 1024));
    let holders: Vec<_> = cards.iter().flat_map(|card| &card.holders).collect();
    assert_eq!(holders[0].claim, "whole-gpus");
    assert_eq!((holders[1].claim.as_str(), holders[1].allocated), ("half-gpus", 500));
    assert_eq!(view.waiting.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["late"]);
    assert!(view.nodes[1].cards.values().all(|card| card.holders.is_empty() && card.memory_mib == 80 * 1024));
}

#[test]
fn waiting_pods_are_unmet_demand() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    for name in ["one", "two"] {
        fed.ask(name, "gpu", 2);
    }
    fed.decide();
    let pools = fed.decider.pools();
    assert_eq!((pools["main"].unmet[0].text.as_str(), pools["main"].unmet[0].pods), ("2 x gpu", 2));
}

/// Priorities have no effect where kube-scheduler allocates devices, and the pool reports this.
#[test]
fn pods_that_wait_behind_lower_priorities_are_told_where_nobody_preempts() {
    let waits = |fed: &mut Fed, name: &str, class: &str, change: &dyn Fn(&mut serde_json::Value)| {
        fed.apply_claim(claim(name, class, 1));
        let mut pod = pod(name);
        pod["spec"]["schedulingGates"] = json!([]);
        pod["status"]["conditions"] =
            json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }]);
        change(&mut pod);
        fed.apply_pod(pod);
    };
    let holds = |fed: &mut Fed, priority: i32| {
        let mut held = allocated(claim("low", "gpu", 1), "a", &[card(0)]);
        held["status"]["reservedFor"] = json!([{ "resource": "pods", "name": "low", "uid": "uid-low" }]);
        fed.apply_claim(held);
        let mut bound = pod("low");
        bound["spec"]["schedulingGates"] = json!([]);
        bound["spec"]["nodeName"] = json!("a");
        bound["spec"]["priority"] = json!(priority);
        fed.apply_pod(bound);
    };
    let with_priority =
        |priority: i32| move |pod: &mut serde_json::Value| pod["spec"]["priority"] = json!(priority);
    let passed = |fed: &mut Fed| fed.decider.pools()["main"].passed_by;
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    holds(&mut fed, -10);
    waits(&mut fed, "high", "gpu", &with_priority(1000));
    waits(&mut fed, "higher", "gpu", &|pod| {
        pod["spec"]["priority"] = json!(2000);
        pod["spec"]["preemptionPolicy"] = json!("Never");
    });
    // This pod asks for a class without devices, so it waits for none of these cards.
    waits(&mut fed, "other", "none", &with_priority(3000));
    assert_eq!(passed(&mut fed), Some(1000));
    holds(&mut fed, 1000);
    assert_eq!(passed(&mut fed), None);

    // Where the controller allocates, it preempts any pod, whoever allocated its cards.
    let mut fed = leader(&[("a", 1)]);
    holds(&mut fed, -10);
    crate::gangs::preemption::urgent(&mut fed, 1);
    assert_eq!(crate::gangs::preemption::victims(&mut fed), ["low"]);
    waits(&mut fed, "high", "gpu", &with_priority(1000));
    assert_eq!(passed(&mut fed), None);
}

#[test]
fn counters_on_too_many_nodes_for_an_older_kubernetes_are_told() {
    let told = |count: usize, kubernetes: &str| {
        let mut fed = Fed::with_nodes(&[]);
        for number in 0..count {
            let name = format!("node-{number}");
            fed.apply(node(&name));
            for mut slice in slices(&name, 1, steered()) {
                if let tessera_cluster::Object::ResourceSlice(slice) = &mut slice
                    && let Some(text) =
                        slice.metadata.annotations.iter_mut().flatten().map(|(_, text)| text).next()
                {
                    let mut report: serde_json::Value = serde_json::from_str(text).unwrap();
                    report["kubernetes"] = json!(kubernetes);
                    *text = report.to_string();
                }
                fed.apply(slice);
            }
        }
        fed.decider.pools()["main"].too_many_counters
    };
    assert_eq!((told(50, "v1.36.6"), told(49, "v1.36.6")), (Some(50), None));
    assert_eq!((told(50, "v1.37.0"), told(50, "")), (None, None));
}

#[test]
fn errors_and_pools_that_come_first_are_told() {
    let mut fed = Fed::with_nodes(&[]);
    fed.apply(node("a"));
    let card = json!({ "pool": "first", "outranked": ["second"], "waitsFor": ["gpu-01-00"] });
    slices("a", 1, card).into_iter().for_each(|slice| fed.apply(slice));
    let pools = fed.decider.pools();
    assert!(pools["second"].outranked_by.contains("first"));
    assert_eq!(pools["first"].waits_for, 1);
}

#[test]
fn an_annotation_that_is_no_report_is_an_error_and_the_node_is_native() {
    let mut fed = Fed::with_nodes(&[]);
    fed.apply(node("a"));
    for mut slice in slices("a", 1, steered()) {
        if let tessera_cluster::Object::ResourceSlice(slice) = &mut slice
            && let Some(annotations) = &mut slice.metadata.annotations
        {
            for text in annotations.values_mut() {
                "{".clone_into(text);
            }
        }
        let seen = tessera_decide::Observation::Applied(Box::new(slice));
        let result = fed.decider.observe(fed.now, seen);
        assert!(result.is_ok() || result.unwrap_err().to_string().contains("node-report"));
    }
    fed.ask("job", "gpu", 1);
    assert_eq!(fed.steers(), []);
}

#[test]
fn a_report_that_cannot_be_read_any_more_does_not_count() {
    let mut fed = Fed::with_nodes(&[("a", 1)]);
    let [mut counters, _] = slices("a", 1, steered());
    if let tessera_cluster::Object::ResourceSlice(slice) = &mut counters {
        let annotations = slice.metadata.annotations.as_mut().unwrap();
        annotations.values_mut().for_each(|text| "{".clone_into(text));
    }
    let seen = tessera_decide::Observation::Applied(Box::new(counters));
    assert!(fed.decider.observe(fed.now, seen).is_err());
    fed.ask("job", "gpu", 1);
    assert_eq!(fed.steers(), []);
}
