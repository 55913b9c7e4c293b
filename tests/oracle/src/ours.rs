//! This crate's answer to a line of the allocate protocol, and how two answers are compared.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde::Deserialize;
use serde_json::{Value, json};
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::features::Features;
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::node::Node;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;
use tessera_api::Quantity;
use tessera_api::kubernetes::KubernetesVersion;

#[derive(Deserialize)]
struct Line {
    features: Option<Vec<String>>,
    node: Option<core::Node>,
    slices: Option<Vec<ResourceSlice>>,
    classes: Option<Vec<DeviceClass>>,
    allocated: Option<Vec<ResourceClaim>>,
    claims: Option<Vec<ResourceClaim>>,
}

/// Our answer as of the newest release, in the form of the protocol. `patience` other than the default makes the search
/// leave out more or less.
pub fn answer(request: &Value, selectors: &mut SelectorCache, patience: Option<u64>) -> Value {
    answer_as(KubernetesVersion::default(), request, selectors, patience)
}

/// [`answer`] as of a release.
pub fn answer_as(
    version: KubernetesVersion,
    request: &Value,
    selectors: &mut SelectorCache,
    patience: Option<u64>,
) -> Value {
    answer_with(request, selectors, |allocator| {
        *allocator = allocator.answering_as(version);
        allocator.patience = patience.unwrap_or(allocator.patience);
    })
}

/// Our answer, by an allocator changed by `configure`.
pub fn answer_with(
    request: &Value,
    selectors: &mut SelectorCache,
    configure: impl FnOnce(&mut Allocator<'_>),
) -> Value {
    match try_answer(request, selectors, configure) {
        Ok(allocations) => json!({ "allocations": allocations }),
        Err(error) => json!({ "allocations": null, "error": error }),
    }
}

fn try_answer(
    request: &Value,
    selectors: &mut SelectorCache,
    configure: impl FnOnce(&mut Allocator<'_>),
) -> Result<Value, String> {
    let case = Case::read(request)?;
    let mut allocator = Allocator::new(&case.inventory, &case.held, &case.classes);
    allocator.features = case.features;
    configure(&mut allocator);
    let allocations = allocator
        .allocate(&case.node, &case.claims, selectors, &mut share_ids())
        .map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(allocations).expect("allocations are JSON"))
}

/// A line of the allocate protocol, read.
pub struct Case {
    /// All devices.
    pub inventory: Inventory,
    /// Allocated devices.
    pub held: Held,
    /// All classes.
    pub classes: Classes,
    /// The claims to allocate.
    pub claims: Vec<Claim>,
    /// The node.
    pub node: Node,
    /// Enabled gates.
    pub features: Features,
}

impl Case {
    /// Reads a line.
    ///
    /// # Errors
    /// The line is not of the protocol, or has an invalid quantity.
    pub fn read(request: &Value) -> Result<Self, String> {
        let line: Line =
            serde_json::from_value(request.clone()).map_err(|error| format!("bad request: {error}"))?;
        let mut features = Features::default();
        if let Some(names) = &line.features {
            features = Features::NONE;
            for name in names {
                features.enable(name)?;
            }
        }
        let text = |error: tessera_allocator::convert::ConvertError| format!("bad request: {error}");
        let mut inventory = Inventory::new();
        for slice in line.slices.iter().flatten() {
            inventory.add(slice).map_err(text)?;
        }
        let mut held = Held::new();
        for claim in line.allocated.iter().flatten() {
            held.add(&inventory, claim).map_err(text)?;
        }
        Ok(Case {
            inventory,
            held,
            classes: line.classes.iter().flatten().map(Class::from).collect(),
            claims: line
                .claims
                .iter()
                .flatten()
                .map(Claim::try_from)
                .collect::<Result<_, _>>()
                .map_err(text)?,
            node: line.node.as_ref().map(Node::from).unwrap_or_default(),
            features,
        })
    }
}

/// Ids of shares: `share-1`, `share-2` and so on.
pub fn share_ids() -> impl FnMut() -> String {
    let mut shares = 0;
    move || {
        shares += 1;
        format!("share-{shares}")
    }
}

/// Texts of errors not compared to the letter: upstream's syntax errors, and errors where Go prints
/// addresses or whole objects.
fn comparable_error(text: &str) -> String {
    for cut in ["panic:", "CEL compile error:", "gather pool information:", "failed to parse node selector"] {
        if let Some(place) = text.find(cut) {
            return text[..place + cut.len()].to_owned();
        }
    }
    if text.ends_with("unsupported attribute value") {
        return "unsupported attribute value".to_owned();
    }
    text.to_owned()
}

/// The compared part of an answer.
pub fn comparable(answer: &Value) -> Value {
    let mut comparable = json!({});
    if let Some(error) = answer.get("error").and_then(Value::as_str) {
        comparable["error"] = json!(comparable_error(error));
    }
    comparable["allocations"] = match answer.get("allocations") {
        Some(Value::Array(all)) => json!(all.iter().map(without_empty).collect::<Vec<_>>()),
        _ => Value::Null,
    };
    comparable
}

fn without_empty(value: &Value) -> Value {
    match value {
        Value::Array(all) => json!(all.iter().map(without_empty).collect::<Vec<_>>()),
        Value::Object(all) => {
            let mut kept = serde_json::Map::new();
            for (key, value) in all {
                let value = match key.as_str() {
                    "shareID" => json!("is there"),
                    "consumedCapacity" => value
                        .as_object()
                        .map(|all| {
                            all.iter()
                                .map(|(name, quantity)| {
                                    let quantity = Quantity::parse(quantity.as_str().unwrap_or_default());
                                    (name.clone(), json!(quantity.map(|it| it.to_string()).ok()))
                                })
                                .collect()
                        })
                        .map_or(Value::Null, Value::Object),
                    // Opaque parameters are compared as they are.
                    "parameters" => value.clone(),
                    _ => without_empty(value),
                };
                let is_empty = match &value {
                    Value::Null => true,
                    Value::Array(all) => all.is_empty(),
                    Value::Object(all) => all.is_empty(),
                    _ => false,
                };
                if !is_empty {
                    kept.insert(key.clone(), value);
                }
            }
            Value::Object(kept)
        }
        other => other.clone(),
    }
}
