//! What the last instance on this node published.

use std::time::Duration;

use k8s_openapi::{
    api::resource::v1::{ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::ListParams};
use serde::{Deserialize, Deserializer};
use tessera_inventory::pool::PackedContents;

use crate::publish::{desired::PoolIdentity, resource_slice::is_resource_slice};

/// The pause after a failed request: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest wait for the answer to one.
const ANSWER: Duration = Duration::from_secs(15);

/// Slices in one answer: a slice may have 100 KB, and a node some hundred slices.
const PAGE: u32 = 8;

/// The slices of this node's pool as they are at the API server. Tries until it answers.
pub async fn published_before(client: Client, identity: &PoolIdentity) -> Vec<PackedContents> {
    let slices: Api<PublishedSlice> = Api::all(client);
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match list(&slices, identity).await {
            Ok(published) => return published,
            Err(error) => error,
        };
        if pause == FIRST_PAUSE {
            tracing::warn!(
                error,
                "cannot read this node's ResourceSlices; trying again. Check the network to the API server and, for \
                 401 or 403, the service account's role"
            );
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Lists page after page, and keeps what it finds packed. A list that grew too old on the way (410) is an error like
/// others.
async fn list(slices: &Api<PublishedSlice>, identity: &PoolIdentity) -> Result<Vec<PackedContents>, String> {
    let PoolIdentity { driver_name, node_name, pool_name } = identity;
    let fields = format!("spec.driver={driver_name},spec.nodeName={node_name}");
    let mut parameters = ListParams::default().fields(&fields).limit(PAGE);
    let mut published = Vec::new();
    loop {
        let page = match tokio::time::timeout(ANSWER, slices.list(&parameters)).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no answer within {ANSWER:?}")),
        };
        let ours = page.items.into_iter().filter(|slice| slice.pool_name == *pool_name);
        published.extend(ours.flat_map(|slice| slice.contents));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(published),
        }
    }
}

/// A slice, packed as soon as it was read.
#[derive(Clone, Debug)]
struct PublishedSlice {
    metadata: ObjectMeta,
    pool_name: String,
    contents: Vec<PackedContents>,
}

impl<'de> Deserialize<'de> for PublishedSlice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ResourceSlice { metadata, spec } = ResourceSlice::deserialize(deserializer)?;
        let ResourceSliceSpec { devices, shared_counters, pool, .. } = spec;
        let devices = devices.map(|devices| PackedContents::of_devices(&devices));
        let sets = shared_counters.map(|sets| PackedContents::of_shared_counters(&sets));
        Ok(Self { metadata, pool_name: pool.name, contents: devices.into_iter().chain(sets).collect() })
    }
}

is_resource_slice!(PublishedSlice);
