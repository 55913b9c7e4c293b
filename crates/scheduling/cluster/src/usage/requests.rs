//! Resources and ports requested from a node, besides devices.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use tessera_api::Quantity;

use super::ANY_ADDRESS;
use crate::anti_affinity::Selected;

pub(super) const NANO: i128 = 1_000_000_000;

/// Amounts of resources by name, in billionths of a unit.
pub(super) type Amounts = BTreeMap<String, i128>;

/// A port of a node: protocol, port, address (`0.0.0.0` for all).
pub(super) type HostPort = (String, i32, String);

/// Room taken by a pod on its node, besides devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodRoom {
    pub(super) requested: Box<[(Box<str>, i128)]>,
    pub(super) ports: Box<[HostPort]>,
    /// Whether every node of this sort runs the pod.
    pub(super) is_daemon: bool,
    /// Set for a pod with anti-affinity.
    pub(super) apart: Option<Box<Selected>>,
}

impl PodRoom {
    /// The room taken by the pod on any node.
    pub(crate) fn of(pod: &Pod) -> Self {
        let requested = requests(pod).into_iter().map(|(name, amount)| (name.into(), amount));
        Self {
            requested: requested.collect(),
            ports: host_ports(pod).collect(),
            is_daemon: is_daemon(pod),
            apart: Selected::of(pod).map(Box::new),
        }
    }

    /// Requested amounts by name, in billionths of a unit.
    pub(crate) fn requested(&self) -> impl Iterator<Item = (&str, i128)> {
        self.requested.iter().map(|(name, amount)| (name.as_ref(), *amount))
    }
}

/// Whether both pods take the same room on a node, besides devices.
#[must_use]
pub fn take_the_same(one: &Pod, other: &Pod) -> bool {
    requests(one) == requests(other) && host_ports(one).eq(host_ports(other))
}

/// Whether nodes of the same sort run such a pod whatever else they run: a DaemonSet pod, or a static pod of the kubelet.
#[must_use]
pub fn is_daemon(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && matches!(owner.kind.as_str(), "DaemonSet" | "Node"))
}

pub(super) fn nanos(text: &QuantityText) -> i128 {
    // The API server accepts no other text.
    Quantity::parse(&text.0).map_or(0, |quantity| quantity.nanos())
}

/// Requests of a pod (`resource.PodRequests`): the sum of containers and sidecars, or the largest step of its initialisation if
/// larger. Pod-level resources override both. Overhead is added.
pub(super) fn requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let mut running = Amounts::new();
    for container in &spec.containers {
        add(&mut running, &of_container(container));
    }
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let mut moment = sidecars.clone();
        add(&mut moment, &of_container(container));
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = moment.clone();
        }
        for (name, amount) in moment {
            let most = largest.entry(name).or_default();
            *most = amount.max(*most);
        }
    }
    add(&mut running, &sidecars);
    for (name, amount) in largest {
        let most = running.entry(name).or_default();
        *most = amount.max(*most);
    }
    if let Some(resources) = &spec.resources {
        running.extend(asked(resources.requests.as_ref(), resources.limits.as_ref()));
    }
    for (name, amount) in spec.overhead.iter().flatten() {
        let total = running.entry(name.clone()).or_default();
        *total = total.saturating_add(nanos(amount));
    }
    running
}

fn add(to: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        let total = to.entry(name.clone()).or_default();
        *total = total.saturating_add(*amount);
    }
}

fn of_container(container: &Container) -> Amounts {
    let Some(resources) = &container.resources else { return Amounts::new() };
    asked(resources.requests.as_ref(), resources.limits.as_ref())
}

/// The requests, defaulting to the limits.
fn asked(
    requests: Option<&BTreeMap<String, QuantityText>>,
    limits: Option<&BTreeMap<String, QuantityText>>,
) -> Amounts {
    let all = limits.into_iter().chain(requests).flatten();
    all.map(|(name, amount)| (name.clone(), nanos(amount))).collect()
}

pub(super) fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort> + '_ {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    containers.flat_map(|container| container.ports.iter().flatten()).filter_map(|port| {
        let number = port.host_port.filter(|port| *port > 0)?;
        let address = port.host_ip.clone().filter(|address| !address.is_empty());
        Some((
            port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            number,
            address.unwrap_or_else(|| ANY_ADDRESS.to_owned()),
        ))
    })
}
