//! Selectors of DeviceClasses, and of claims that are to get devices, tried on one published device after the other.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{Device, DeviceClaim, DeviceClass, DeviceSelector};
use tessera_api::kubernetes::KubernetesVersion;
use tessera_api::{DeviceName, attribute};
use tessera_cel::{EvaluationError, Selector};
use tessera_cluster::{ClaimExt, Key, Objects};

use crate::devices;

/// On claims that are made from a template, which is looked at itself.
const OF_TEMPLATE: &str = "resource.kubernetes.io/pod-claim-name";

/// Who asks for devices by selectors, and what came of it.
#[derive(Debug)]
pub struct Asked {
    /// `DeviceClass gpu`, `ResourceClaimTemplate team/gpu`, `claim team/gpu`.
    pub about: String,
    /// Whether it is a DeviceClass.
    pub is_class: bool,
    /// Whether nobody need have it: a class that comes with every installation, and that no claim or template names.
    pub may_match_nothing: bool,
    /// Its selectors; a claim's come after those of its class.
    pub expressions: Vec<String>,
    /// Them compiled, or the first line of why they cannot be.
    selectors: Result<Vec<Selector>, String>,
    /// How many of them are those of its class, of which the class itself is told.
    of_class: usize,
    /// Whether they ask what devices of one kind differ in.
    asks_for_own: bool,
    is_matched: bool,
    failure: Option<Failure>,
    types: BTreeSet<String>,
    other: Option<String>,
}

/// A device on which selectors have no answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name.
    pub device: String,
    /// Its node.
    pub node: Option<String>,
    /// Whether it is a partition, or a share of one.
    pub is_partition: bool,
    /// Why.
    pub error: EvaluationError,
}

/// What is to be said.
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
    /// They match cards and, without asking what a device is, others: a device of another type is named.
    ByAccident(&'a BTreeSet<String>, &'a str),
}

/// All that ask for devices of the driver, with selectors as kube-scheduler of this release reads them.
pub fn of_objects(objects: &Objects, driver: &str, kubernetes: KubernetesVersion) -> Vec<Asked> {
    let named = named_classes(objects);
    // Only classes that are about this driver: others' devices may come later.
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

/// Classes that templates and claims without devices name.
fn named_classes(objects: &Objects) -> BTreeSet<&str> {
    let of_templates =
        objects.templates.values().filter_map(|template| template.spec.as_ref()?.spec.as_ref());
    let waiting = objects.claims.values().filter(|claim| !claim.has_devices());
    let of_claims = waiting.filter_map(|claim| claim.spec.as_ref());
    let specs = of_templates.chain(of_claims).filter_map(|spec| spec.devices.as_ref());
    let requests = specs.flat_map(|devices| devices.requests.iter().flatten());
    let names = requests.flat_map(|request| {
        let exactly = request.exactly.iter().map(|exactly| exactly.device_class_name.as_str());
        let alternatives = request.first_available.iter().flatten();
        exactly.chain(alternatives.map(|alternative| alternative.device_class_name.as_str()))
    });
    names.collect()
}

/// Whether the class is one that every installation has, by the chart's label, or by its name where it was applied by hand.
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

/// A claim's own selectors are asked only of devices that its class matches.
fn of_claim(
    objects: &Objects,
    about: String,
    devices: Option<&DeviceClaim>,
    kubernetes: KubernetesVersion,
) -> Vec<Asked> {
    let requests = devices.and_then(|devices| devices.requests.as_deref()).unwrap_or_default();
    let asked = requests.iter().flat_map(|request| {
        let exactly = request.exactly.iter().map(|exactly| (&exactly.device_class_name, &exactly.selectors));
        let alternatives = request.first_available.iter().flatten();
        exactly
            .chain(alternatives.map(|alternative| (&alternative.device_class_name, &alternative.selectors)))
    });
    let of_one = asked.filter_map(|(class, own)| {
        let own = expressions(own.as_deref().unwrap_or_default());
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

    /// Whether a device may tell something new.
    pub fn is_open(&self, is_new_kind: bool) -> bool {
        self.selectors.is_ok() && (is_new_kind || (self.asks_for_own && !self.is_matched))
    }

    /// Tries a device; `is_ours` where it is one of the driver.
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

    /// What is to be said of it, for devices of this driver.
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

/// Whether the selector reads anything that tells cards from partitions and shares.
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
