//! Resources, pod slots and ports of nodes in use, besides devices, counted like kube-scheduler (`NodeResourcesFit`, `NodePorts`,
//! `VolumeBinding`, and `InterPodAffinity` as far as pods keep each other away).

mod missing;
mod requests;

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::DeviceClass;
use tessera_allocator::node::NodeSelector;

use crate::anti_affinity::Selected;
use crate::cluster::Cluster;
use crate::key::Key;
use crate::node_fit::Refusal;

pub use missing::Requested;
pub(crate) use requests::PodRoom;
use requests::{Amounts, HostPort, NANO, host_ports, nanos, requests};
pub use requests::{is_daemon, take_the_same};

/// Use of one node by pods.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    pods: u32,
    requested: Amounts,
    /// The part taken by DaemonSet pods and static pods, present on every node of this sort.
    daemons: u32,
    requested_by_daemons: Amounts,
    ports: BTreeMap<HostPort, u32>,
    /// Pods with anti-affinity, counted.
    apart: BTreeMap<Selected, u32>,
}

/// Use of each node by pods.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Usages {
    by_node: HashMap<String, Usage>,
}

impl Usages {
    /// Adds a pod's room on the node.
    pub(crate) fn hold(&mut self, node: &str, room: &PodRoom) {
        self.by_node.entry(node.to_owned()).or_default().change(room, true);
    }

    /// Undoes [`Self::hold`].
    pub(crate) fn release(&mut self, node: &str, room: &PodRoom) {
        if let Some(usage) = self.by_node.get_mut(node) {
            usage.change(room, false);
            if usage.pods == 0 {
                self.by_node.remove(node);
            }
        }
    }
}

impl Usage {
    fn change(&mut self, room: &PodRoom, is_added: bool) {
        self.pods = if is_added { self.pods + 1 } else { self.pods.saturating_sub(1) };
        if room.is_daemon {
            self.daemons = if is_added { self.daemons + 1 } else { self.daemons.saturating_sub(1) };
        }
        for (name, amount) in &room.requested {
            let amount = if is_added { *amount } else { -amount };
            if room.is_daemon {
                let total = self.requested_by_daemons.entry(name.to_string()).or_default();
                *total = total.saturating_add(amount);
            }
            let total = self.requested.entry(name.to_string()).or_default();
            *total = total.saturating_add(amount);
        }
        for port in &room.ports {
            let count = self.ports.entry(port.clone()).or_default();
            *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
        }
        if let Some(selected) = &room.apart {
            let count = self.apart.entry(selected.as_ref().clone()).or_default();
            *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
        }
        self.apart.retain(|_, count| *count > 0);
        self.requested.retain(|_, amount| *amount != 0);
        self.requested_by_daemons.retain(|_, amount| *amount != 0);
        self.ports.retain(|_, count| *count > 0);
    }
}

/// CPU in thousandths of a core and memory in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// MiB.
    pub memory_mib: u64,
}

impl Room {
    /// From amounts in billionths, rounded up.
    fn of(cpu: i128, memory: i128) -> Self {
        let units = |amount: i128, unit: i128| {
            u64::try_from(amount.max(0).saturating_add(unit - 1) / unit).unwrap_or(u64::MAX)
        };
        Self { cpu_milli: units(cpu, NANO / 1000), memory_mib: units(memory, NANO << 20) }
    }

    /// CPU and memory requested by a pod, counted like kube-scheduler.
    #[must_use]
    pub fn asked(pod: &Pod) -> Self {
        let requests = requests(pod);
        let of = |name: &str| requests.get(name).copied().unwrap_or(0);
        Self::of(of("cpu"), of("memory"))
    }
}

impl Cluster {
    /// Capacity of a node besides devices, and the free part, given running and assumed pods. Unlimited where the node states no
    /// allocatable amount.
    pub fn room(&self, node: &Node) -> (Room, Room) {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let usage = self.taken.usages().by_node.get(node.metadata.name.as_deref().unwrap_or_default());
        let of = |name: &str| {
            let all = allocatable.and_then(|all| all.get(name)).map(nanos);
            let used = usage.and_then(|usage| usage.requested.get(name)).copied().unwrap_or(0);
            all.map_or((i128::MAX, i128::MAX), |all| (all, all.saturating_sub(used)))
        };
        let (cpu, memory) = (of("cpu"), of("memory"));
        (Room::of(cpu.0, memory.0), Room::of(cpu.1, memory.1))
    }

    /// Why the pod has no room on the node besides running and assumed pods; `None` if it has, or already runs there. Resources
    /// provided by a DeviceClass are ignored where the node states no amount.
    pub fn shortage(&self, pod: &Pod, node: &Node) -> Option<Refusal> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if let Some(spec) = &pod.spec
            && spec.node_name.as_deref() == Some(name)
        {
            // The pod already has its place.
            return None;
        }
        let none = Usage::default();
        let usage = self.taken.usages().by_node.get(name).unwrap_or(&none);
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = |resource: &str| allocatable.and_then(|all| all.get(resource)).map(nanos);
        if let Some(most) = allocatable("pods")
            && most < i128::from(usage.pods + 1) * NANO
        {
            return Some(Refusal::Pods(usage.pods));
        }
        for (resource, amount) in requests(pod).into_iter().filter(|(_, amount)| *amount > 0) {
            let all = allocatable(&resource).or_else(|| self.is_absent(&resource, node).then_some(0));
            let Some(all) = all else { continue };
            let free = all.saturating_sub(usage.requested.get(&resource).copied().unwrap_or(0));
            if amount > free {
                let plain = |nanos: i128| {
                    if nanos % NANO == 0 {
                        format!("{}", nanos / NANO)
                    } else {
                        format!("{}m", nanos / (NANO / 1000))
                    }
                };
                return Some(Refusal::Resource { resource, asked: plain(amount), free: plain(free.max(0)) });
            }
        }
        for (protocol, port, address) in host_ports(pod) {
            let is_taken = usage.ports.keys().any(|(other_protocol, other, other_address)| {
                (*other_protocol == protocol && *other == port)
                    && (*other_address == address
                        || [other_address.as_str(), &address].contains(&ANY_ADDRESS))
            });
            if is_taken {
                return Some(Refusal::Port(port));
            }
        }
        if usage.apart.keys().any(|other| other.keeps_away(pod)) {
            return Some(Refusal::AntiAffinity);
        }
        self.volume_elsewhere(pod, node)
    }

    /// Whether the resource is an extended one missing on the node. Resources provided by a class are not missing: a claim is made
    /// for them.
    fn is_absent(&self, resource: &str, node: &Node) -> bool {
        let names_any = node.status.as_ref().is_some_and(|status| status.allocatable.is_some());
        let is_extended = resource.contains('/') && !resource.split('/').next().is_some_and(is_of_kubernetes);
        let of_class = |class: &DeviceClass| {
            class.spec.as_ref().and_then(|spec| spec.extended_resource_name.as_deref()) == Some(resource)
        };
        names_any && is_extended && !self.objects.classes.values().any(of_class)
    }

    /// How many copies of the pod would fit on the node, ignoring devices, if only daemons ran there.
    pub fn times_when_empty(&self, pod: &Pod, node: &Node) -> usize {
        if self.volume_elsewhere(pod, node).is_some() {
            return 0;
        }
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = |resource: &str| allocatable.and_then(|all| all.get(resource)).map(nanos);
        let asked = requests(pod).into_iter().filter(|(_, amount)| *amount > 0);
        let asked = asked.chain([("pods".to_owned(), NANO)]);
        let usage = self.taken.usages().by_node.get(node.metadata.name.as_deref().unwrap_or_default());
        let of_daemons = |resource: &str| match usage {
            Some(usage) if resource == "pods" => i128::from(usage.daemons) * NANO,
            Some(usage) => usage.requested_by_daemons.get(resource).copied().unwrap_or(0),
            None => 0,
        };
        let times = asked.filter_map(|(resource, amount)| {
            Some((allocatable(&resource)? - of_daemons(&resource)).max(0) / amount)
        });
        let least = times.min().map_or(usize::MAX, |times| usize::try_from(times).unwrap_or(usize::MAX));
        let is_alone = || Selected::of(pod).is_some_and(|own| own.keeps_away(pod));
        if host_ports(pod).next().is_some() || is_alone() { least.min(1) } else { least }
    }

    /// A bound volume of the pod whose affinity excludes this node.
    fn volume_elsewhere(&self, pod: &Pod, node: &Node) -> Option<Refusal> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        volume_claims(pod).find_map(|claim| {
            let claim = self.objects.volume_claims.get(&Key::new(&namespace, claim))?;
            let name = claim.spec.as_ref()?.volume_name.clone()?;
            let found = self.objects.volumes.get(&Key::cluster(&name))?;
            let required = found.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
            match NodeSelector::from(required).matches(&node.into()) {
                Ok(true) => None,
                _ => Some(Refusal::Volume(name)),
            }
        })
    }
}

/// Names of the PersistentVolumeClaims used by the pod.
pub fn volume_claims(pod: &Pod) -> impl Iterator<Item = String> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| match &volume.persistent_volume_claim {
        Some(claim) => Some(claim.claim_name.clone()),
        None => volume.ephemeral.as_ref().map(|_| format!("{pod_name}-{}", volume.name)),
    })
}

/// Whether the domain is Kubernetes' own: native resources, and implicit resources of classes.
fn is_of_kubernetes(domain: &str) -> bool {
    domain.ends_with("kubernetes.io")
}

/// Address of a port open on all addresses.
const ANY_ADDRESS: &str = "0.0.0.0";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, node: Option<&str>, extra: Value) -> Pod {
        let mut pod = json!({ "metadata": { "name": name, "namespace": "n" }, "spec": { "containers": [] } });
        for (key, value) in extra.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        serde_json::from_value(pod).unwrap()
    }

    fn container(cpu: &str) -> Value {
        json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } })
    }

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": "a" }, "status": { "allocatable": { "cpu": "4", "pods": "3" } },
        }))
        .unwrap()
    }

    fn key(name: &str) -> Key {
        Key::new("n", name)
    }

    #[test]
    fn containers_sidecars_initialisation_and_overhead() {
        let cpu =
            |extra: Value| requests(&pod("p", None, extra)).get("cpu").copied().unwrap_or(0) / (NANO / 1000);
        assert_eq!(cpu(json!({ "containers": [container("1"), container("500m")] })), 1500);
        assert_eq!(cpu(json!({ "containers": [container("1")], "initContainers": [container("3")] })), 3000);
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        let extra = json!({ "containers": [container("1")], "initContainers": [sidecar, container("3")] });
        assert_eq!(cpu(extra), 4000);
        assert_eq!(cpu(json!({ "containers": [container("1")], "overhead": { "cpu": "250m" } })), 1250);
        let whole = json!({ "containers": [container("1")], "resources": { "requests": { "cpu": "2" } } });
        assert_eq!(cpu(whole), 2000);
    }

    #[test]
    fn what_runs_and_what_is_assumed_takes_room() {
        let mut cluster = Cluster::default();
        let three = || json!({ "containers": [container("3")] });
        let asking = pod("new", None, json!({ "containers": [container("2")] }));
        assert_eq!(cluster.shortage(&asking, &node()), None);
        cluster.apply(pod("old", Some("a"), three())).unwrap();
        assert!(matches!(cluster.shortage(&asking, &node()), Some(Refusal::Resource { .. })));
        cluster.delete(crate::Kind::Pod, &key("old"));
        assert_eq!(cluster.shortage(&asking, &node()), None);
        cluster.assume(&key("other"), &pod("other", None, three()), "a", Vec::new()).unwrap();
        assert!(matches!(cluster.shortage(&asking, &node()), Some(Refusal::Resource { .. })));
        cluster.forget(&key("other"));
        assert_eq!(cluster.shortage(&asking, &node()), None);
        for name in ["x", "y", "z"] {
            cluster.apply(pod(name, Some("a"), json!({}))).unwrap();
        }
        assert_eq!(cluster.shortage(&asking, &node()), Some(Refusal::Pods(3)));
    }

    #[test]
    fn a_pod_has_room_where_it_runs() {
        let mut cluster = Cluster::default();
        let running = || pod("p", Some("a"), json!({ "containers": [container("3")] }));
        cluster.apply(running()).unwrap();
        assert_eq!(cluster.shortage(&running(), &node()), None);
    }

    /// `web-disk` would be the claim of an ephemeral volume `disk` of pod `web`.
    #[test]
    fn volumes_that_no_claim_provides_are_nowhere() {
        let mut cluster = Cluster::default();
        let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": "web-disk", "namespace": "n" }, "spec": { "volumeName": "far" } }))
        .unwrap();
        let volume: k8s_openapi::api::core::v1::PersistentVolume = serde_json::from_value(json!({
            "metadata": { "name": "far" }, "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": [
                { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["b"] }] }] } } } }))
        .unwrap();
        cluster.apply(claim).unwrap();
        cluster.apply(volume).unwrap();
        let with = |volume: Value| pod("web", None, json!({ "volumes": [volume] }));
        let ephemeral = with(json!({ "name": "disk", "ephemeral": {} }));
        assert_eq!(cluster.shortage(&ephemeral, &node()), Some(Refusal::Volume("far".to_owned())));
        assert_eq!(cluster.shortage(&with(json!({ "name": "disk", "emptyDir": {} })), &node()), None);
    }

    #[test]
    fn ports_and_volumes() {
        let mut cluster = Cluster::default();
        let web =
            || json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 80, "hostPort": 80 }] }] });
        cluster.apply(pod("old", Some("a"), web())).unwrap();
        assert_eq!(cluster.shortage(&pod("new", None, web()), &node()), Some(Refusal::Port(80)));

        let disk = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] });
        let asking = pod("new", None, disk);
        let claim =
            json!({ "metadata": { "name": "c", "namespace": "n" }, "spec": { "volumeName": "disk" } });
        let volume = |host: &str| {
            json!({ "metadata": { "name": "disk" }, "spec": { "nodeAffinity": { "required": {
                "nodeSelectorTerms": [{ "matchFields": [
                    { "key": "metadata.name", "operator": "In", "values": [host] }] }] } } } })
        };
        let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        cluster.apply(claim).unwrap();
        for (host, expected) in [("a", None), ("b", Some(Refusal::Volume("disk".to_owned())))] {
            let volume: k8s_openapi::api::core::v1::PersistentVolume =
                serde_json::from_value(volume(host)).unwrap();
            cluster.apply(volume).unwrap();
            assert_eq!(cluster.shortage(&asking, &node()), expected, "{host}");
        }
    }
}
