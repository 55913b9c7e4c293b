//! Advises the smallest device sufficient for each claim's recorded usage: pure.

mod decide;
mod manifest;
mod neighbours;
mod offers;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim, ResourceClaimSpec};
use serde::Serialize;
use tessera_api::DeviceName;
use tessera_api::fleet_view::{CardView, FleetView, Holder};
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cluster::{ClaimExt, Key, Objects};

use crate::devices;
use crate::output;
pub use decide::{Advice, Choice};
use decide::{Use, decide, with_margin};
pub use manifest::Manifest;
use manifest::Origin;
pub use neighbours::Neighbours;
use neighbours::is_time_slice;
pub use offers::Kind;
use offers::{kind_of, offers};

/// Hours of a month.
const MONTH: f64 = 730.0;

/// Request name used when the claim's own is unknown.
const REQUEST: &str = "gpu";

/// A claim's share of a card, its usage and the advised device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The claim's namespace.
    pub namespace: String,
    /// Its name.
    pub claim: String,
    /// Pods for which the claim is reserved.
    pub pods: Vec<String>,
    /// The request in the claim.
    pub request: String,
    /// The node.
    pub node: String,
    /// The device.
    pub device: String,
    /// The card's product.
    pub product: String,
    /// Kind of the allocated device; absent for a device without known details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has: Option<Kind>,
    /// Worth of the allocated device, in cards.
    #[serde(serialize_with = "output::rounded")]
    pub worth: f64,
    /// Memory available to the device, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Peak memory use, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_mib: Option<u64>,
    /// Mean share of the card's multiprocessors kept busy, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_mean: Option<f64>,
    /// The highest share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_peak: Option<f64>,
    /// Length of the observation.
    pub observed_seconds: u64,
    /// Whether its peak is much above its mean.
    pub is_bursty: bool,
    /// The advice.
    #[serde(flatten)]
    pub advice: Advice,
    /// For bursty use where no share is offered: worth of a suitable share, in cards.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "output::rounded_if_known")]
    pub share_worth: Option<f64>,
    /// Saving of the change, in cards.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "output::rounded_if_known")]
    pub saves: Option<f64>,
    /// The same as money, exactly, where the card has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saves_per_hour: Option<f64>,
    /// Manifest of the change, by kind and name; absent where no DeviceClass selects the advised device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
}

/// All claims.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The currency of amounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// The claims' devices, largest saving first.
    pub claims: Vec<Row>,
    /// Saving of all changes, in cards.
    #[serde(serialize_with = "output::rounded")]
    pub saves: f64,
    /// The same as money, exactly, of cards with a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saves_per_hour: Option<f64>,
    /// The same, of 730 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saves_per_month: Option<f64>,
    /// Manifests to apply.
    pub manifests: Vec<Manifest>,
    /// Cards that their claims divide badly.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbours>,
}

/// Inputs of the report.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Only claims of this namespace.
    pub namespace: Option<&'a str>,
    /// The driver.
    pub driver: &'a str,
    /// For how long a claim must have been watched, in seconds.
    pub min_seconds: u64,
    /// Kubernetes release whose CEL environment compiles the classes' selectors.
    pub kubernetes: KubernetesVersion,
}

/// Claims with the same template and request have the same work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    namespace: String,
    origin: String,
    is_template: bool,
    request: String,
    product: String,
}

/// A device of a claim.
struct Held<'v> {
    node: &'v str,
    card: &'v CardView,
    holder: &'v Holder,
    group: Group,
    spec: Option<&'v ResourceClaimSpec>,
}

impl Held<'_> {
    fn used(&self) -> Use {
        Use {
            seconds: self.holder.observed_seconds.unwrap_or_default(),
            memory_peak_mib: self.holder.memory_peak_mib,
            sm_mean: self.holder.sm_mean,
            sm_peak: self.holder.sm_peak,
        }
    }

    /// Whether it is a time-slice whose programs held more memory than its part, which nothing keeps them from.
    fn is_above_part(&self) -> bool {
        let memory = self.holder.memory_peak_mib.zip(self.holder.memory_granted_mib);
        is_time_slice(self.holder) && memory.is_some_and(|(peak, granted)| peak > granted)
    }

    /// The request of the claim.
    fn request(&self) -> (&str, &str, &str) {
        (&self.holder.namespace, &self.holder.claim, &self.group.request)
    }
}

/// Builds the report.
pub fn report(view: &FleetView, objects: &Objects, asked: Asked<'_>) -> Report {
    let templates = templates(objects);
    let held: Vec<Held<'_>> = view
        .nodes
        .iter()
        .flat_map(|node| node.cards.values().map(move |card| (node.name.as_str(), card)))
        .flat_map(|(node, card)| card.holders.iter().map(move |holder| (node, card, holder)))
        .filter(|(_, _, holder)| asked.namespace.is_none_or(|only| only == holder.namespace))
        .filter_map(|(node, card, holder)| held(objects, &templates, asked.driver, node, card, holder))
        .collect();
    let mut uses: BTreeMap<&Group, Use> = BTreeMap::new();
    let mut devices: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for one in &held {
        let known = uses.entry(&one.group).or_default();
        *known = known.and(one.used());
        *devices.entry(one.request()).or_default() += 1;
    }
    let kinds = kinds(objects, asked.driver, &held);
    let offers = offers(objects, asked.driver, asked.kubernetes);
    let row = |one: &Held<'_>| {
        let of_model = offers.get(&one.group.product).map(Vec::as_slice).unwrap_or_default();
        let worth = f64::from(one.holder.allocated) / 1000.0;
        let mut decision = decide(uses[&one.group], worth, of_model, asked.min_seconds);
        let together = devices[&one.request()];
        if together > 1 {
            decision.advice = Advice::Together { devices: together };
            decision.share_worth = None;
        }
        if decision.advice == Advice::Fits && one.is_above_part() {
            let ask = uses[&one.group].memory_peak_mib.map(with_margin);
            let ask_memory_mib = ask.filter(|ask| *ask <= one.card.memory_mib);
            decision.advice = Advice::AbovePart { ask_memory_mib };
        }
        let saves = match &decision.advice {
            Advice::Change { to } => Some(worth - to.worth),
            _ => None,
        };
        let used = one.used();
        let kind = kinds.get(&(one.node.to_owned(), one.holder.device.clone())).cloned();
        let holder = one.holder;
        Row {
            namespace: holder.namespace.clone(),
            claim: holder.claim.clone(),
            pods: holder.pods.clone(),
            request: one.group.request.clone(),
            node: one.node.to_owned(),
            device: holder.device.clone(),
            product: one.group.product.clone(),
            has: kind.or_else(|| by_name(&holder.device)),
            worth,
            memory_mib: holder.memory_granted_mib,
            memory_peak_mib: used.memory_peak_mib,
            sm_mean: used.sm_mean,
            sm_peak: used.sm_peak,
            observed_seconds: used.seconds,
            is_bursty: decision.is_bursty,
            advice: decision.advice,
            share_worth: decision.share_worth,
            saves,
            saves_per_hour: saves.zip(one.card.price_per_hour).map(|(saves, price)| saves * price),
            manifest: None,
        }
    };
    let mut rows: Vec<(Row, &Held<'_>)> = held.iter().map(|one| (row(one), one)).collect();
    rows.sort_by(|(one, _), (other, _)| {
        let key = |row: &Row| row.saves.unwrap_or(-1.0);
        key(other).total_cmp(&key(one)).then_with(|| {
            (&one.namespace, &one.claim, &one.device).cmp(&(&other.namespace, &other.claim, &other.device))
        })
    });
    let manifests = manifests(&mut rows, asked.driver);
    let claims: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
    let priced: Vec<f64> = claims.iter().filter_map(|row| row.saves_per_hour).collect();
    let per_hour = (!priced.is_empty()).then(|| priced.iter().sum::<f64>());
    Report {
        currency: view.currency.clone(),
        saves: claims.iter().filter_map(|row| row.saves).sum(),
        saves_per_hour: per_hour,
        saves_per_month: per_hour.map(|per_hour| per_hour * MONTH),
        claims,
        manifests,
        neighbours: neighbours::neighbours(view, objects, &offers, asked),
    }
}

/// Source template of each claim.
fn templates(objects: &Objects) -> HashMap<Key, &str> {
    let mut templates = HashMap::new();
    for (key, pod) in &objects.pods {
        let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { continue };
        for made in status.resource_claim_statuses.iter().flatten() {
            let of_pod = spec.resource_claims.iter().flatten().find(|known| known.name == made.name);
            let template = of_pod.and_then(|known| known.resource_claim_template_name.as_deref());
            if let (Some(template), Some(claim)) = (template, &made.resource_claim_name) {
                templates.insert(key.with_name(claim), template);
            }
        }
    }
    templates
}

/// `None` for admin access, where nothing is taken.
fn held<'v>(
    objects: &'v Objects,
    templates: &HashMap<Key, &str>,
    driver: &str,
    node: &'v str,
    card: &'v CardView,
    holder: &'v Holder,
) -> Option<Held<'v>> {
    let key = Key::new(&holder.namespace, &holder.claim);
    let claim = objects.claims.get(&key).map(AsRef::as_ref);
    let result = claim.and_then(|claim| result_of(claim, driver, &holder.device));
    if result.is_some_and(|result| result.admin_access == Some(true)) {
        return None;
    }
    let template = templates.get(&key).copied();
    let owners = claim.map(|claim| claim.metadata.owner_references.iter().flatten());
    let is_of_pod = owners.is_none_or(|mut owners| owners.any(|owner| owner.kind == "Pod"));
    let group = Group {
        namespace: holder.namespace.clone(),
        origin: template.unwrap_or(&holder.claim).to_owned(),
        is_template: template.is_some() || is_of_pod,
        request: result.map_or(REQUEST, |result| &result.request).to_owned(),
        product: card.product_name.clone(),
    };
    Some(Held { node, card, holder, group, spec: claim.and_then(|claim| claim.spec.as_ref()) })
}

fn result_of<'c>(
    claim: &'c ResourceClaim,
    driver: &str,
    device: &str,
) -> Option<&'c DeviceRequestAllocationResult> {
    claim.results().iter().find(|result| result.driver == driver && result.device == device)
}

/// Kinds of held devices as published, by node and name.
fn kinds(objects: &Objects, driver: &str, held: &[Held<'_>]) -> HashMap<(String, String), Kind> {
    let name = |node: &str, device: &str| (node.to_owned(), device.to_owned());
    let wanted: HashSet<_> = held.iter().map(|one| name(one.node, &one.holder.device)).collect();
    let slices = objects.slices.values().filter(|slice| slice.spec.driver == driver);
    let published = devices::devices(slices).into_iter().filter_map(|place| {
        let name = name(place.node(), &place.id.device);
        wanted.contains(&name).then(|| Some((name, kind_of(place.device)?))).flatten()
    });
    published.collect()
}

/// Kind of a device no longer published, from its name.
fn by_name(device: &str) -> Option<Kind> {
    match device.parse::<DeviceName>().ok()? {
        DeviceName::Card(_) => Some(Kind::Card),
        DeviceName::Partition(name) => Some(Kind::Partition { profile: name.profile.to_string() }),
        DeviceName::Mps(_) => Some(Kind::MpsShare { profile: None }),
        DeviceName::PartitionMps(name) => Some(Kind::MpsShare { profile: Some(name.profile.to_string()) }),
        _ => None,
    }
}

/// One manifest for each template or stand-alone claim; two where claims of a template are on different models. In a group, the
/// claim with the largest saving comes first and decides.
fn manifests(rows: &mut [(Row, &Held<'_>)], driver: &str) -> Vec<Manifest> {
    struct Draft<'h> {
        group: &'h Group,
        spec: ResourceClaimSpec,
        requests: BTreeSet<&'h str>,
        rows: Vec<usize>,
    }
    let mut drafts: Vec<Draft<'_>> = Vec::new();
    let mut of_group: BTreeMap<&Group, usize> = BTreeMap::new();
    let mut of_origin: BTreeMap<(&str, &str, bool), Vec<usize>> = BTreeMap::new();
    for (index, (row, one)) in rows.iter().enumerate() {
        let Advice::Change { to } = &row.advice else { continue };
        let group = &one.group;
        if let Some(draft) = of_group.get(group) {
            drafts[*draft].rows.push(index);
            continue;
        }
        let beside = of_origin.entry((&group.namespace, &group.origin, group.is_template)).or_default();
        let known = beside.iter().copied().find(|draft| !drafts[*draft].requests.contains(&*group.request));
        let spec = known.map(|draft| &drafts[draft].spec).or(one.spec);
        let Some(spec) = manifest::changed(spec, &group.request, to, &group.product, driver) else {
            continue;
        };
        let draft = known.unwrap_or(drafts.len());
        if known.is_none() {
            beside.push(draft);
            drafts.push(Draft {
                group,
                spec: ResourceClaimSpec::default(),
                requests: BTreeSet::new(),
                rows: Vec::new(),
            });
        }
        of_group.insert(group, draft);
        let draft = &mut drafts[draft];
        draft.spec = spec;
        draft.requests.insert(&group.request);
        draft.rows.push(index);
    }
    let mut taken = BTreeSet::new();
    let mut made = Vec::new();
    for draft in drafts {
        let group = draft.group;
        let origin =
            Origin { namespace: &group.namespace, name: &group.origin, is_template: group.is_template };
        let manifest = manifest::object(origin, draft.spec, &mut taken);
        for index in draft.rows {
            rows[index].0.manifest = Some(manifest.title());
        }
        made.push(manifest);
    }
    made
}
