//! Selectors: of DeviceClasses, and of claims that are to get devices.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{DeviceClaim, DeviceSelector};
use tessera_api::{DeviceName, attribute};
use tessera_cel::{EvaluationError, Selector};

use super::{Facts, Finding, error, warning};
use crate::devices::{self, Place};

/// Selectors that match nothing, match partitions by accident, or fail on a device.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let places = devices::devices(facts.objects.slices.values());
    if places.is_empty() {
        return Vec::new();
    }
    let looked = Looked { driver: facts.driver, kinds: devices::kinds(&places), places: &places };
    let mut found = Vec::new();
    for ((_, name), class) in &facts.objects.classes {
        let selectors = class.spec.as_ref().and_then(|spec| spec.selectors.as_deref()).unwrap_or_default();
        found.extend(looked.of_class(name, &expressions(selectors)));
    }
    for ((namespace, name), template) in &facts.objects.templates {
        let spec = template.spec.as_ref().and_then(|spec| spec.spec.as_ref());
        let devices = spec.and_then(|spec| spec.devices.as_ref());
        found.extend(looked.of_claim(facts, &format!("ResourceClaimTemplate {namespace}/{name}"), devices));
    }
    let waiting = facts.objects.claims.iter().filter(|(_, claim)| {
        let is_generated =
            claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(OF_TEMPLATE));
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        allocation.is_none() && !is_generated
    });
    for ((namespace, name), claim) in waiting {
        let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
        found.extend(looked.of_claim(facts, &format!("claim {namespace}/{name}"), devices));
    }
    found
}

/// On claims that are made from a template, which is looked at itself.
const OF_TEMPLATE: &str = "resource.kubernetes.io/pod-claim-name";

struct Looked<'l, 's> {
    driver: &'l str,
    places: &'l [Place<'s>],
    kinds: Vec<&'l Place<'s>>,
}

impl Looked<'_, '_> {
    fn of_class(&self, name: &str, expressions: &[&str]) -> Option<Finding> {
        // Only classes that are about this driver: others' devices may come later.
        if !expressions.iter().any(|expression| expression.contains(self.driver)) {
            return None;
        }
        let about = format!("DeviceClass {name}");
        let selectors = match compiled(expressions) {
            Ok(selectors) => selectors,
            Err(wrong) => {
                return Some(error(
                    about,
                    format!("its selector is wrong: {wrong}"),
                    "correct it; kubectl gpu cel EXPRESSION tries one",
                ));
            }
        };
        if let Some(failure) = self.failure(&selectors) {
            return Some(failure.told(about, "pods that ask for it"));
        }
        let matched = self.matched(&selectors);
        if matched.is_empty() {
            return Some(warning(
                about,
                "no device matches it: pods that ask for it wait",
                format!(
                    "kubectl gpu cel '{}' -v says which devices fail it and where",
                    expressions.join(" && ")
                ),
            ));
        }
        self.by_accident(about, &selectors, &matched)
    }

    /// The claim's own selectors are asked only of devices that their class matches.
    fn of_claim(&self, facts: &Facts<'_>, about: &str, devices: Option<&DeviceClaim>) -> Option<Finding> {
        let requests = devices.and_then(|devices| devices.requests.as_deref()).unwrap_or_default();
        let asked = requests.iter().flat_map(|request| {
            let exactly = request.exactly.iter().map(|exactly| {
                (exactly.device_class_name.as_str(), exactly.selectors.as_deref().unwrap_or_default())
            });
            let alternatives = request.first_available.iter().flatten().map(|alternative| {
                (alternative.device_class_name.as_str(), alternative.selectors.as_deref().unwrap_or_default())
            });
            exactly.chain(alternatives)
        });
        for (class, own) in asked.filter(|(_, own)| !own.is_empty()) {
            let Some(class) = facts.objects.classes.get(&(String::new(), class.to_owned())) else { continue };
            let of_class = class.spec.as_ref().and_then(|spec| spec.selectors.as_deref()).unwrap_or_default();
            let (Ok(of_class), Ok(own)) = (compiled(&expressions(of_class)), compiled(&expressions(own)))
            else {
                continue;
            };
            // What fails already by the class is told of the class.
            if self.failure(&of_class).is_none()
                && let Some(failure) = self.failure(&[of_class, own].concat())
            {
                return Some(failure.told(about.to_owned(), "its pods"));
            }
        }
        None
    }

    /// The devices to ask: one of each kind, unless the selectors ask what those of one kind differ in.
    fn asked<'a>(&'a self, selectors: &[Selector]) -> Box<dyn Iterator<Item = &'a Place<'a>> + 'a> {
        if selectors.iter().any(|selector| devices::asks_for_own(selector.source())) {
            return Box::new(self.places.iter());
        }
        Box::new(self.kinds.iter().copied())
    }

    fn matched<'a>(&'a self, selectors: &[Selector]) -> Vec<&'a Place<'a>> {
        self.asked(selectors).filter(|place| devices::matches(selectors, place)).collect()
    }

    /// The first device on which the selectors fail.
    fn failure<'a>(&'a self, selectors: &[Selector]) -> Option<Failure<'a>> {
        self.asked(selectors).filter(|place| place.id.driver == self.driver).find_map(|place| {
            let device = devices::of_place(place).ok()?;
            for selector in selectors {
                match selector.matches(&device) {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => return Some(Failure { place, error, driver: place.id.driver.clone() }),
                }
            }
            None
        })
    }

    /// A class for cards that does not say so gets partitions, where cards can be partitioned: they come first.
    fn by_accident(&self, about: String, selectors: &[Selector], matched: &[&Place<'_>]) -> Option<Finding> {
        let driver = self.driver;
        let asks_what_it_is = |selector: &Selector| {
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
        };
        if selectors.iter().any(asks_what_it_is) {
            return None;
        }
        let of_driver = || matched.iter().filter(|place| place.id.driver == driver);
        let types: BTreeSet<&str> = of_driver().filter_map(|place| type_of(place)).collect();
        let other = of_driver().find(|place| type_of(place) != Some("gpu"))?;
        if !types.contains("gpu") {
            return None;
        }
        Some(warning(
            about,
            format!(
                "it asks for no type, and matches {}: who means a whole card may get {}",
                types.into_iter().map(told_type).collect::<Vec<_>>().join(", "),
                other.id.device
            ),
            format!(
                "add && device.attributes[\"{driver}\"].?type.orValue(\"\") == \"gpu\" to its selector; or offer whole cards only, by a GpuPool with offer.partitioning.mode None (docs/gpu-pools.md)"
            ),
        ))
    }
}

/// A device on which selectors have no answer.
struct Failure<'p> {
    place: &'p Place<'p>,
    driver: String,
    error: EvaluationError,
}

impl Failure<'_> {
    fn told(self, about: String, who: &str) -> Finding {
        let Failure { place, driver, error: wrong } = self;
        let is_partition = place.id.device.parse::<DeviceName>().is_ok_and(|name| name.partition().is_some());
        let kind = if is_partition { "partition " } else { "" };
        let what = format!(
            "its selector fails on {kind}{} of {} ({wrong}): kube-scheduler gives up on {who} when it comes by",
            place.id.device,
            place.node()
        );
        let wrong = wrong.to_string();
        let guarded = wrong.strip_prefix("no such key: ").map_or_else(
            || "guard it: kubectl gpu cel EXPRESSION --device NAME says which part fails".to_owned(),
            |key| {
                format!("write device.attributes[\"{driver}\"].?{key}.orValue(\"\") in place of device.attributes[\"{driver}\"].{key}")
            },
        );
        let or_else = if is_partition {
            "; or offer no partitions there, by a GpuPool with offer.partitioning.mode None (docs/gpu-pools.md)"
        } else {
            ""
        };
        error(about, what, guarded + or_else)
    }
}

fn expressions(selectors: &[DeviceSelector]) -> Vec<&str> {
    selectors.iter().filter_map(|selector| Some(selector.cel.as_ref()?.expression.as_str())).collect()
}

fn compiled(expressions: &[&str]) -> Result<Vec<Selector>, String> {
    let compile = |expression: &&str| {
        Selector::compile(expression)
            .map_err(|wrong| wrong.to_string().lines().next().unwrap_or_default().to_owned())
    };
    expressions.iter().map(compile).collect()
}

fn type_of<'p>(place: &'p Place<'_>) -> Option<&'p str> {
    place.device.attributes.as_ref()?.get(attribute::TYPE)?.string.as_deref()
}

fn told_type(name: &str) -> &str {
    match name {
        "gpu" => "whole cards",
        "mig" => "partitions",
        "mps" => "shares by MPS",
        "timeslice" => "time-slices",
        other => other,
    }
}
