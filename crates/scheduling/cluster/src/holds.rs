//! Devices held by a claim whose JSON cannot be decoded as a whole.

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim,
    ResourceClaimConsumerReference, ResourceClaimStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;

/// The parts of a claim without user parameters. Fields not named here are skipped without decoding.
#[derive(Deserialize)]
struct Claim {
    metadata: Metadata,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    allocation: Allocation,
    reserved_for: Option<Vec<ResourceClaimConsumerReference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allocation {
    devices: Devices,
    node_selector: Option<NodeSelector>,
}

#[derive(Deserialize)]
struct Devices {
    results: Vec<DeviceRequestAllocationResult>,
}

/// The claim reduced to its allocated devices and reservations; `None` if not allocated. For a claim with unreadable parameters,
/// whose devices are taken all the same.
#[must_use]
pub fn holds_of(json: &[u8]) -> Option<ResourceClaim> {
    let Claim { metadata, status } = serde_json::from_slice(json).ok()?;
    let Status { allocation, reserved_for } = status;
    let devices = DeviceAllocationResult { results: Some(allocation.devices.results), config: None };
    let allocation = AllocationResult {
        devices: Some(devices),
        node_selector: allocation.node_selector,
        ..AllocationResult::default()
    };
    Some(ResourceClaim {
        metadata: ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            owner_references: metadata.owner_references,
            ..ObjectMeta::default()
        },
        spec: None,
        status: Some(ResourceClaimStatus { allocation: Some(allocation), devices: None, reserved_for }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimExt;

    #[test]
    fn devices_are_known_whatever_the_parameters_are() {
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        for parameters in [deep.as_bytes(), br#""\ud800""#, b"\"\xff\"", b"1e999"] {
            let claim = [
                br#"{"metadata":{"name":"c","namespace":"n"},"spec":{"devices":{"config":[{"opaque":{"parameters":"#.as_slice(),
                parameters,
                br#"}}]}},"status":{"allocation":{"devices":{"results":[{"device":"gpu-0","driver":"d","pool":"p","request":"r"}],
                "config":[{"opaque":{"parameters":"#,
                parameters,
                br#"}}]}},"reservedFor":[{"resource":"pods","name":"p","uid":"u"}],"devices":[{"data":"#,
                parameters,
                b"}]}}",
            ]
            .concat();
            assert!(serde_json::from_slice::<ResourceClaim>(&claim).is_err());
            let claim = holds_of(&claim).unwrap();
            let status = claim.status.as_ref().unwrap();
            let results = claim.results();
            assert_eq!((claim.metadata.name.as_deref(), results[0].device.as_str()), (Some("c"), "gpu-0"));
            assert_eq!(status.reserved_for.as_ref().unwrap()[0].name, "p");
        }
        assert_eq!(holds_of(br#"{"metadata":{"name":"c"},"status":{}}"#), None);
    }
}
