//! The manifest for the advised device.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, CapacityRequirements, DeviceClaim, DeviceRequest, DeviceSelector, DeviceToleration,
    ExactDeviceRequest, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use tessera_api::{attribute, capacity};

use super::decide::Choice;
use super::offers::Kind;

/// Longest name of an object.
const LONGEST: usize = 253;

/// Suffix of the replacement's name: the specification of the original object cannot be changed.
const SUFFIX: &str = "-advised";

/// An object to apply.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Manifest {
    /// For pods whose claims are made from a template.
    Template(Box<ResourceClaimTemplate>),
    /// For a claim of its own.
    Claim(Box<ResourceClaim>),
}

/// The object replaced by a manifest.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'o> {
    /// Namespace of both.
    pub namespace: &'o str,
    /// Name of the template or claim.
    pub name: &'o str,
    /// Whether the object is a ResourceClaimTemplate.
    pub is_template: bool,
}

/// The specification with `choice` in place of a request. Of the request its name and tolerations stay: its class, selectors and
/// the configuration of its device are about another kind of device.
///
/// `None` where there is no DeviceClass to ask for.
pub fn changed(
    spec: Option<&ResourceClaimSpec>,
    request: &str,
    choice: &Choice,
    product: &str,
    driver: &str,
) -> Option<ResourceClaimSpec> {
    // `request/subrequest` of a request with alternatives.
    let request = request.split('/').next().unwrap_or(request);
    let mut spec = spec.cloned().unwrap_or_default();
    let devices = spec.devices.get_or_insert_default();
    let requests = devices.requests.get_or_insert_default();
    let tolerations = requests.iter().find(|known| known.name == request).and_then(tolerations);
    let exact = ExactDeviceRequest {
        device_class_name: choice.class.clone()?,
        selectors: Some(vec![DeviceSelector {
            cel: Some(CELDeviceSelector { expression: selector(&choice.kind, product, driver) }),
        }]),
        capacity: capacities(choice),
        tolerations,
        ..ExactDeviceRequest::default()
    };
    let wanted = DeviceRequest { name: request.to_owned(), exactly: Some(exact), ..DeviceRequest::default() };
    match requests.iter_mut().find(|known| known.name == request) {
        Some(known) => *known = wanted,
        None => requests.push(wanted),
    }
    without_configuration(devices, request, driver);
    Some(spec)
}

fn tolerations(request: &DeviceRequest) -> Option<Vec<DeviceToleration>> {
    let exactly = request.exactly.as_ref().and_then(|exactly| exactly.tolerations.clone());
    exactly.or_else(|| request.first_available.as_ref()?.first()?.tolerations.clone())
}

/// Takes the driver's configuration off the request.
fn without_configuration(devices: &mut DeviceClaim, request: &str, driver: &str) {
    let Some(all) = &mut devices.config else { return };
    let others: BTreeSet<String> = devices
        .requests
        .iter()
        .flatten()
        .filter(|other| other.name != request)
        .map(|other| other.name.clone())
        .collect();
    all.retain_mut(|config| {
        if config.opaque.as_ref().is_none_or(|opaque| opaque.driver != driver) {
            return true;
        }
        // No name stands for all requests.
        let named = config.requests.get_or_insert_default();
        if named.is_empty() {
            named.extend(others.iter().cloned());
        }
        named.retain(|named| named.split('/').next() != Some(request));
        !named.is_empty()
    });
    if all.is_empty() {
        devices.config = None;
    }
}

/// Of this model only, since the use of others would be another.
fn selector(kind: &Kind, product: &str, driver: &str) -> String {
    let attributes = format!("device.attributes[{}]", literal(driver));
    let is = |name: &str, value: &str| format!("{attributes}.?{name}.orValue(\"\") == {}", literal(value));
    let mut parts = Vec::new();
    match kind {
        Kind::Partition { profile } | Kind::MpsShare { profile: Some(profile) } => {
            parts.push(is(attribute::PROFILE, profile));
        }
        Kind::MpsShare { profile: None } => {
            parts.push(format!("!({} in {attributes})", literal(attribute::PROFILE)));
        }
        Kind::Card | Kind::TimeSlice { .. } => {}
    }
    if !product.is_empty() || parts.is_empty() {
        parts.push(is(attribute::PRODUCT_NAME, product));
    }
    parts.join(" && ")
}

/// A text of CEL.
fn literal(text: &str) -> String {
    let mut literal = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => literal.extend(['\\', letter]),
            letter if letter.is_control() => {
                literal.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => literal.push(letter),
        }
    }
    literal.push('"');
    literal
}

fn capacities(choice: &Choice) -> Option<CapacityRequirements> {
    let compute = choice.compute?;
    let requests = BTreeMap::from([
        (capacity::MEMORY.to_owned(), Quantity(format!("{}Mi", choice.memory_mib))),
        (capacity::COMPUTE.to_owned(), Quantity(compute.to_string())),
    ]);
    Some(CapacityRequirements { requests: Some(requests) })
}

/// The object, under a name not in `taken`; the name is added there.
pub fn object(
    origin: Origin<'_>,
    spec: ResourceClaimSpec,
    taken: &mut BTreeSet<(String, String)>,
) -> Manifest {
    let mut number = 1;
    let name = loop {
        let suffix = if number == 1 { SUFFIX.to_owned() } else { format!("{SUFFIX}-{number}") };
        let cut: String = origin.name.chars().take(LONGEST - suffix.len()).collect();
        let name = format!("{}{suffix}", cut.trim_end_matches(['-', '.']));
        if taken.insert((origin.namespace.to_owned(), name.clone())) {
            break name;
        }
        number += 1;
    };
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: Some(origin.namespace.to_owned()),
        ..ObjectMeta::default()
    };
    if origin.is_template {
        Manifest::Template(Box::new(ResourceClaimTemplate {
            metadata,
            spec: Some(ResourceClaimTemplateSpec { metadata: None, spec: Some(spec) }),
        }))
    } else {
        Manifest::Claim(Box::new(ResourceClaim { metadata, spec: Some(spec), status: None }))
    }
}

impl Manifest {
    /// Kind and name.
    pub fn title(&self) -> String {
        let kind = match self {
            Manifest::Template(_) => "ResourceClaimTemplate",
            Manifest::Claim(_) => "ResourceClaim",
        };
        format!("{kind} {}", self.metadata().name.as_deref().unwrap_or_default())
    }

    /// Its namespace.
    pub fn namespace(&self) -> Option<&String> {
        self.metadata().namespace.as_ref()
    }

    fn metadata(&self) -> &ObjectMeta {
        match self {
            Manifest::Template(template) => &template.metadata,
            Manifest::Claim(claim) => &claim.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn choice(kind: Kind, compute: Option<u32>) -> Choice {
        Choice {
            kind,
            memory_mib: 7296,
            compute,
            worth: 0.1,
            class: Some("class".to_owned()),
            bursts_held_to: None,
        }
    }

    #[test]
    fn one_request_changes_and_the_others_stay() {
        let spec: ResourceClaimSpec = serde_json::from_value(json!({ "devices": {
            "requests": [
                { "name": "nic", "exactly": { "deviceClassName": "nic" } },
                { "name": "gpu", "exactly": { "deviceClassName": "gpu.tessera.dev", "count": 1,
                    "tolerations": [{ "key": "team", "operator": "Exists" }],
                    "selectors": [{ "cel": { "expression": "true" } }] } },
            ],
            "constraints": [{ "matchAttribute": "resource.kubernetes.io/pcieRoot" }],
            "config": [
                { "opaque": { "driver": "gpu.tessera.dev", "parameters": {} } },
                { "requests": ["gpu"], "opaque": { "driver": "gpu.tessera.dev", "parameters": {} } },
                { "requests": ["nic"], "opaque": { "driver": "nic", "parameters": {} } },
            ],
        } }))
        .unwrap();
        let share = choice(Kind::MpsShare { profile: None }, Some(10));
        let changed = changed(Some(&spec), "gpu", &share, "A \"B\" \\", "gpu.tessera.dev").unwrap();
        let expression = "!(\"profile\" in device.attributes[\"gpu.tessera.dev\"]) && \
             device.attributes[\"gpu.tessera.dev\"].?productName.orValue(\"\") == \"A \\\"B\\\" \\\\\"";
        assert_eq!(
            serde_json::to_value(&changed).unwrap(),
            json!({ "devices": {
                "requests": [
                    { "name": "nic", "exactly": { "deviceClassName": "nic" } },
                    { "name": "gpu", "exactly": { "deviceClassName": "class",
                        "capacity": { "requests": { "compute": "10", "memory": "7296Mi" } },
                        "tolerations": [{ "key": "team", "operator": "Exists" }],
                        "selectors": [{ "cel": { "expression": expression } }] } },
                ],
                "constraints": [{ "matchAttribute": "resource.kubernetes.io/pcieRoot" }],
                "config": [
                    { "requests": ["nic"], "opaque": { "driver": "gpu.tessera.dev", "parameters": {} } },
                    { "requests": ["nic"], "opaque": { "driver": "nic", "parameters": {} } },
                ],
            } })
        );
        assert!(tessera_cel::Selector::compile(expression).is_ok());
    }

    #[test]
    fn names_are_valid_and_differ() {
        let mut taken = BTreeSet::new();
        let long = "a".repeat(244) + ".-b";
        for (name, wanted) in [
            ("train", "train-advised".to_owned()),
            ("train", "train-advised-2".to_owned()),
            (&long, format!("{}-advised", "a".repeat(244))),
        ] {
            let origin = Origin { namespace: "n", name, is_template: true };
            let made = object(origin, ResourceClaimSpec::default(), &mut taken).title();
            assert_eq!(made, format!("ResourceClaimTemplate {wanted}"));
        }
    }

    #[test]
    fn without_a_class_there_is_nothing_to_ask_for() {
        let partition = Choice { class: None, ..choice(Kind::Card, None) };
        assert_eq!(changed(None, "gpu", &partition, "A", "gpu.tessera.dev"), None);
    }
}
