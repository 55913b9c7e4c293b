//! Answers to allocate requests.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde::Deserialize;
use serde_json::{Value, json};
use tessera_allocator::claim::{Claim, Class, Classes};
use tessera_allocator::features::Features;
use tessera_allocator::held::Held;
use tessera_allocator::inventory::Inventory;
use tessera_allocator::selectors::SelectorCache;
use tessera_allocator::upstream::Allocator;
use tessera_api::kubernetes::KubernetesVersion;

use super::Answers;
use crate::quantities;
use crate::share_ids::share_id;

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    features: Option<Vec<String>>,
    #[serde(default)]
    node: Option<Node>,
    #[serde(default)]
    slices: Option<Vec<ResourceSlice>>,
    #[serde(default)]
    classes: Option<Vec<DeviceClass>>,
    #[serde(default)]
    allocated: Option<Vec<ResourceClaim>>,
    #[serde(default)]
    claims: Option<Vec<ResourceClaim>>,
}

/// Answers allocate requests; caches compiled selectors.
#[derive(Debug, Default)]
pub struct Server {
    kubernetes: KubernetesVersion,
    selectors: SelectorCache,
    shares: u64,
}

impl Server {
    /// Answers as this release.
    pub fn new(kubernetes: KubernetesVersion) -> Self {
        Server { kubernetes, selectors: SelectorCache::of(kubernetes), ..Self::default() }
    }
}

impl Answers for Server {
    fn answer(&mut self, mut request: Value) -> Result<Value, String> {
        quantities::as_text(&mut request);
        let request: Request = serde_path_to_error::deserialize(&request)
            .map_err(|error| format!("{} (at {})", error.inner(), error.path()))?;
        let mut features = Features::default();
        if let Some(names) = &request.features {
            features = Features::NONE;
            for name in names {
                if let Err(error) = features.enable(name) {
                    return Ok(json!({ "allocations": null, "error": error }));
                }
            }
        }
        let mut inventory = Inventory::new();
        for slice in request.slices.iter().flatten() {
            inventory.add(slice).map_err(|error| error.to_string())?;
        }
        let mut held = Held::new();
        for claim in request.allocated.iter().flatten() {
            held.add(&inventory, claim).map_err(|error| error.to_string())?;
        }
        let classes: Classes = request.classes.iter().flatten().map(Class::from).collect();
        let claims: Vec<Claim> = request
            .claims
            .iter()
            .flatten()
            .map(Claim::try_from)
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let node = request.node.unwrap_or_default();
        let allocator = Allocator::new(&inventory, &held, &classes).answering_as(self.kubernetes);
        let allocator = Allocator { features, ..allocator };
        let shares = &mut self.shares;
        let mut share_id = || {
            *shares += 1;
            share_id(*shares)
        };
        let answer = allocator.allocate(&(&node).into(), &claims, &mut self.selectors, &mut share_id);
        Ok(match answer {
            Ok(allocations) => json!({ "allocations": allocations }),
            Err(error) => json!({ "allocations": null, "error": error.to_string() }),
        })
    }
}
