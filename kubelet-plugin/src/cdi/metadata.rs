//! Metadata of a claim's devices for its containers: one file for each request (KEP-5304).
//!
//! The form of the files, their place in containers and the names of the CDI devices follow Kubernetes' own library for
//! drivers (`kubeletplugin/metadata.go` and `api/metadata` of `k8s.io/dynamic-resource-allocation`), so its readers
//! find them. Their place on the node is our choice.

use std::path::Path;

use k8s_openapi::api::resource::v1::DeviceAttribute;
use serde_json::{Value, json};

use std::collections::BTreeMap;

use super::names::METADATA_CLASS;
use super::version::minimum_version;
use super::{ContainerEdits, Device, Mount, Spec, Vendor};

/// Where containers find the files.
const CONTAINER_DIRECTORY: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// The API versions of a file, the newest first: a reader takes the first known one. Kubernetes
/// 1.36 has the second alone. They have the same fields.
const API_VERSIONS: [&str; 2] = ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"];

/// A claim, with the names for its files.
#[derive(Clone, Copy, Debug)]
pub struct MetadataClaim<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The entry of the pod's `resourceClaims`, for a claim made from a template.
    pub pod_claim: Option<&'a str>,
}

/// Metadata of the devices of one request.
#[derive(Clone, Debug)]
pub struct RequestMetadata<'a> {
    /// The request, without the alternative's part.
    pub request: &'a str,
    /// The allocated alternative, for a request with `firstAvailable`.
    pub alternative: Option<&'a str>,
    /// Its devices.
    pub devices: Vec<DeviceMetadata<'a>>,
}

/// Metadata of a device.
#[derive(Clone, Debug)]
pub struct DeviceMetadata<'a> {
    /// Its pool.
    pub pool: &'a str,
    /// Its name in the pool.
    pub name: &'a str,
    /// Its attributes, named as in ResourceSlices.
    pub attributes: BTreeMap<String, DeviceAttribute>,
}

impl RequestMetadata<'_> {
    /// The contents of its file: one object for each version of the API.
    pub(super) fn contents(&self, vendor: &Vendor, claim: MetadataClaim<'_>) -> Vec<u8> {
        let devices: Vec<Value> = self.devices.iter().map(|device| device.to_value(vendor)).collect();
        let request = match self.alternative {
            None => self.request.to_owned(),
            Some(alternative) => format!("{}/{alternative}", self.request),
        };
        let object = |version: &str| {
            let mut object = json!({
                "kind": "DeviceMetadata",
                "apiVersion": version,
                // The metadata of a device does not change while a claim has the device.
                "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid, "generation": 1},
                "requests": [{"name": request, "devices": devices}],
            });
            if let Some(pod_claim) = claim.pod_claim {
                object["podClaimName"] = json!(pod_claim);
            }
            format!("{object:#}\n")
        };
        API_VERSIONS.map(object).concat().into_bytes()
    }

    /// Its file in containers.
    fn container_path(&self, vendor: &Vendor, claim: MetadataClaim<'_>) -> String {
        let (kind, name) = match claim.pod_claim {
            Some(pod_claim) => ("resourceclaimtemplates", pod_claim),
            None => ("resourceclaims", claim.name),
        };
        format!("{CONTAINER_DIRECTORY}/{kind}/{name}/{}/{vendor}-metadata.json", self.request)
    }
}

impl DeviceMetadata<'_> {
    fn to_value(&self, vendor: &Vendor) -> Value {
        json!({
            "driver": vendor.to_string(), "pool": self.pool, "name": self.name, "attributes": self.attributes,
        })
    }
}

/// Name of the CDI device for the file of a request.
fn device_name(uid: &str, request: &str) -> String {
    format!("{uid}_{request}")
}

/// The fully qualified name of the CDI device for a request's file, passed by the kubelet to the container runtime.
#[must_use]
pub fn metadata_device_id(vendor: &Vendor, uid: &str, request: &str) -> String {
    format!("{vendor}/{METADATA_CLASS}={}", device_name(uid, request))
}

/// Name of a request's file on the node.
pub(super) fn file_name(uid: &str, request: &str) -> String {
    format!("{}.json", device_name(uid, request))
}

/// The CDI spec of a claim's files in `directory`.
pub(super) fn metadata_spec(
    vendor: &Vendor,
    directory: &Path,
    claim: MetadataClaim<'_>,
    requests: &[RequestMetadata<'_>],
) -> Spec {
    let device = |request: &RequestMetadata<'_>| Device {
        name: device_name(claim.uid, request.request),
        container_edits: ContainerEdits {
            mounts: vec![Mount {
                host_path: directory.join(file_name(claim.uid, request.request)).display().to_string(),
                container_path: request.container_path(vendor, claim),
                options: ["ro", "nosuid", "nodev", "bind"].map(str::to_owned).to_vec(),
                kind: None,
            }],
            ..ContainerEdits::default()
        },
    };
    let mut spec = Spec {
        cdi_version: String::new(),
        kind: format!("{vendor}/{METADATA_CLASS}"),
        devices: requests.iter().map(device).collect(),
        container_edits: ContainerEdits::default(),
    };
    spec.cdi_version = minimum_version(&spec).to_owned();
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_where_and_what_readers_expect() {
        let vendor = Vendor::new("gpu.tessera.dev").unwrap();
        let claim =
            MetadataClaim { namespace: "ns", name: "pod-card-x7", uid: "u-1", pod_claim: Some("card") };
        let uuid = DeviceAttribute { string: Some("GPU-1".into()), ..DeviceAttribute::default() };
        let device = DeviceMetadata {
            pool: "gpu.tessera.dev/node",
            name: "gpu-3b-00",
            attributes: BTreeMap::from([("uuid".to_owned(), uuid)]),
        };
        let request = RequestMetadata { request: "gpu", alternative: Some("large"), devices: vec![device] };

        let spec = metadata_spec(&vendor, Path::new("/state/x"), claim, std::slice::from_ref(&request));
        assert_eq!(spec.kind, "gpu.tessera.dev/metadata");
        assert_eq!(spec.devices[0].name, "u-1_gpu");
        assert_eq!(metadata_device_id(&vendor, "u-1", "gpu"), "gpu.tessera.dev/metadata=u-1_gpu");
        let mount = &spec.devices[0].container_edits.mounts[0];
        assert_eq!(mount.host_path, "/state/x/u-1_gpu.json");
        assert_eq!(
            mount.container_path,
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/card/gpu/gpu.tessera.dev-metadata.json"
        );
        let of_itself = MetadataClaim { pod_claim: None, ..claim };
        assert_eq!(
            request.container_path(&vendor, of_itself),
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/pod-card-x7/gpu/gpu.tessera.dev-metadata.json"
        );

        let contents = request.contents(&vendor, claim);
        let objects: Vec<Value> =
            serde_json::Deserializer::from_slice(&contents).into_iter().map(Result::unwrap).collect();
        let versions: Vec<&Value> = objects.iter().map(|object| &object["apiVersion"]).collect();
        assert_eq!(versions, API_VERSIONS);
        for object in &objects {
            assert_eq!(object["podClaimName"], "card");
            assert_eq!(object["metadata"]["name"], "pod-card-x7");
            let request = &object["requests"][0];
            assert_eq!(request["name"], "gpu/large");
            let device = json!({
                "driver": "gpu.tessera.dev", "pool": "gpu.tessera.dev/node", "name": "gpu-3b-00",
                "attributes": {"uuid": {"string": "GPU-1"}},
            });
            assert_eq!(request["devices"], json!([device]));
        }
        let without = request.contents(&vendor, of_itself);
        assert!(!String::from_utf8(without).unwrap().contains("podClaimName"));
    }
}
