//! Users and admins: pods, nodes, slices and pools come and go.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tessera_api::gpu_quota::BORROW_LABEL;
use tessera_api::steering::GATE;
use tessera_cluster::workloads::DisruptionBudget;
use tessera_cluster::{Key, Kind};
use tessera_decide::Time;

use super::api_server::{Server, Surroundings, gates};
use super::kubernetes::{self, KEPT_LABEL, LEAST_ANNOTATION};
use super::surroundings::Placement;
use super::{idle, quotas};
use crate::objects;

/// Number of pod names, reused as in a StatefulSet.
const NAMES: usize = 14;

const OTHER_GATE: &str = "kueue.x-k8s.io/admission";

/// Claim template, device class, and number of our cards needed by a pod.
pub const TEMPLATES: [(&str, &str, usize); 6] = [
    ("one", "gpu", 1),
    ("two", "gpu", 2),
    ("four", "gpu", 4),
    ("half", "half", 1),
    ("late", "gpu", 1),
    ("nic", "nic", 0),
];

/// Template for a whole card or, second, a part of one.
const EITHER: &str = "either";

/// Users and admins.
pub struct Users {
    /// Number of cards by node.
    cards: BTreeMap<&'static str, usize>,
    allocation: BTreeMap<&'static str, &'static str>,
    /// When the taint on cards no longer managed is removed, by node.
    tainted: BTreeMap<&'static str, Time>,
    next: Time,
}

/// Delay before nodes are reserved for a gang, in runs with reservation.
const RESERVE_AFTER: Time = Time::from_secs(20);
/// Later than the end of any run.
const NEVER: Time = Time::from_secs(86_400);

/// How long cards no longer managed stay tainted, while the node's report already shows their new allocation.
const TAINTED: Time = Time::from_secs(60);

fn allocation(around: &mut Surroundings) -> &'static str {
    // Only managed cards are taken back.
    if around.has_quotas() && around.percent(60) {
        return "Managed";
    }
    match around.rng.u32(0..100) {
        0..45 => "Steered",
        45..60 => "Native",
        _ => "Managed",
    }
}

/// A template of this name in each namespace.
fn apply_template(around: &mut Surroundings, server: &mut Server, name: &str, class: &str, count: usize) {
    let spec = objects::claim("any", class, count.max(1))["spec"].clone();
    apply_template_with(around, server, name, &spec);
}

fn apply_template_with(around: &mut Surroundings, server: &mut Server, name: &str, spec: &Value) {
    for namespace in around.namespaces {
        let metadata = json!({ "name": name, "namespace": namespace });
        let template = json!({ "metadata": metadata, "spec": { "spec": spec } });
        server.apply(around, objects::read::<ResourceClaimTemplate>(template));
    }
}

impl Users {
    /// Creates the initial objects.
    pub fn new(around: &mut Surroundings, server: &mut Server) -> Self {
        server.apply(around, objects::class());
        server.apply(around, objects::half_class());
        let nic = json!({ "metadata": { "name": "nic" }, "spec": { "selectors": [
            { "cel": { "expression": "device.driver == 'nic.example.com'" } }] } });
        server.apply(around, objects::read::<DeviceClass>(nic));
        for (name, class, count) in TEMPLATES.into_iter().filter(|(name, ..)| *name != "late") {
            apply_template(around, server, name, class, count);
        }
        if around.has_quotas() {
            let exactly = |name: &str, class: &str| json!({ "name": name, "deviceClassName": class, "allocationMode": "ExactCount", "count": 1 });
            let either = json!([exactly("whole", "gpu"), exactly("part", "half")]);
            let request = json!({ "name": "gpus", "firstAvailable": either });
            apply_template_with(around, server, EITHER, &json!({ "devices": { "requests": [request] } }));
        }
        let mut users = Users {
            cards: BTreeMap::new(),
            allocation: BTreeMap::new(),
            tainted: BTreeMap::new(),
            next: Time::ZERO,
        };
        around.placement = match around.rng.u32(0..100) {
            0..25 => Placement { is_strict: true, reserve_after: None },
            25..60 => Placement { is_strict: false, reserve_after: Some(RESERVE_AFTER) },
            _ => Placement::default(),
        };
        if around.has_quotas() {
            // The order of teams is none that the checks of queues know.
            around.placement = Placement::default();
        }
        if around.percent(50) {
            let least = around.rng.u32(1..3);
            let budget = json!({
                "metadata": { "name": "kept", "namespace": "team",
                    "annotations": { LEAST_ANNOTATION: least.to_string() } },
                "spec": { "selector": { "matchLabels": { KEPT_LABEL: "yes" } } },
            });
            server.apply(around, objects::read::<DisruptionBudget>(budget));
        }
        for node in ["a", "b", "c"] {
            let cards = around.rng.usize(1..=4);
            users.cards.insert(node, cards);
            users.allocation.insert(node, allocation(around));
            server.apply(around, objects::node(node));
            users.publish(around, server, node);
        }
        for namespace in around.namespaces {
            for name in ["shared-0", "shared-1"] {
                users.share(around, server, &Key::new(*namespace, name));
            }
        }
        users
    }

    fn share(&self, around: &mut Surroundings, server: &mut Server, key: &Key) {
        let mut claim = objects::claim("any", "gpu", 1);
        let uid = server.next_uid();
        claim["metadata"] =
            json!({ "name": key.name, "namespace": key.namespace, "uid": format!("shared-{uid}") });
        server.apply(around, objects::read::<ResourceClaim>(claim));
    }

    fn publish(&self, around: &mut Surroundings, server: &mut Server, node: &str) {
        let after = around.placement.reserve_after.unwrap_or(NEVER).as_secs();
        let queue = if around.placement.is_strict { "Strict" } else { "BestEffort" };
        let placement = json!({ "reserveAfterSeconds": after, "queue": queue });
        let mut pool = json!({ "pool": "main", "allocation": self.allocation[node], "placement": placement });
        if around.has_idle_pods {
            pool["idle"] = idle::idle_of_pool();
        }
        let is_tainted = self.allocation[node] == "Managed" || self.tainted.contains_key(node);
        for slice in objects::slices_with(node, self.cards[node], pool, is_tainted) {
            let slice = if around.has_quotas() { quotas::with_product(slice, node) } else { slice };
            server.apply(around, slice);
        }
    }

    /// Removes expired taints.
    pub fn untaint(&mut self, around: &mut Surroundings, server: &mut Server) {
        let due: Vec<&str> =
            self.tainted.iter().filter(|(_, until)| **until <= around.now).map(|(node, _)| *node).collect();
        for node in due {
            self.tainted.remove(node);
            if server.get(Kind::ResourceSlice, &Key::cluster(format!("{node}-1-devices"))).is_some() {
                around.note(|| format!("{node} is tainted no longer"));
                self.publish(around, server, node);
            }
        }
    }

    fn withdraw(&self, around: &mut Surroundings, server: &mut Server, node: &str) {
        for suffix in ["0-counters", "1-devices"] {
            server.delete(around, Kind::ResourceSlice, &Key::cluster(format!("{node}-{suffix}")));
        }
    }

    pub fn step(&mut self, around: &mut Surroundings, server: &mut Server) {
        if self.next > around.now {
            return;
        }
        self.next = around.now + around.between(200, 2_500);
        match around.rng.u32(0..100) {
            0..55 => self.create(around, server),
            55..72 => self.delete(around, server),
            72..84 => self.remove_other_gate(around, server),
            _ => self.administrate(around, server),
        }
    }

    fn create(&self, around: &mut Surroundings, server: &mut Server) {
        let number = around.rng.usize(0..NAMES);
        let key = Key::new(around.namespace(number), format!("p{number}"));
        if server.pod(&key).is_some() {
            return;
        }
        let uid = format!("u{}", server.next_uid());
        let now = Timestamp::from_second(i64::try_from(around.now.as_secs()).unwrap()).unwrap();
        let mut pod = json!({
            "metadata": { "name": key.name, "namespace": key.namespace, "uid": uid, "labels": {},
                "creationTimestamp": now.to_string() },
            "spec": {
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "50m" } } }],
                "schedulingGates": [{ "name": GATE }],
            },
            "status": { "phase": "Pending" },
        });
        let claim = match around.rng.u32(0..100) {
            0..8 => json!([]),
            8..20 => {
                let shared = format!("shared-{}", around.rng.usize(0..2));
                json!([{ "name": "gpus", "resourceClaimName": shared }])
            }
            _ => {
                let (template, ..) = TEMPLATES[around.rng.usize(0..TEMPLATES.len())];
                json!([{ "name": "gpus", "resourceClaimTemplateName": template }])
            }
        };
        pod["spec"]["resourceClaims"] = claim;
        if around.has_quotas() && around.percent(15) {
            pod["spec"]["resourceClaims"] = json!([{ "name": "gpus", "resourceClaimTemplateName": EITHER }]);
        }
        if around.has_quotas() && around.percent(20) {
            pod["metadata"]["labels"][BORROW_LABEL] = json!("false");
        }
        if around.percent(15) {
            // A pod without opt-in.
            pod["spec"]["schedulingGates"] = json!([]);
        } else if around.percent(25) {
            pod["spec"]["schedulingGates"] = json!([{ "name": OTHER_GATE }, { "name": GATE }]);
        }
        if around.percent(30) {
            pod["metadata"]["labels"]["job"] = json!("yes");
        }
        if around.percent(15) {
            let disliked = ["a", "b", "c"][around.rng.usize(0..3)];
            pod["metadata"]["labels"]["dislikes"] = json!(disliked);
        }
        if around.percent(50) {
            let owner = around.rng.u32(0..2);
            pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "name": "owner", "uid": format!("owner-{owner}"), "controller": true }]);
        }
        // The budget is in the first namespace.
        if around.percent(30) && key.namespace == "team" {
            pod["metadata"]["labels"][KEPT_LABEL] = json!("yes");
        }
        if around.percent(40) {
            pod["spec"]["activeDeadlineSeconds"] = json!(around.rng.u32(5..60));
        }
        if around.percent(20) {
            pod["spec"]["priority"] = json!(around.rng.i32(1..3));
        }
        let (class, exempt) = quotas::EXEMPT;
        if around.has_quotas() && exempt.contains(&key.name.as_str()) {
            pod["spec"]["priorityClassName"] = json!(class);
            pod["spec"]["priority"] = json!(3);
        }
        around.note(|| format!("created {}: {pod}", key.name));
        server.apply(around, objects::read::<Pod>(pod));
    }

    fn delete(&self, around: &mut Surroundings, server: &mut Server) {
        let keys: Vec<Key> = server.pods().map(|(key, _)| key).collect();
        let Some(key) = around.rng.choice(&keys) else { return };
        around.note(|| format!("deleting {}", key.name));
        kubernetes::delete_pod(around, server, key);
    }

    fn remove_other_gate(&self, around: &mut Surroundings, server: &mut Server) {
        let other = server.pods().filter(|(_, pod)| gates(pod).iter().any(|gate| gate != GATE));
        let keys: Vec<Key> = other.map(|(key, _)| key).collect();
        if let Some(key) = around.rng.choice(&keys) {
            remove_gate(around, server, key);
        }
    }

    fn administrate(&mut self, around: &mut Surroundings, server: &mut Server) {
        let node = ["a", "b", "c"][around.rng.usize(0..3)];
        let key = Key::cluster(node.to_owned());
        let exists = server.get(Kind::Node, &key).is_some();
        match around.rng.u32(0..6) {
            0 if exists => {
                around.note(|| format!("node {node} goes"));
                self.withdraw(around, server, node);
                server.delete(around, Kind::Node, &key);
            }
            1 | 2 if exists => {
                let is_cordoned = around.percent(50);
                around.note(|| format!("cordon of {node}: {is_cordoned}"));
                cordon(around, server, node, is_cordoned);
            }
            3 if exists => {
                around.note(|| format!("slices of {node} go"));
                self.withdraw(around, server, node);
            }
            4 if exists => {
                let new = allocation(around);
                around.note(|| format!("{node} is {new}"));
                if self.allocation.insert(node, new) == Some("Managed") && new != "Managed" {
                    self.tainted.insert(node, around.now + TAINTED);
                }
                self.publish(around, server, node);
            }
            _ => self.bring_back(around, server, node),
        }
    }

    fn bring_back(&self, around: &mut Surroundings, server: &mut Server, node: &str) {
        if server.get(Kind::Node, &Key::cluster(node.to_owned())).is_none() {
            around.note(|| format!("node {node} comes"));
            server.apply(around, objects::node(node));
        }
        if server.get(Kind::ResourceSlice, &Key::cluster(format!("{node}-1-devices"))).is_none() {
            around.note(|| format!("slices of {node} come"));
            self.publish(around, server, node);
        }
        let late = Key::new("team", "late".to_owned());
        if server.get(Kind::ResourceClaimTemplate, &late).is_none() && around.percent(30) {
            around.note(|| "the late template comes".to_owned());
            apply_template(around, server, "late", "gpu", 1);
        }
    }

    /// Updates [`Surroundings::only_steered_since`].
    pub fn tell_what_is_steered(&self, around: &mut Surroundings, server: &Server) {
        let is_published = |node: &str| {
            let slice = |suffix: &str| Key::cluster(format!("{node}-{suffix}"));
            server.get(Kind::ResourceSlice, &slice("1-devices")).is_some()
        };
        let published: Vec<&str> = self.cards.keys().copied().filter(|node| is_published(node)).collect();
        if published.len() < self.cards.len()
            || published.iter().any(|node| self.allocation[node] != "Steered")
        {
            around.only_steered_since = None;
        } else if around.only_steered_since.is_none() {
            around.only_steered_since = Some(around.now);
        }
    }

    /// The last acts: afterwards only a lack of devices may hold a pod back.
    pub fn end(&mut self, around: &mut Surroundings, server: &mut Server) {
        around.note(|| "faults and users stop".to_owned());
        for node in ["a", "b", "c"] {
            self.bring_back(around, server, node);
            cordon(around, server, node, false);
        }
        let late = Key::new("team", "late".to_owned());
        if server.get(Kind::ResourceClaimTemplate, &late).is_none() {
            apply_template(around, server, "late", "gpu", 1);
        }
        let keys: Vec<Key> = server.pods().map(|(key, _)| key).collect();
        for key in keys {
            remove_gate(around, server, &key);
            // A pod refused by kube-scheduler forever would be retried every five minutes.
            server.update_pod(around, &key, |pod| {
                pod.metadata.labels.get_or_insert_default().remove("dislikes");
            });
        }
    }
}

fn remove_gate(around: &mut Surroundings, server: &mut Server, key: &Key) {
    if server.pod(key).is_some_and(|pod| gates(pod).iter().any(|gate| gate != GATE)) {
        around.note(|| format!("the other gate of {} goes", key.name));
        server.update_pod(around, key, |pod| {
            let gates = &mut pod.spec.get_or_insert_default().scheduling_gates;
            gates.iter_mut().for_each(|gates| gates.retain(|gate| gate.name == GATE));
        });
    }
}

fn cordon(around: &mut Surroundings, server: &mut Server, node: &str, is_cordoned: bool) {
    let key = Key::cluster(node.to_owned());
    let Some(object) = server.get(Kind::Node, &key).cloned() else { return };
    if let tessera_cluster::Object::Node(found) = object.as_ref() {
        let mut found: Node = found.clone();
        found.spec.get_or_insert_default().unschedulable = Some(is_cordoned);
        server.apply(around, found);
    }
}

/// Number of whole cards requested by the pod's own claim, or `None` for parts of cards.
pub fn cards_asked(pod: &Pod) -> Option<usize> {
    let asked = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_ref()?.first());
    let Some(name) = asked.and_then(|asked| asked.resource_claim_template_name.as_deref()) else {
        return Some(0);
    };
    let found = TEMPLATES.into_iter().find(|(template, ..)| *template == name)?;
    (found.1 != "half").then_some(found.2)
}
