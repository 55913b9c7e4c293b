//! `kubectl gpu kueue`: what Kueue needs to count the cards of managed pools, from DeviceClasses, GpuPools and GpuQuotas.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tessera_api::gpu_pool::{Allocation, GpuPool};
use tessera_api::gpu_quota::{Amount, GpuQuota, MILLIONTHS, Unit};
use tessera_api::kueue::CHECK_CONTROLLER;
use tessera_api::{DeviceType, attribute};
use tessera_cel::Selector;

use crate::api_server::Wanted;
use crate::arguments::KueueArguments;
use crate::commands::quota;
use crate::devices;
use crate::driver_name;
use crate::output::{self, CommandError, Verdict, printable};
use crate::source::Source;

/// The Cohort of all teams. A parent's Cohort has the name of its GpuQuota.
const COHORT: &str = "gpu.tessera.dev";

/// Name of the AdmissionCheck.
const CHECK: &str = "tessera-plan";

/// Runs the command.
///
/// # Errors
/// The objects could not be read, or there is no managed pool.
pub fn run(arguments: &KueueArguments) -> Result<Verdict, CommandError> {
    let source = Source::load(&arguments.source, Wanted::Kueue)?;
    let classes = Classes::of(&source);
    if arguments.configuration {
        output::print(&configuration(&classes)?)?;
        return Ok(Verdict::Yes);
    }
    let pools: Vec<&GpuPool> = source.pools.iter().flat_map(BTreeMap::values).collect();
    let fleet = Fleet::of(&pools);
    if fleet.pools.is_empty() {
        return Err(CommandError::Asked(
            "there is no GpuPool with allocation Managed, and Kueue admits jobs before their devices are known; for other pools \
             write the ClusterQueues by hand (docs/kueue.md)"
                .to_owned(),
        ));
    }
    let quotas = quota::of_source(&source)?;
    let teams: Vec<Team<'_>> = quotas.values().map(Team::of).collect();
    let mut objects = manifests(&fleet, &teams, &classes.resource);
    if arguments.admission_check {
        add_check(&mut objects);
    }
    let documents: Result<Vec<String>, _> = objects.iter().map(output::yaml).collect();
    output::print(&format!("{}{}", notes(&fleet, &teams, &classes), documents?.join("---\n")))?;
    Ok(Verdict::Yes)
}

/// DeviceClasses of the driver's devices.
struct Classes {
    /// The name by which Kueue counts whole cards: an extended resource where a class has one, so that pods with it in their limits
    /// count, too.
    resource: String,
    /// Those of whole cards alone.
    cards: Vec<String>,
    /// Those of partitions and shares.
    parts: Vec<String>,
}

impl Classes {
    fn of(source: &Source) -> Self {
        let driver = driver_name::of_cluster(&source.objects);
        let places = devices::devices(source.objects.slices.values());
        let (mut resource, mut cards, mut parts) = (None, Vec::new(), Vec::new());
        for (key, class) in &source.objects.classes {
            let Some(spec) = &class.spec else { continue };
            let cel = spec.selectors.iter().flatten().filter_map(|selector| selector.cel.as_ref());
            let compiled: Result<Vec<Selector>, _> =
                cel.map(|cel| Selector::compile(&cel.expression)).collect();
            let Ok(selectors) = compiled else { continue };
            let matched = places
                .iter()
                .filter(|place| place.id.driver == driver && devices::matches(&selectors, place));
            let is_card = |place: &devices::Place<'_>| {
                let attributes = place.device.attributes.as_ref();
                let kind = attributes.and_then(|all| all.get(attribute::TYPE)?.string.as_deref());
                kind == Some(DeviceType::Gpu.as_str())
            };
            let matched: Vec<bool> = matched.map(is_card).collect();
            // The chart's own class, also where no card is whole now.
            if key.name == driver || (!matched.is_empty() && matched.iter().all(|is_card| *is_card)) {
                resource = resource.or_else(|| spec.extended_resource_name.clone());
                cards.push(key.name.clone());
            } else if !matched.is_empty() {
                parts.push(key.name.clone());
            }
        }
        if cards.is_empty() {
            cards.push(driver.clone());
        }
        Classes { resource: resource.unwrap_or(driver), cards, parts }
    }
}

/// Fields of Kueue's Configuration.
fn configuration(classes: &Classes) -> Result<String, CommandError> {
    let fields = json!({
        "featureGates": { "DynamicResourceAllocation": true },
        "resources": {
            "deviceClassMappings": [{ "name": classes.resource, "deviceClassNames": classes.cards }],
            "excludeResourcePrefixes": ["cpu", "memory", "ephemeral-storage"],
        },
    });
    Ok(format!(
        "# Add this to Kueue's Configuration, and start Kueue anew. With excludeResourcePrefixes Kueue counts no processors and memory in\n\
         # any queue: whoever has quotas of them leaves it out, and adds both resources to the ClusterQueues.\n{}",
        output::yaml(&fields)?
    ))
}

/// The managed pools, each with its number of cards.
struct Fleet<'s> {
    pools: Vec<(&'s GpuPool, u64)>,
}

impl<'s> Fleet<'s> {
    fn of(pools: &[&'s GpuPool]) -> Self {
        let managed = pools.iter().filter(|pool| pool.spec.allocation == Allocation::Managed);
        let cards = |pool: &GpuPool| u64::from(pool.status.as_ref().map_or(0, |status| status.cards));
        Fleet { pools: managed.map(|pool| (*pool, cards(pool))).collect() }
    }

    /// So many cards, divided among the pools by their sizes.
    fn divide(&self, cards: u64) -> Vec<u64> {
        let all: u64 = self.pools.iter().map(|(_, cards)| cards).sum();
        let (mut before, mut divided) = (0, Vec::new());
        for (_, of_pool) in &self.pools {
            let upto = |number: u64| (cards * number).checked_div(all).unwrap_or(cards);
            divided.push(upto(before + of_pool) - if divided.is_empty() { 0 } else { upto(before) });
            before += of_pool;
        }
        divided
    }
}

/// A GpuQuota in whole cards, rounded up.
struct Team<'s> {
    name: &'s str,
    quota: &'s GpuQuota,
    guaranteed: u64,
    limit: Option<u64>,
}

impl<'s> Team<'s> {
    fn of(quota: &'s GpuQuota) -> Self {
        let amount = quota.spec.amounts.iter().find(|amount| is_counted(amount));
        let whole = |measure: u64| measure.div_ceil(MILLIONTHS);
        Team {
            name: quota.metadata.name.as_deref().unwrap_or_default(),
            quota,
            guaranteed: amount.map_or(0, |amount| whole(amount.guaranteed())),
            limit: amount.and_then(Amount::limit).map(whole),
        }
    }

    fn children<'t>(&self, teams: &'t [Team<'s>]) -> impl Iterator<Item = &'t Team<'s>> {
        teams.iter().filter(move |team| team.quota.spec.parent.as_deref() == Some(self.name))
    }
}

/// Whether Kueue can count the amount.
fn is_counted(amount: &Amount) -> bool {
    amount.unit == Unit::Cards && amount.cards.is_none()
}

/// ResourceFlavors, Cohorts and ClusterQueues.
fn manifests(fleet: &Fleet<'_>, teams: &[Team<'_>], resource: &str) -> Vec<Value> {
    let mut manifests = Vec::new();
    for (pool, _) in &fleet.pools {
        let labels = pool.spec.node_selector.as_ref().map(|selector| &selector.match_labels);
        let spec = labels.filter(|labels| !labels.is_empty()).map(|labels| json!({ "nodeLabels": labels }));
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        manifests.push(object("ResourceFlavor", name, &spec.unwrap_or_else(|| json!({}))));
    }
    let groups = |nominal: u64, limit: Option<u64>| {
        let limits: Vec<Option<u64>> = match limit {
            Some(limit) => fleet.divide(limit).into_iter().map(Some).collect(),
            None => vec![None; fleet.pools.len()],
        };
        let amounts = fleet.divide(nominal).into_iter().zip(limits);
        let flavors = fleet.pools.iter().zip(amounts).map(|((pool, _), (nominal, limit))| {
            let mut quota = json!({ "name": resource, "nominalQuota": nominal });
            if let Some(limit) = limit {
                quota["borrowingLimit"] = json!(limit.saturating_sub(nominal));
            }
            json!({ "name": pool.metadata.name, "resources": [quota] })
        });
        json!([{ "coveredResources": [resource], "flavors": flavors.collect::<Vec<_>>() }])
    };
    // What nobody is guaranteed is there for all.
    let is_top = |team: &&Team<'_>| team.quota.spec.parent.is_none();
    let total = |team: &Team<'_>| {
        let of_children: u64 = team.children(teams).map(|child| child.guaranteed).sum();
        team.guaranteed.max(of_children)
    };
    let all: u64 = fleet.pools.iter().map(|(_, cards)| cards).sum();
    let guaranteed: u64 = teams.iter().filter(is_top).map(total).sum();
    let shared = groups(all.saturating_sub(guaranteed), None);
    manifests.push(object("Cohort", COHORT, &json!({ "resourceGroups": shared })));
    for team in teams {
        let of_children: u64 = team.children(teams).map(|child| child.guaranteed).sum();
        let is_parent = team.children(teams).next().is_some();
        let cohort = team.quota.spec.parent.as_deref().unwrap_or(COHORT);
        if is_parent {
            // A Cohort may borrow what its members have not: the limit counts from all that is theirs.
            let own = team.guaranteed.saturating_sub(of_children);
            let limit = team.limit.map(|limit| limit.saturating_sub(of_children).max(own));
            let spec = json!({ "parentName": cohort, "resourceGroups": groups(own, limit) });
            manifests.push(object("Cohort", team.name, &spec));
        }
        let Some(selector) = &team.quota.spec.namespace_selector else { continue };
        let (cohort, nominal, limit) =
            if is_parent { (team.name, 0, None) } else { (cohort, team.guaranteed, team.limit) };
        let mut spec = json!({
            "cohortName": cohort,
            "namespaceSelector": selector,
            "preemption": { "reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority" },
            "resourceGroups": groups(nominal, limit),
        });
        if team.quota.spec.weight != 1 {
            spec["fairSharing"] = json!({ "weight": team.quota.spec.weight });
        }
        manifests.push(object("ClusterQueue", team.name, &spec));
    }
    manifests
}

/// Adds the check by which jobs are planned before they are admitted, for all ClusterQueues.
fn add_check(objects: &mut Vec<Value>) {
    let strategy = json!({ "admissionChecks": [{ "name": CHECK }] });
    for queue in objects.iter_mut().filter(|object| object["kind"] == "ClusterQueue") {
        queue["spec"]["admissionChecksStrategy"] = strategy.clone();
    }
    objects.insert(0, object("AdmissionCheck", CHECK, &json!({ "controllerName": CHECK_CONTROLLER })));
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

/// What these objects do not say, as comments.
fn notes(fleet: &Fleet<'_>, teams: &[Team<'_>], classes: &Classes) -> String {
    let mut notes =
        vec![format!("Cards are {} for Kueue: kubectl gpu kueue --configuration", classes.resource)];
    if !classes.parts.is_empty() {
        notes.push(format!(
            "Kueue counts devices, not their memory: {} are not mapped, and jobs with them are not admitted",
            classes.parts.join(", ")
        ));
    }
    for (pool, cards) in &fleet.pools {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        if pool.spec.node_selector.as_ref().is_some_and(|selector| !selector.match_expressions.is_empty()) {
            notes.push(format!(
                "ResourceFlavor {name}: matchExpressions of the pool's nodeSelector are left out"
            ));
        }
        if *cards == 0 {
            notes.push(format!("GpuPool {name}: no status says how many cards it has"));
        }
    }
    for team in teams {
        for amount in team.quota.spec.amounts.iter().filter(|amount| !is_counted(amount)) {
            notes.push(format!(
                "GpuQuota {}: {} is left out: not in cards of all kinds",
                team.name, amount.name
            ));
        }
    }
    notes.iter().map(|note| format!("# {}\n", printable(note))).collect()
}

#[cfg(test)]
mod tests {
    use tessera_api::gpu_pool::GpuPoolSpec;

    use super::*;

    #[test]
    fn cards_are_divided_by_the_sizes_of_pools_without_a_rest() {
        let pool = GpuPool::new("p", GpuPoolSpec::default());
        let divided = |sizes: &[u64], cards| {
            Fleet { pools: sizes.iter().map(|size| (&pool, *size)).collect() }.divide(cards)
        };
        assert_eq!(divided(&[16], 7), [7]);
        assert_eq!(divided(&[8, 24], 10), [2, 8]);
        assert_eq!(divided(&[1, 1, 1], 10), [3, 3, 4]);
        assert_eq!(divided(&[0, 0], 10), [10, 0]);
    }
}
