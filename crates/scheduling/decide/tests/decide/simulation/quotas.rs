//! Admins of GpuQuotas: quotas come, change and go, and namespaces change their team.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::resource::v1::DeviceAttribute;
use serde_json::{Value, json};
use tessera_cluster::{GpuQuota, Key, Kind, Object};
use tessera_decide::Time;

use super::api_server::{Server, Surroundings};
use super::kubernetes::{seconds, timestamp};
use super::oracle::{OF_SOME_CARDS, PRODUCT_OF};
use crate::objects;

/// The namespaces, in runs with quotas.
pub const NAMESPACES: [&str; 4] = ["team", "n1", "n2", "n3"];
/// Quotas of teams, each for the namespaces with a label of its name.
const TEAMS: [&str; 3] = ["red", "blue", "green"];
/// Quota of no namespace, and parent of others.
pub const PARENT: &str = "colours";
/// The priority class that no quota refuses, and the pods that have it.
pub const EXEMPT: (&str, [&str; 2]) = ("vital", ["p3", "p10"]);
/// Longer than a change takes to be observed, so that much is taken back while things fail.
pub const GRACE: Time = Time::from_secs(15);

const MIN_RUNTIMES: [u32; 4] = [0, 0, 10, 120];

/// GPU hours of each budget. The status says from the beginning whether they are spent: a run is too short to use as many.
const GPU_HOURS: u64 = 10;

/// Admins of quotas.
pub struct QuotaAdmins {
    next: Time,
    /// The longest time between two changes, in milliseconds.
    most: u64,
    /// Choices about budgets: all others of a seed are as without them.
    budgets: fastrand::Rng,
    /// Quotas whose budgets, if any, are spent.
    spent: Vec<&'static str>,
}

/// The slice with the product of the node's cards.
pub fn with_product(slice: Object, node: &str) -> Object {
    let Object::ResourceSlice(mut slice) = slice else { return slice };
    let product = DeviceAttribute { string: Some(PRODUCT_OF(node).to_owned()), ..DeviceAttribute::default() };
    for device in slice.spec.devices.iter_mut().flatten() {
        device.attributes.get_or_insert_default().insert("productName".to_owned(), product.clone());
    }
    slice.into()
}

impl QuotaAdmins {
    /// Creates the first namespaces and quotas.
    pub fn new(around: &mut Surroundings, server: &mut Server) -> Self {
        for (namespace, team) in NAMESPACES.into_iter().zip(TEAMS.into_iter().chain(["none"])) {
            label(around, server, namespace, team);
        }
        let mut budgets = fastrand::Rng::with_seed(around.rng.clone().u64(..));
        let names = TEAMS.into_iter().chain([PARENT]);
        let spent = names.clone().filter(|_| budgets.u32(0..100) < 40).collect();
        let mut admins = QuotaAdmins { next: Time::ZERO, most: 0, budgets, spent };
        for name in names {
            if around.percent(80) {
                admins.apply(around, server, name);
            }
        }
        admins.most = if around.percent(50) { 20_000 } else { 100_000 };
        admins.next = around.between(5_000, admins.most);
        admins
    }

    pub fn step(&mut self, around: &mut Surroundings, server: &mut Server) {
        if self.next > around.now {
            return;
        }
        self.next = around.now + around.between(5_000, self.most);
        let names = [TEAMS[0], TEAMS[1], TEAMS[2], PARENT];
        let name = names[around.rng.usize(0..names.len())];
        match around.rng.u32(0..100) {
            0..20 => {
                around.note(|| format!("quota {name} goes"));
                server.delete(around, Kind::GpuQuota, &Key::cluster(name));
            }
            20..40 => {
                let namespace = NAMESPACES[around.rng.usize(0..NAMESPACES.len())];
                label(around, server, namespace, name);
            }
            _ => self.apply(around, server, name),
        }
    }

    /// Creates or changes the quota.
    fn apply(&mut self, around: &mut Surroundings, server: &mut Server, name: &str) {
        let (amounts, weight) = (amounts(around), around.rng.u32(1..4));
        let least = MIN_RUNTIMES[around.rng.usize(0..MIN_RUNTIMES.len())];
        let mut spec = json!({ "amounts": amounts, "weight": weight, "minRuntimeSeconds": least });
        if name != PARENT {
            spec["namespaceSelector"] = json!({ "matchLabels": { "team": name } });
            if around.percent(10) {
                spec["namespaceSelector"] = json!({});
                spec["priority"] = json!(around.rng.i32(-1..2));
            }
            if around.percent(40) {
                spec["parent"] = json!(PARENT);
            }
        }
        if self.budgets.u32(0..100) < 40 {
            let when_spent = if self.budgets.bool() { "Wait" } else { "LentOnly" };
            spec["budget"] = json!({ "gpuHours": GPU_HOURS, "whenSpent": when_spent });
        }
        let used = if self.spent.contains(&name) { GPU_HOURS * 3600 } else { 0 };
        let begin = timestamp(0);
        let hours = json!({ "cardSeconds": used, "since": begin, "asOf": timestamp(seconds(around.now)) });
        around.note(|| format!("quota {name}, {used} card-seconds used: {spec}"));
        let created = match server.get(Kind::GpuQuota, &Key::cluster(name)).map(AsRef::as_ref) {
            Some(Object::GpuQuota(before)) => before.metadata.creation_timestamp.clone(),
            _ => Some(timestamp(seconds(around.now))),
        };
        let mut quota: GpuQuota = objects::read(
            json!({ "metadata": { "name": name }, "spec": spec, "status": { "hours": hours } }),
        );
        quota.metadata.creation_timestamp = created;
        server.apply(around, quota);
    }
}

fn label(around: &mut Surroundings, server: &mut Server, namespace: &str, team: &str) {
    around.note(|| format!("namespace {namespace} is of team {team}"));
    let namespace = json!({ "metadata": { "name": namespace, "labels": { "team": team } } });
    server.apply(around, objects::read::<Namespace>(namespace));
}

fn amounts(around: &mut Surroundings) -> Vec<Value> {
    let mut amounts = Vec::new();
    let guaranteed = around.rng.u32(0..5);
    let mut cards = json!({ "name": "cards", "unit": "Cards", "guaranteed": guaranteed });
    if around.percent(60) {
        // In halves of a card.
        cards["limit"] = json!(format!("{}m", 1_000 * guaranteed + 500 * around.rng.u32(0..7)));
    }
    if around.percent(85) {
        amounts.push(cards);
    }
    if around.percent(20) {
        let limit = around.rng.u32(1..12) * 40;
        amounts.push(json!({ "name": "memory", "unit": "Memory", "limit": format!("{limit}Gi") }));
    }
    if around.percent(20) {
        let guaranteed = around.rng.u32(0..3);
        let mut some =
            json!({ "name": "some", "unit": "Cards", "guaranteed": guaranteed, "cards": OF_SOME_CARDS });
        if around.percent(50) {
            some["limit"] = json!(guaranteed + around.rng.u32(0..3));
        }
        amounts.push(some);
    }
    amounts
}
