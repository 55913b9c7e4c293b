//! How dcgm-exporter joins cards and pods, on what the kubelet and the API server really say.
//!
//! Its rule (`internal/pkg/transformation/dra.go` and `kubernetes.go` of NVIDIA/dcgm-exporter): the kubelet's pod-resources name
//! driver, pool and device; devices of the driver `gpu.nvidia.com` are looked up in the ResourceSlices by pool and device. Of the
//! type `gpu` the attribute `uuid` is the card's, of the type `mig` `parentUUID` is, and `uuid`, where there is one, the
//! partition's. Devices of other types and drivers are left out.

use std::os::unix::fs::symlink;

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::{Api, api::ListParams};
use tessera_proto::podresources::v1::{
    ListPodResourcesRequest, pod_resources_lister_client::PodResourcesListerClient,
};
use tonic::transport::Endpoint;

use crate::stage::{DRIVER, Scene};

/// A device of a pod, as its metrics would be labelled.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Joined {
    pub pod: String,
    pub container: String,
    /// UUID of the card.
    pub card: String,
    /// Profile and UUID of a partition; the UUID is empty where it was made for the claim.
    pub partition: Option<(String, String)>,
}

/// The devices of the scene's pods, by that rule.
pub async fn joined(scene: &Scene) -> Vec<Joined> {
    // A path to the kubelet's socket that is short enough for an address.
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("kubelet");
    symlink(scene.stage.cluster.node(0).kubelet_directory(), &link).unwrap();
    let socket = link.join("pod-resources/kubelet.sock");
    let channel =
        Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect().await.unwrap();
    let listed = PodResourcesListerClient::new(channel).list(ListPodResourcesRequest {}).await.unwrap();

    let slices: Api<ResourceSlice> = Api::all(scene.stage.client().await);
    let slices = slices.list(&ListParams::default()).await.unwrap().items;
    let find = |pool: &str, name: &str| -> Option<Device> {
        let of_pool =
            slices.iter().filter(|slice| slice.spec.driver == DRIVER && slice.spec.pool.name == pool);
        of_pool
            .flat_map(|slice| slice.spec.devices.iter().flatten())
            .find(|device| device.name == name)
            .cloned()
    };
    let mut joined = Vec::new();
    for pod in listed.into_inner().pod_resources.into_iter().filter(|pod| pod.namespace == scene.namespace) {
        for container in pod.containers {
            let claims = container.dynamic_resources.iter().flat_map(|claim| &claim.claim_resources);
            for resource in claims.filter(|resource| resource.driver_name == DRIVER) {
                let Some(device) = find(&resource.pool_name, &resource.device_name) else { continue };
                let text = |name: &str| -> String {
                    let value = device.attributes.as_ref().and_then(|attributes| attributes.get(name));
                    value.and_then(|value| value.string.clone()).unwrap_or_default()
                };
                let (card, partition) = match text("type").as_str() {
                    "gpu" => (text("uuid"), None),
                    "mig" => (text("parentUUID"), Some((text("profile"), text("uuid")))),
                    _ => continue,
                };
                assert!(!card.is_empty(), "{device:?}");
                let (pod, container) = (pod.name.clone(), container.name.clone());
                joined.push(Joined { pod, container, card, partition });
            }
        }
    }
    joined.sort();
    joined
}
