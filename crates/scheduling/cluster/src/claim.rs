//! Accessors for the requests, devices and users of a ResourceClaim.

use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClaim, DeviceRequestAllocationResult, DeviceSelector, ResourceClaim,
    ResourceClaimConsumerReference,
};
use k8s_openapi::jiff::Timestamp;

use crate::key::Key;

/// Accessors of a claim's requests.
pub trait DeviceClaimExt {
    /// DeviceClass and selectors of each request, and of each alternative of a request.
    fn asked(&self) -> impl Iterator<Item = (&str, &[DeviceSelector])>;
}

impl DeviceClaimExt for DeviceClaim {
    fn asked(&self) -> impl Iterator<Item = (&str, &[DeviceSelector])> {
        self.requests.iter().flatten().flat_map(|request| {
            let exactly = request.exactly.iter().map(|asked| (&asked.device_class_name, &asked.selectors));
            let alternatives = request.first_available.iter().flatten();
            let alternatives = alternatives.map(|asked| (&asked.device_class_name, &asked.selectors));
            let all = exactly.chain(alternatives);
            all.map(|(class, selectors)| (class.as_str(), selectors.as_deref().unwrap_or_default()))
        })
    }
}

/// Accessors of an allocation.
pub trait AllocationExt {
    /// The devices.
    fn results(&self) -> &[DeviceRequestAllocationResult];
}

impl AllocationExt for AllocationResult {
    fn results(&self) -> &[DeviceRequestAllocationResult] {
        self.devices.as_ref().and_then(|devices| devices.results.as_deref()).unwrap_or_default()
    }
}

/// Accessors of a ResourceClaim.
pub trait ClaimExt {
    /// Its namespace and name.
    fn key(&self) -> Key;

    /// Its allocation.
    fn allocation(&self) -> Option<&AllocationResult>;

    /// Whether the claim is allocated.
    fn has_devices(&self) -> bool {
        self.allocation().is_some()
    }

    /// Devices allocated to the claim.
    fn results(&self) -> &[DeviceRequestAllocationResult] {
        self.allocation().map(AllocationExt::results).unwrap_or_default()
    }

    /// The one node of its allocation.
    fn allocated_node(&self) -> Option<&str> {
        let selector = self.allocation()?.node_selector.as_ref()?;
        let fields = selector.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
        let names = fields.filter(|field| field.key == "metadata.name");
        names.filter_map(|field| field.values.as_ref()?.first()).map(String::as_str).next()
    }

    /// Time of the allocation.
    fn allocated_at(&self) -> Option<Timestamp> {
        Some(self.allocation()?.allocation_timestamp.as_ref()?.0)
    }

    /// Pods for which the claim is reserved.
    fn users(&self) -> &[ResourceClaimConsumerReference];

    /// Whether the claim is reserved for any pod.
    fn is_reserved(&self) -> bool {
        !self.users().is_empty()
    }

    /// Name of the pod owning the claim, if the claim was made for one.
    fn owning_pod(&self) -> Option<&str>;
}

impl ClaimExt for ResourceClaim {
    fn key(&self) -> Key {
        Key::from(&self.metadata)
    }

    fn allocation(&self) -> Option<&AllocationResult> {
        self.status.as_ref()?.allocation.as_ref()
    }

    fn users(&self) -> &[ResourceClaimConsumerReference] {
        self.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
    }

    fn owning_pod(&self) -> Option<&str> {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.find(|owner| owner.kind == "Pod").map(|owner| owner.name.as_str())
    }
}
