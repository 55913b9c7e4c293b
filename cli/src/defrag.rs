//! Moves of pods for `kubectl gpu defrag`, as rows.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector, ResourceClaim,
};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use tessera_cluster::{AllocationExt, Asker, Cluster, Key, Objects, PodExt};
use tessera_placement::demand::Demand;
use tessera_placement::fit::Takes;
use tessera_placement::fleet::{Fleet, NodeIndex};
use tessera_placement::gather::{self, Gathered, Mover, NoPlan, Wanted};
use tessera_placement::seats::Seat;
use tessera_placement::statement::{Base, Statement};
use tessera_placement::value::RequestMix;

use crate::output::{CommandError, rounded};

/// Name of the class, claim and pod made for whole cards and partitions.
const OWN: &str = "kubectl-gpu-defrag";

/// Thousandths of a card, times seconds, in a card-hour.
const CARD_HOUR: f64 = 3_600_000.0;

/// Devices on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The node's name.
    pub node: String,
    /// Names of the devices; none for an empty node.
    pub devices: Vec<String>,
}

/// A pod that moves.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveRow {
    /// `namespace/name`.
    pub pod: String,
    /// Its place now.
    pub from: Place,
    /// Its place afterwards.
    pub to: Place,
    /// Seconds since it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_seconds: Option<u64>,
    /// Lost running time.
    #[serde(serialize_with = "rounded")]
    pub lost_card_hours: f64,
}

/// A holder of devices that stays.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StayRow {
    /// `namespace/name` of its pods; empty for a claim without a pod.
    pub pods: Vec<String>,
    /// Its devices.
    pub places: Vec<Place>,
    /// Why it stays.
    pub why: String,
}

/// The answer for one pod, partition, number of cards or empty node.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What has to fit.
    pub wanted: String,
    /// Whether there is room, now or after the moves.
    pub fits: bool,
    /// Its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Moves to make first: of all of these pods, since one may get the devices that another leaves.
    pub moves: Vec<MoveRow>,
    /// Lost running time of all moves.
    #[serde(serialize_with = "rounded")]
    pub lost_card_hours: f64,
    /// Whether kube-scheduler chooses any of the places, so that they are likely only.
    pub likely_only: bool,
    /// Why there is no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Pods in the way that cannot move.
    pub staying: Vec<StayRow>,
}

/// The fleet with the pods on it.
pub struct World {
    cluster: Cluster,
    fleet: Fleet,
    asker: Asker,
    driver: String,
    now: Timestamp,
    movers: Vec<Mover>,
}

impl World {
    /// The fleet of the driver at this time.
    ///
    /// # Errors
    /// An object is not valid for an API server.
    pub fn new(objects: Objects, driver: &str, asker: Asker, now: Timestamp) -> Result<Self, CommandError> {
        let mut fleet = Fleet::default();
        let time = std::time::Duration::from_secs(now.as_second().max(0).unsigned_abs());
        for slice in objects.slices.values().filter(|slice| slice.spec.driver == driver) {
            if let Some(node) = &slice.spec.node_name {
                fleet.add(node);
                // A report that cannot be read counts as none, as in the controller.
                let _ = fleet.apply_slice(time, slice, driver);
            }
        }
        fleet.hand_over(time);
        let mut cluster = Cluster::of(objects)?;
        if cluster.objects().nodes.is_empty() {
            let named: Vec<Node> = cluster.nodes().into_iter().map(|node| node.into_owned()).collect();
            for node in named {
                cluster.apply(node)?;
            }
        }
        let movers = gather::movers(&cluster, &mut fleet, driver, now);
        Ok(World { cluster, fleet, asker, driver: driver.to_owned(), now, movers })
    }

    /// The objects.
    pub fn objects(&self) -> &Objects {
        self.cluster.objects()
    }

    /// Room for a waiting pod.
    ///
    /// # Errors
    /// A claim of the pod is not valid for an API server.
    pub fn for_pod(&mut self, wanted: String, pod: &Pod) -> Result<Answer, CommandError> {
        let demand = Demand::of(self.cluster.objects(), pod)?;
        let key = pod.key();
        Ok(self.answer(wanted, Some((&key, pod, &demand))))
    }

    /// Room for so many devices on one node: whole cards or, with a profile, partitions.
    ///
    /// # Errors
    /// The profile is not a valid part of a selector.
    pub fn for_devices(&mut self, count: u8, profile: Option<&str>) -> Result<Answer, CommandError> {
        self.cluster.apply(own_class(&self.driver, profile))?;
        let claim = json!({ "metadata": { "name": OWN, "namespace": "default" }, "spec": { "devices": { "requests": [
            { "name": "gpu", "exactly": { "deviceClassName": OWN, "allocationMode": "ExactCount", "count": count } }] } } });
        let specs = self.objects().nodes.values().filter_map(|node| node.spec.as_ref());
        let taints = specs.flat_map(|spec| spec.taints.iter().flatten());
        // Who asks for cards tolerates the taints of nodes with cards, and no fault of a node.
        let keys = taints.map(|taint| &taint.key).filter(|key| !key.starts_with("node.kubernetes.io/"));
        let tolerations: Vec<_> = keys.map(|key| json!({ "key": key, "operator": "Exists" })).collect();
        let pod = json!({ "metadata": { "name": OWN, "namespace": "default" }, "spec": { "containers": [],
            "tolerations": tolerations, "resourceClaims": [{ "name": "gpu", "resourceClaimName": OWN }] } });
        let unreadable = |error: serde_json::Error| CommandError::Write(error.to_string());
        self.cluster.apply(serde_json::from_value::<ResourceClaim>(claim).map_err(unreadable)?)?;
        let pod: Pod = serde_json::from_value(pod).map_err(unreadable)?;
        let wanted = match profile {
            Some(profile) => format!("partition {profile}"),
            None if count == 1 => "a whole card".to_owned(),
            None => format!("{count} whole cards on one node"),
        };
        self.for_pod(wanted, &pod)
    }

    /// A node on which no device is in use.
    pub fn for_an_empty_node(&mut self) -> Answer {
        self.answer("an empty node".to_owned(), None)
    }

    fn answer(&mut self, wanted: String, seat: Option<(&Key, &Pod, &Demand)>) -> Answer {
        let gathered = {
            let World { cluster, fleet, asker, driver, now, movers } = self;
            let handed_over = Some(std::time::Duration::from_secs(now.as_second().max(0).unsigned_abs()));
            let mix = RequestMix::default();
            let base = Base { cluster, fleet, asker, driver, handed_over, mix: &mix, limit: None };
            let mut statement = Statement::new(base);
            let wanted = seat.map(|(key, pod, demand)| Wanted::Seat(Seat { key, pod, demand }));
            gather::plan(&mut statement, wanted.unwrap_or(Wanted::EmptyNode), movers)
        };
        let Gathered { plan, staying } = gathered;
        let staying = staying.into_iter().map(|mover| self.stay_row(&self.movers[mover])).collect();
        let mut answer = Answer {
            wanted,
            fits: plan.is_ok(),
            place: None,
            moves: Vec::new(),
            lost_card_hours: 0.0,
            likely_only: false,
            why: plan.as_ref().err().map(|why| text(*why).to_owned()),
            staying,
        };
        if let Ok(plan) = plan {
            answer.place = Some(self.place(plan.node, plan.takes.as_ref()));
            let all = plan.takes.iter().chain(plan.moves.iter().map(|moved| &moved.takes));
            answer.likely_only = all.flat_map(|takes| &takes.is_managed).any(|is_managed| !is_managed);
            answer.moves = plan.moves.iter().map(|moved| self.move_row(moved)).collect();
            answer.lost_card_hours = answer.moves.iter().map(|moved| moved.lost_card_hours).sum();
        }
        answer
    }

    fn move_row(&self, moved: &gather::Move) -> MoveRow {
        let mover = &self.movers[moved.mover];
        let runner = &mover.pods[moved.pod];
        let held = || mover.devices.iter().filter(|held| held.pod == moved.pod);
        let node = held().next().map_or(String::new(), |held| self.fleet.node(held.node).name.clone());
        let seconds =
            |since: Timestamp| self.now.as_second().saturating_sub(since.as_second()).max(0).unsigned_abs();
        MoveRow {
            pod: runner.key.to_string(),
            from: Place { node, devices: held().map(|held| held.name.clone()).collect() },
            to: self.place(moved.node, Some(&moved.takes)),
            runs_seconds: runner.since.map(seconds),
            lost_card_hours: runner.lost as f64 / CARD_HOUR,
        }
    }

    fn stay_row(&self, mover: &Mover) -> StayRow {
        let mut places: Vec<Place> = Vec::new();
        for held in &mover.devices {
            let node = &self.fleet.node(held.node).name;
            match places.iter_mut().find(|place| place.node == *node) {
                Some(place) => place.devices.push(held.name.clone()),
                None => places.push(Place { node: node.clone(), devices: vec![held.name.clone()] }),
            }
        }
        StayRow {
            pods: mover.pods.iter().map(|pod| pod.key.to_string()).collect(),
            places,
            why: mover.stays.as_ref().map(ToString::to_string).unwrap_or_default(),
        }
    }

    fn place(&self, node: NodeIndex, takes: Option<&Takes>) -> Place {
        let results = takes.into_iter().flat_map(|takes| &takes.allocations).flat_map(AllocationExt::results);
        let own = results.filter(|result| result.driver == self.driver);
        let node = self.fleet.node(node).name.clone();
        Place { node, devices: own.map(|result| result.device.clone()).collect() }
    }
}

/// Why there is no plan, after "does not fit: ".
fn text(why: NoPlan) -> &'static str {
    match why {
        NoPlan::NoNode => "no node would have room even if its devices were free",
        NoPlan::Stay => "pods that cannot move are in the way on each node",
        NoPlan::NoPlace => {
            "the pods in the way find no other place, or a PodDisruptionBudget allows too few evictions"
        }
        NoPlan::TooMany => {
            "the pods in the way find no other place, in any of the 256 cheapest sets of pods tried"
        }
    }
}

/// The class of whole cards, or of partitions with this profile.
fn own_class(driver: &str, profile: Option<&str>) -> DeviceClass {
    let attribute = |name: &str, value: &str| {
        format!("device.attributes[{}].?{name}.orValue(\"\") == {}", json!(driver), json!(value))
    };
    let kind = attribute("type", if profile.is_some() { "mig" } else { "gpu" });
    let of_profile = profile.map(|profile| attribute("profile", profile));
    let parts = [format!("device.driver == {}", json!(driver)), kind].into_iter().chain(of_profile);
    let expression = parts.collect::<Vec<_>>().join(" && ");
    let selector = DeviceSelector { cel: Some(CELDeviceSelector { expression }) };
    let spec = DeviceClassSpec { selectors: Some(vec![selector]), ..DeviceClassSpec::default() };
    let mut class = DeviceClass { spec: Some(spec), ..DeviceClass::default() };
    class.metadata.name = Some(OWN.to_owned());
    class
}
