//! Claims and classes.

use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceSelector, DeviceSubRequest, ExactDeviceRequest, ResourceClaim,
};

use super::ConvertError;
use crate::amount::Amount;
use crate::claim::{Ask, Claim, ClaimConfiguration, Class, Constraint, DeviceRequest, Request, Rule};

type Selectors = Vec<Option<std::sync::Arc<str>>>;

fn selectors(all: Option<&Vec<DeviceSelector>>) -> Selectors {
    all.into_iter()
        .flatten()
        .map(|selector| selector.cel.as_ref().map(|cel| cel.expression.as_str().into()))
        .collect()
}

fn capacity(
    capacity: Option<&CapacityRequirements>,
    request: &str,
) -> Result<Option<Vec<(String, Amount)>>, ConvertError> {
    let Some(capacity) = capacity else { return Ok(None) };
    let requests = capacity.requests.iter().flatten();
    requests
        .map(|(name, quantity)| match Amount::parse(&quantity.0) {
            Ok(amount) => Ok((name.clone(), amount)),
            Err(reason) => Err(ConvertError::Quantity {
                at: format!("request {request}, capacity {name}, {:?}", quantity.0),
                reason,
            }),
        })
        .collect::<Result<_, _>>()
        .map(Some)
}

fn exactly(name: &str, request: &ExactDeviceRequest) -> Result<DeviceRequest, ConvertError> {
    Ok(DeviceRequest {
        name: name.to_owned(),
        class: request.device_class_name.clone(),
        selectors: selectors(request.selectors.as_ref()),
        allocation_mode: request.allocation_mode.clone().unwrap_or_default(),
        count: request.count.unwrap_or(0),
        admin_access: request.admin_access,
        tolerations: request.tolerations.clone().unwrap_or_default(),
        capacity: capacity(request.capacity.as_ref(), name)?,
        has_derived_attributes: request.derived_attributes.as_ref().is_some_and(|all| !all.is_empty()),
    })
}

fn alternative(request: &DeviceSubRequest) -> Result<DeviceRequest, ConvertError> {
    Ok(DeviceRequest {
        name: request.name.clone(),
        class: request.device_class_name.clone(),
        selectors: selectors(request.selectors.as_ref()),
        allocation_mode: request.allocation_mode.clone().unwrap_or_default(),
        count: request.count.unwrap_or(0),
        admin_access: None,
        tolerations: request.tolerations.clone().unwrap_or_default(),
        capacity: capacity(request.capacity.as_ref(), &request.name)?,
        has_derived_attributes: request.derived_attributes.as_ref().is_some_and(|all| !all.is_empty()),
    })
}

impl TryFrom<&ResourceClaim> for Claim {
    type Error = ConvertError;

    fn try_from(claim: &ResourceClaim) -> Result<Self, ConvertError> {
        let mut converted = Claim {
            namespace: claim.metadata.namespace.clone().unwrap_or_default(),
            name: claim.metadata.name.clone().unwrap_or_default(),
            ..Claim::default()
        };
        let Some(devices) = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()) else {
            return Ok(converted);
        };
        for request in devices.requests.iter().flatten() {
            let alternatives = request.first_available.as_deref().unwrap_or_default();
            let ask = match (&request.exactly, alternatives) {
                (_, [_, ..]) => {
                    Ask::FirstAvailable(alternatives.iter().map(alternative).collect::<Result<_, _>>()?)
                }
                (Some(request_exactly), []) => Ask::Exactly(exactly(&request.name, request_exactly)?),
                (None, []) => Ask::Unknown,
            };
            converted.requests.push(Request { name: request.name.clone(), ask });
        }
        for constraint in devices.constraints.iter().flatten() {
            let rule = match (&constraint.match_attribute, &constraint.distinct_attribute) {
                (Some(attribute), _) => Rule::MatchAttribute(attribute.clone()),
                (None, Some(attribute)) => Rule::DistinctAttribute(attribute.clone()),
                (None, None) => Rule::Unknown,
            };
            let requests = constraint.requests.clone().unwrap_or_default();
            converted.constraints.push(Constraint { requests, rule });
        }
        for config in devices.config.iter().flatten() {
            converted.config.push(ClaimConfiguration {
                requests: config.requests.clone().unwrap_or_default(),
                opaque: config.opaque.clone(),
            });
        }
        Ok(converted)
    }
}

impl From<&DeviceClass> for Class {
    fn from(class: &DeviceClass) -> Self {
        let spec = class.spec.as_ref();
        Class {
            name: class.metadata.name.clone().unwrap_or_default(),
            selectors: selectors(spec.and_then(|spec| spec.selectors.as_ref())),
            config: spec
                .and_then(|spec| spec.config.as_ref())
                .into_iter()
                .flatten()
                .map(|config| config.opaque.clone())
                .collect(),
        }
    }
}
