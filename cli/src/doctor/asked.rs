//! Selectors of DeviceClasses and unallocated claims, evaluated on one published device after another.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{Device, DeviceClaim, DeviceClass, DeviceSelector};
use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::{DeviceName, attribute};
use tessera_cel::{EvaluationError, Selector};
use tessera_cluster::{ClaimExt, DeviceClaimExt, Key, Objects};

use crate::devices;

/// Annotation on claims made from a template; the template itself is checked instead.
const OF_TEMPLATE: &str = "resource.kubernetes.io/pod-claim-name";

/// A selector's owner and the results of its evaluation.
#[derive(Debug)]
pub struct Asked {
    /// `DeviceClass gpu`, `ResourceClaimTemplate team/gpu`, `claim team/gpu`.
    pub about: String,
    /// Whether the owner is a DeviceClass.
    pub is_class: bool,
    /// Whether missing matches are fine: a class of every installation, not named by any claim or template.
    pub may_match_nothing: bool,
    /// The selectors; a claim's follow its class's.
    pub expressions: Vec<String>,
    /// Them compiled, or the first line of why they cannot be.
    selectors: Result<Vec<Selector>, String>,
    /// Number of selectors from the class; their problems are reported for the class itself.
    of_class: usize,
    /// Whether any selector reads attributes with different values among devices of one kind.
    asks_for_own: bool,
    is_matched: bool,
    failure: Option<Failure>,
    types: BTreeSet<String>,
    other: Option<String>,
}

/// A device for which a selector's evaluation fails.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name.
    pub device: String,
    /// Its node.
    pub node: Option<String>,
    /// Whether the device is a partition, or a share of one.
    pub is_partition: bool,
    /// Why.
    pub error: EvaluationError,
}

/// The result to report.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Nothing.
    Well,
    /// A selector cannot be compiled, and why.
    Wrong(&'a str),
    /// They fail on a device.
    Fails(&'a Failure),
    /// No device matches.
    Nothing,
    /// They match cards and, without selecting a type, other devices: one of another type is named.
    ByAccident(&'a BTreeSet<String>, &'a str),
}

/// All owners of selectors for devices of the driver, compiled as by kube-scheduler of this release.
pub fn of_objects(objects: &Objects, driver: &str, kubernetes: KubernetesVersion) -> Vec<Asked> {
    let named = named_classes(objects);
    // Only classes naming this driver: devices of other drivers may come later.
    let classes = objects.classes.iter().filter_map(|(Key { name, .. }, class)| {
        let expressions = of_class(class);
        let is_about = expressions.iter().any(|expression| expression.contains(driver));
        let may_match_nothing = comes_with_chart(name, class, driver) && !named.contains(name.as_str());
        is_about.then(|| Asked {
            may_match_nothing,
            ..Asked::new(format!("DeviceClass {name}"), expressions, None, kubernetes)
        })
    });
    let templates = objects.templates.iter().flat_map(|(key, template)| {
        let spec = template.spec.as_ref().and_then(|spec| spec.spec.as_ref());
        let about = format!("ResourceClaimTemplate {key}");
        of_claim(objects, about, spec.and_then(|spec| spec.devices.as_ref()), kubernetes)
    });
    let waiting = objects.claims.iter().filter(|(_, claim)| {
        let annotations = claim.metadata.annotations.as_ref();
        !claim.has_devices() && !annotations.is_some_and(|all| all.contains_key(OF_TEMPLATE))
    });
    let claims = waiting.flat_map(|(key, claim)| {
        let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
        of_claim(objects, format!("claim {key}"), devices, kubernetes)
    });
    classes.chain(templates).chain(claims).collect()
}

/// Classes named by templates and unallocated claims.
fn named_classes(objects: &Objects) -> BTreeSet<&str> {
    let of_templates =
        objects.templates.values().filter_map(|template| template.spec.as_ref()?.spec.as_ref());
    let waiting = objects.claims.values().filter(|claim| !claim.has_devices());
    let of_claims = waiting.filter_map(|claim| claim.spec.as_ref());
    let devices = of_templates.chain(of_claims).filter_map(|spec| spec.devices.as_ref());
    devices.flat_map(DeviceClaimExt::asked).map(|(class, _)| class).collect()
}

/// Whether the class belongs to every installation, by the chart's label, or by its name if applied by hand.
fn comes_with_chart(name: &str, class: &DeviceClass, driver: &str) -> bool {
    let labels = class.metadata.labels.as_ref();
    let is_of_chart = labels.is_some_and(|all| {
        all.get("app.kubernetes.io/name").is_some_and(|value| value == "tessera")
            && all.get("app.kubernetes.io/managed-by").is_some_and(|value| value == "Helm")
    });
    let kinds = ["mig", "mps", "timeslice"];
    is_of_chart || name == driver || kinds.iter().any(|kind| *name == format!("{kind}.{driver}"))
}

fn of_class(class: &DeviceClass) -> Vec<String> {
    class.spec.iter().flat_map(|spec| expressions(spec.selectors.as_deref().unwrap_or_default())).collect()
}

fn expressions(selectors: &[DeviceSelector]) -> Vec<String> {
    selectors.iter().filter_map(|selector| Some(selector.cel.as_ref()?.expression.clone())).collect()
}

/// A claim's own selectors are evaluated only on devices matched by its class.
fn of_claim(
    objects: &Objects,
    about: String,
    devices: Option<&DeviceClaim>,
    kubernetes: KubernetesVersion,
) -> Vec<Asked> {
    let of_one = devices.into_iter().flat_map(DeviceClaimExt::asked).filter_map(|(class, own)| {
        let own = expressions(own);
        let class = objects.classes.get(&Key::cluster(class)).filter(|_| !own.is_empty())?;
        let of_class = of_class(class);
        let count = of_class.len();
        Some(Asked::new(about.clone(), [of_class, own].concat(), Some(count), kubernetes))
    });
    of_one.collect()
}

impl Asked {
    /// `of_class`: for a claim, how many of the expressions are its class's.
    fn new(
        about: String,
        expressions: Vec<String>,
        of_class: Option<usize>,
        kubernetes: KubernetesVersion,
    ) -> Self {
        let compile = |expression: &String| Selector::compile_with(expression, kubernetes.into());
        let compiled: Result<Vec<Selector>, _> = expressions.iter().map(compile).collect();
        Asked {
            about,
            is_class: of_class.is_none(),
            may_match_nothing: false,
            asks_for_own: expressions.iter().any(|expression| devices::asks_for_own(expression)),
            expressions,
            selectors: compiled
                .map_err(|wrong| wrong.to_string().lines().next().unwrap_or_default().to_owned()),
            of_class: of_class.unwrap_or_default(),
            is_matched: false,
            failure: None,
            types: BTreeSet::new(),
            other: None,
        }
    }

    /// Whether evaluating a device may change the result.
    pub fn is_open(&self, is_new_kind: bool) -> bool {
        self.selectors.is_ok() && (is_new_kind || (self.asks_for_own && !self.is_matched))
    }

    /// Evaluates the selectors on a device; `is_ours` marks a device of the driver.
    pub fn try_on(
        &mut self,
        device: &Device,
        node: Option<&str>,
        evaluated: &tessera_cel::Device,
        is_ours: bool,
    ) {
        let Ok(selectors) = &self.selectors else { return };
        for (index, selector) in selectors.iter().enumerate() {
            match selector.matches(evaluated) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    if is_ours && index >= self.of_class && self.failure.is_none() {
                        let name = device.name.parse::<DeviceName>();
                        self.failure = Some(Failure {
                            device: device.name.clone(),
                            node: node.map(str::to_owned),
                            is_partition: name.is_ok_and(|name| name.partition().is_some()),
                            error,
                        });
                    }
                    return;
                }
            }
        }
        self.is_matched = true;
        let attributes = device.attributes.as_ref();
        if let Some(of) =
            attributes.and_then(|all| all.get(attribute::TYPE)?.string.clone()).filter(|_| is_ours)
        {
            if of != "gpu" && self.other.is_none() {
                self.other = Some(device.name.clone());
            }
            self.types.insert(of);
        }
    }

    /// The verdict for devices of this driver.
    pub fn verdict(&self, driver: &str) -> Verdict<'_> {
        let selectors = match &self.selectors {
            Err(wrong) => return Verdict::Wrong(wrong),
            Ok(selectors) => selectors,
        };
        match (&self.failure, &self.other) {
            (Some(failure), _) => Verdict::Fails(failure),
            _ if !self.is_matched => Verdict::Nothing,
            (None, Some(other))
                if self.types.contains("gpu")
                    && !selectors.iter().any(|all| asks_what_it_is(all, driver)) =>
            {
                Verdict::ByAccident(&self.types, other)
            }
            _ => Verdict::Well,
        }
    }
}

/// Whether the selector reads any property distinguishing cards from partitions and shares.
fn asks_what_it_is(selector: &Selector, driver: &str) -> bool {
    let reads = selector.reads();
    let names = |name: &str| reads.attributes.contains(&(driver.to_owned(), name.to_owned()));
    names(attribute::TYPE)
        || names(attribute::PROFILE)
        || reads.attribute_domains.contains(driver)
        || reads.all_attributes
        || reads.all_capacity
        || reads.allow_multiple_allocations
        || !reads.capacity.is_empty()
        || !reads.capacity_domains.is_empty()
}
