//! Small random fleets with running pods, and pods waiting for room.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_cluster::{Asker, Cluster, Key};
use tessera_placement::Time;
use tessera_placement::demand::Demand;
use tessera_placement::fleet::{Fleet, FleetNode};
use tessera_placement::gather::{self, Mover, Stays};
use tessera_placement::ranking::Rankings;
use tessera_placement::seats::{self, Filter, Placed, Places, Seat};
use tessera_placement::statement::{Base, Statement};
use tessera_placement::value::RequestMix;
use tessera_placement::victims::{self, Plan, Unit, Units};

pub const DRIVER: &str = "gpu.tessera.dev";
const NOW: Time = Time::from_secs(1_000);

/// Priority of the waiting pods. Others of at least this priority stay.
pub const PRIORITY: i32 = 3;

/// A running pod.
#[derive(Debug)]
struct Running {
    name: String,
    node: usize,
    /// Names of its devices.
    devices: Vec<String>,
    cpu: u32,
    /// Whether it is bound to the node, not only released to it.
    is_bound: bool,
}

#[derive(Debug)]
pub struct Scene {
    /// By node: number of cards.
    cards: Vec<usize>,
    running: Vec<Running>,
    pub units: Vec<Unit>,
    /// Class, number of devices, and processors of each waiting pod.
    waiting: Vec<(&'static str, usize, u32)>,
    pub needed: usize,
}

/// A waiting pod.
pub struct Wanted {
    pub key: Key,
    pub pod: Pod,
    pub demand: Demand,
}

/// The scene's objects without some units.
pub struct World {
    pub cluster: Cluster,
    pub fleet: Fleet,
    pub rankings: Rankings,
    asker: Asker,
    mix: RequestMix,
}

/// No node is withheld.
struct All;

impl Filter for All {
    fn is_kept(&self, _: usize, _: &FleetNode) -> bool {
        false
    }

    fn is_refused(&self, _: usize, _: &FleetNode) -> bool {
        false
    }
}

pub fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn card(number: usize) -> String {
    format!("gpu-{:02x}-00", number + 1)
}

impl Scene {
    pub fn random(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cards: Vec<usize> = (0..rng.usize(1..=4)).map(|_| rng.usize(1..=4)).collect();
        let mut running: Vec<Running> = Vec::new();
        for (node, cards) in cards.iter().enumerate() {
            let mut number = 0;
            while number < *cards {
                let whole = rng.usize(1..=2).min(cards - number);
                let devices: Vec<Vec<String>> = match rng.u32(0..10) {
                    0..6 => vec![(number..number + whole).map(card).collect()],
                    6 => vec![vec![format!("{}-mig-3g40gb-0", card(number))]],
                    7..9 => ["0", "4"].map(|at| vec![format!("{}-mig-3g40gb-{at}", card(number))]).into(),
                    _ => Vec::new(),
                };
                number += if devices.len() == 1 { whole } else { 1 };
                for devices in devices {
                    let name = format!("p{}", running.len());
                    let (cpu, is_bound) = (rng.u32(0..=2), rng.u32(0..8) > 0);
                    running.push(Running { name, node, devices, cpu, is_bound });
                }
            }
        }
        let mut units: Vec<Unit> = Vec::new();
        for pod in &running {
            let key = Key::new("n", &pod.name);
            let claim = Key::new("n", format!("{}-c", pod.name));
            let place = rng.usize(0..=units.len());
            match units.get_mut(place).filter(|unit| unit.is_gang || rng.u32(0..4) == 0) {
                Some(gang) => {
                    gang.is_gang = true;
                    gang.pods.push(key);
                    gang.claims.push(claim);
                }
                None => units.push(Unit {
                    pods: vec![key],
                    claims: vec![claim],
                    priority: rng.i32(0..=3),
                    is_gang: false,
                    created: Some(read(json!(format!("2026-01-{:02}T00:00:00Z", rng.u32(1..=28))))),
                }),
            }
        }
        let class = if rng.u32(0..3) == 0 { "half" } else { "gpu" };
        let asked = (class, rng.usize(1..=3), rng.u32(0..=5));
        let mut waiting = if rng.bool() { vec![asked] } else { vec![asked; rng.usize(2..=3)] };
        if waiting.len() > 1 && rng.bool() {
            for (_, devices, cpu) in &mut waiting {
                (*devices, *cpu) = (rng.usize(1..=3), rng.u32(0..=5));
            }
        }
        let needed = rng.usize(1..=waiting.len());
        Scene { cards, running, units, waiting, needed }
    }

    /// A node for each of these days, with one card, held by a pod created then; and a pod waiting for a card.
    pub fn of_single_cards(days: &[u32]) -> Self {
        let running = days.iter().enumerate().map(|(node, _)| Running {
            name: format!("p{node}"),
            node,
            devices: vec![card(0)],
            cpu: 0,
            is_bound: true,
        });
        let unit = |(number, day): (usize, &u32)| Unit {
            pods: vec![Key::new("n", format!("p{number}"))],
            claims: vec![Key::new("n", format!("p{number}-c"))],
            priority: 0,
            is_gang: false,
            created: Some(read(json!(format!("2026-01-{day:02}T00:00:00Z")))),
        };
        Scene {
            cards: vec![1; days.len()],
            running: running.collect(),
            units: days.iter().enumerate().map(unit).collect(),
            waiting: vec![("gpu", 1, 0)],
            needed: 1,
        }
    }

    /// The nodes of the unit's pods. Nodes are numbered as the fleet does.
    pub fn nodes_of(&self, unit: usize) -> std::collections::BTreeSet<u32> {
        let pods = &self.units[unit].pods;
        let own = self.running.iter().filter(|running| pods.iter().any(|pod| pod.name == running.name));
        own.map(|running| running.node as u32).collect()
    }

    /// The waiting pods with their demands.
    pub fn waiting_pods(&self, world: &World) -> Vec<Wanted> {
        let wanted = self.waiting.iter().enumerate().map(|(number, (_, _, cpu))| {
            let pod: Pod = read(pod(&format!("w{number}"), *cpu, None));
            let demand = Demand::of(world.cluster.objects(), &pod).unwrap();
            Wanted { key: Key::new("n", format!("w{number}")), pod, demand }
        });
        wanted.collect()
    }
}

fn pod(name: &str, cpu: u32, node: Option<&str>) -> Value {
    json!({ "metadata": { "name": name, "namespace": "n", "uid": name },
        "spec": { "nodeName": node, "resourceClaims": [{ "name": "c", "resourceClaimName": format!("{name}-c") }],
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu.to_string() } } }] } })
}

fn claim(name: &str, class: &str, count: usize) -> Value {
    json!({ "metadata": { "name": format!("{name}-c"), "namespace": "n", "uid": format!("{name}-c"),
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true }] },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": class,
            "allocationMode": "ExactCount", "count": count } }] } } })
}

/// A managed node's slice of whole cards and their halves, with its counters.
pub fn slices(node: &str, cards: usize) -> [ResourceSlice; 2] {
    let sets: Vec<Value> = (0..cards)
        .map(|number| {
            json!({ "name": format!("{}-set", card(number)),
                "counters": { "memory-slice-0": { "value": "1" }, "memory-slice-1": { "value": "1" } } })
        })
        .collect();
    let device = |number: usize, suffix: &str, kind: &str, taken: &[usize]| {
        let counters: serde_json::Map<String, Value> =
            taken.iter().map(|slice| (format!("memory-slice-{slice}"), json!({ "value": "1" }))).collect();
        json!({ "name": format!("{}{suffix}", card(number)), "attributes": { "type": { "string": kind } },
            "taints": [{ "key": tessera_api::managed::TAINT_KEY, "effect": "NoSchedule" }],
            "consumesCounters": [{ "counterSet": format!("{}-set", card(number)), "counters": counters }] })
    };
    let devices: Vec<Value> = (0..cards)
        .flat_map(|number| {
            [
                device(number, "-mig-3g40gb-0", "mig", &[0]),
                device(number, "-mig-3g40gb-4", "mig", &[1]),
                device(number, "", "gpu", &[0, 1]),
            ]
        })
        .collect();
    let all: serde_json::Map<String, Value> = (0..cards)
        .map(|number| {
            (format!("0000:{:02x}:00.0", number + 1), json!({ "pool": "p", "allocation": "Managed" }))
        })
        .collect();
    let report = json!({ "cards": all, "otherPairs": "SYS" }).to_string();
    let slice = |suffix: &str, annotations: Value, contents: Value| {
        let mut spec = json!({ "driver": DRIVER, "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 2 } });
        spec.as_object_mut().unwrap().extend(contents.as_object().unwrap().clone());
        let metadata = json!({ "name": format!("{node}-{suffix}"), "annotations": annotations });
        read(json!({ "metadata": metadata, "spec": spec }))
    };
    [
        slice("0", json!({ "gpu.tessera.dev/node-report": report }), json!({ "sharedCounters": sets })),
        slice("1", json!({}), json!({ "devices": devices })),
    ]
}

impl World {
    /// All objects of the scene but those of these units.
    pub fn new(scene: &Scene, gone: &[usize]) -> Self {
        let mut shares = 0u64;
        let asker = Asker::new(move || {
            shares += 1;
            format!("{shares}")
        });
        let (mut cluster, mut fleet) = (Cluster::default(), Fleet::default());
        for (name, kind) in [("gpu", "gpu"), ("half", "mig")] {
            let class: DeviceClass = read(
                json!({ "metadata": { "name": name }, "spec": { "selectors": [{ "cel": {
                "expression": format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'") } }] } }),
            );
            cluster.apply(class).unwrap();
        }
        for (number, cards) in scene.cards.iter().enumerate() {
            let name = format!("n{number}");
            let node: Node = read(json!({ "metadata": { "name": name },
                "status": { "allocatable": { "cpu": "6", "pods": "110" } } }));
            cluster.apply(node).unwrap();
            for slice in slices(&name, *cards) {
                fleet.apply_slice(Time::ZERO, &slice, DRIVER).unwrap();
                cluster.apply(slice).unwrap();
                fleet.mark_devices(&name);
            }
        }
        for running in &scene.running {
            let key = Key::new("n", &running.name);
            if gone.iter().any(|unit| scene.units[*unit].pods.contains(&key)) {
                continue;
            }
            let node = format!("n{}", running.node);
            let results: Vec<Value> = running
                .devices
                .iter()
                .map(|device| json!({ "request": "r", "driver": DRIVER, "pool": node, "device": device }))
                .collect();
            let is_half = running.devices.iter().any(|device| device.contains("-mig-"));
            let class = if is_half { "half" } else { "gpu" };
            let mut held = claim(&running.name, class, running.devices.len());
            held["status"] = json!({ "allocation": { "devices": { "results": results } } });
            cluster.apply(read::<ResourceClaim>(held)).unwrap();
            let pod: Pod = read(pod(&running.name, running.cpu, running.is_bound.then_some(&node)));
            if !running.is_bound {
                cluster.assume(&key, &pod, &node, Vec::new()).unwrap();
            }
            cluster.apply(pod).unwrap();
            fleet.mark(&node);
        }
        for (number, (class, count, cpu)) in scene.waiting.iter().enumerate() {
            let name = format!("w{number}");
            cluster.apply(read::<ResourceClaim>(claim(&name, class, *count))).unwrap();
            cluster.apply(read::<Pod>(pod(&name, *cpu, None))).unwrap();
        }
        World { cluster, fleet, rankings: Rankings::default(), asker, mix: RequestMix::default() }
    }

    /// Gives the pod a volume that only this node can have.
    pub fn bind_volume(&mut self, wanted: &mut Wanted, node: &str) {
        let claim =
            json!({ "metadata": { "name": "disk", "namespace": "n" }, "spec": { "volumeName": "disk" } });
        self.cluster.apply(read::<PersistentVolumeClaim>(claim)).unwrap();
        let volume = json!({ "metadata": { "name": "disk" }, "spec": { "nodeAffinity": { "required": {
            "nodeSelectorTerms": [{ "matchFields": [
                { "key": "metadata.name", "operator": "In", "values": [node] }] }] } } } });
        self.cluster.apply(read::<PersistentVolume>(volume)).unwrap();
        let mut pod = serde_json::to_value(&wanted.pod).unwrap();
        pod["spec"]["volumes"] =
            json!([{ "name": "disk", "persistentVolumeClaim": { "claimName": "disk" } }]);
        wanted.pod = read(pod);
        wanted.demand = Demand::of(self.cluster.objects(), &wanted.pod).unwrap();
    }

    pub fn parts(&mut self) -> (Statement<'_>, &mut Rankings) {
        let World { cluster, fleet, rankings, asker, mix } = self;
        let base = Base { cluster, fleet, asker, driver: DRIVER, handed_over: Some(NOW), mix, limit: None };
        (Statement::new(base), rankings)
    }

    /// A statement over the world, for the rest of the test.
    pub fn into_statement(self) -> Statement<'static> {
        Box::leak(Box::new(self)).parts().0
    }

    /// The units as movers, whose costs are the days since they were created.
    pub fn movers(&mut self, scene: &Scene) -> Vec<Mover> {
        let all = gather::movers(&self.cluster, &mut self.fleet, DRIVER, Timestamp::UNIX_EPOCH);
        let mover = |unit: &Unit| {
            let mut mover = Mover::default();
            for part in &all {
                let Some(pod) = part.pods.iter().find(|pod| unit.pods.contains(&pod.key)) else { continue };
                let place = mover.pods.len();
                let held = part.devices.iter().cloned();
                mover.devices.extend(held.map(|mut held| {
                    held.pod = place;
                    held
                }));
                mover.pods.push(pod.clone());
                mover.claims.extend(part.claims.iter().cloned());
            }
            let day = unit.created.as_ref().map_or(0, |created| created.0.as_second() / 86_400);
            mover.lost = (day.unsigned_abs() % 7) * mover.devices.len() as u64;
            mover.stays = (unit.priority >= PRIORITY).then_some(Stays::NoOwner);
            mover
        };
        scene.units.iter().map(mover).collect()
    }

    pub fn place(&mut self, waiting: &[Wanted], needed: usize) -> Option<Vec<Placed>> {
        let (mut statement, rankings) = self.parts();
        let partners = std::collections::BTreeSet::new();
        let places = Places { topology_keys: &[], partners: &partners };
        let placed = seats::place(&mut statement, rankings, &seats_of(waiting), needed, places, &All);
        placed.ok().filter(|placed| !placed.is_empty())
    }

    pub fn plan(&mut self, scene: &Scene, waiting: &[Wanted], needed: usize) -> Option<Plan> {
        let mut units = Units::new(scene.units.clone(), vec![false; scene.units.len()]);
        units.look_up(&self.cluster, &mut self.fleet, DRIVER);
        let may: Vec<bool> = scene.units.iter().map(|unit| unit.priority < PRIORITY).collect();
        let (mut statement, rankings) = self.parts();
        victims::plan(&mut statement, rankings, &seats_of(waiting), needed, &mut units, &may, &All)
    }
}

fn seats_of(waiting: &[Wanted]) -> Vec<Seat<'_>> {
    waiting.iter().map(|Wanted { key, pod, demand }| Seat { key, pod, demand }).collect()
}
