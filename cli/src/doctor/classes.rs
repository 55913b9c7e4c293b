//! Selectors: of DeviceClasses, and of claims that are to get devices.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{DeviceClaim, DeviceSelector};
use tessera_api::{DeviceName, attribute};
use tessera_cel::{EvaluationError, Selector};

use super::published::{Class, Sample};
use super::{Facts, Finding, error, warning};
use crate::devices;

/// Selectors that match nothing, match partitions by accident, or fail on a device.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let looked = Looked { driver: facts.driver, samples: facts.published.samples() };
    if looked.samples.is_empty() {
        // Nobody publishes anything yet.
        return Vec::new();
    }
    let mut found: Vec<Finding> =
        facts.published.classes().iter().filter_map(|class| looked.of_class(class)).collect();
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

struct Looked<'l> {
    driver: &'l str,
    /// A device of each kind: those of one kind have the same attributes, but for the values of some.
    samples: &'l [Sample],
}

impl Looked<'_> {
    fn of_class(&self, class: &Class) -> Option<Finding> {
        let about = format!("DeviceClass {}", class.name);
        let selectors = match &class.selectors {
            Ok(selectors) => selectors,
            Err(wrong) => {
                return Some(error(
                    about,
                    format!("its selector is wrong: {wrong}"),
                    "correct it; kubectl gpu cel EXPRESSION tries one",
                ));
            }
        };
        if let Some(failure) = self.failure(selectors) {
            return Some(failure.told(about, "pods that ask for it"));
        }
        if !class.is_matched {
            return Some(warning(
                about,
                "no device matches it: pods that ask for it wait",
                format!(
                    "kubectl gpu cel '{}' -v says which devices fail it and where",
                    class.expressions.join(" && ")
                ),
            ));
        }
        self.by_accident(about, selectors)
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

    /// The first of the driver's devices on which the selectors fail.
    fn failure(&self, selectors: &[Selector]) -> Option<Failure<'_>> {
        self.of_driver().find_map(|sample| {
            let device = devices::of_published(&sample.driver, &sample.device).ok()?;
            for selector in selectors {
                match selector.matches(&device) {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => return Some(Failure { sample, error }),
                }
            }
            None
        })
    }

    fn of_driver(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|sample| sample.driver == self.driver)
    }

    /// A class for cards that does not say so gets partitions, where cards can be partitioned: they come first.
    fn by_accident(&self, about: String, selectors: &[Selector]) -> Option<Finding> {
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
        let is_matched = |sample: &&Sample| {
            devices::of_published(driver, &sample.device)
                .is_ok_and(|device| devices::all_match(selectors, &device))
        };
        let matched: Vec<&Sample> = self.of_driver().filter(is_matched).collect();
        let types: BTreeSet<&str> = matched.iter().filter_map(|sample| type_of(sample)).collect();
        let other = matched.iter().find(|sample| type_of(sample) != Some("gpu"))?;
        if !types.contains("gpu") {
            return None;
        }
        Some(warning(
            about,
            format!(
                "it asks for no type, and matches {}: who means a whole card may get {}",
                types.into_iter().map(told_type).collect::<Vec<_>>().join(", "),
                other.device.name
            ),
            format!(
                "add && device.attributes[\"{driver}\"].?type.orValue(\"\") == \"gpu\" to its selector; or offer whole cards only, by a GpuPool with offer.partitioning.mode None (docs/gpu-pools.md)"
            ),
        ))
    }
}

/// A device on which selectors have no answer.
struct Failure<'p> {
    sample: &'p Sample,
    error: EvaluationError,
}

impl Failure<'_> {
    fn told(self, about: String, who: &str) -> Finding {
        let Failure { sample, error: wrong } = self;
        let (name, driver) = (&sample.device.name, &sample.driver);
        let is_partition = name.parse::<DeviceName>().is_ok_and(|name| name.partition().is_some());
        let kind = if is_partition { "partition " } else { "" };
        let what = format!(
            "its selector fails on {kind}{} of {} ({wrong}): kube-scheduler gives up on {who} when it comes by",
            name, sample.node
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

fn type_of(sample: &Sample) -> Option<&str> {
    sample.device.attributes.as_ref()?.get(attribute::TYPE)?.string.as_deref()
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
