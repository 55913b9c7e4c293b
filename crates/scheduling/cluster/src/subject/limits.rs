//! Limits on a pod's claims. The API server does not limit the claims of a pod: thousands may come from one template of 1 MiB, and
//! the state computed for the pod would be as large.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde::Serialize;

use super::{PodObstacle, status_of};
use crate::claim::DeviceClaimExt;
use crate::key::Key;
use crate::objects::Objects;

/// Maximum number of claims of a pod.
pub(super) const MOST_CLAIMS: usize = 128;

/// Maximum total size in bytes of a pod's claim specs as JSON, for a pod with more than [`FEW`] claims.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// Maximum size in bytes of a claim with its allocation, as JSON. etcd takes requests of 1.5 MiB by default
/// (`--max-request-bytes`). The difference is for the devices, and for fields not read here.
pub(super) const MOST_STORED: usize = 1_400_000;

/// Up to this many claims may have any size accepted by the API server.
const FEW: usize = 4;

/// Source of a claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source<'p> {
    Claim(&'p str),
    /// The template, and the name of the pod's claim entry. Each entry gets a claim of its own.
    Template(&'p str, &'p str),
}

/// Why the pod's claims exceed the limits, if they do.
pub(super) fn exceeded(objects: &Objects, pod: &Pod, references: &[PodResourceClaim]) -> Option<PodObstacle> {
    if references.len() <= FEW {
        return None;
    }
    let sources: BTreeSet<Source<'_>> =
        references.iter().filter_map(|reference| source_of(pod, reference)).collect();
    let count = sources.len();
    if count > MOST_CLAIMS {
        return Some(PodObstacle::TooManyClaims { count });
    }
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let mut of_templates: BTreeMap<&str, usize> = BTreeMap::new();
    let mut bytes = 0;
    for source in sources {
        let named = |name: &str| Key::new(&namespace, name);
        bytes += match source {
            Source::Claim(name) => objects.claims.get(&named(name)).map_or(0, |claim| size(&claim.spec)),
            Source::Template(name, _) => *of_templates.entry(name).or_insert_with(|| {
                let spec = objects.templates.get(&named(name)).and_then(|template| template.spec.as_ref());
                size(&spec.and_then(|spec| spec.spec.as_ref()))
            }),
        };
        if count > FEW && bytes > MOST_BYTES {
            return Some(PodObstacle::TooLarge);
        }
    }
    None
}

/// Why the claim is too large to store with devices, if so: an allocation repeats the configuration of claim and classes.
pub(super) fn beyond_storage(objects: &Objects, claim: &ResourceClaim) -> Option<PodObstacle> {
    let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    let of_claim = size(&devices.and_then(|devices| devices.config.as_ref()));
    let names: BTreeSet<&str> =
        devices.into_iter().flat_map(DeviceClaimExt::asked).map(|(class, _)| class).collect();
    let classes = names.into_iter().filter_map(|name| objects.classes.get(&Key::cluster(name)));
    let of_classes: usize =
        classes.map(|class| size(&class.spec.as_ref().and_then(|spec| spec.config.as_ref()))).sum();
    let bytes = size(claim) + of_claim + of_classes;
    (bytes > MOST_STORED).then(|| PodObstacle::BeyondStorage { key: Key::from(&claim.metadata), bytes })
}

/// Source of the reference's claim; `None` if the reference names nothing, or no claim was generated from the template.
pub(super) fn source_of<'p>(pod: &'p Pod, reference: &'p PodResourceClaim) -> Option<Source<'p>> {
    if let Some(name) = &reference.resource_claim_name {
        return Some(Source::Claim(name));
    }
    let template = reference.resource_claim_template_name.as_ref()?;
    match status_of(pod, reference) {
        Some(status) => status.resource_claim_name.as_deref().map(Source::Claim),
        None => Some(Source::Template(template, &reference.name)),
    }
}

/// Size of the value in bytes, as JSON.
fn size(value: &impl Serialize) -> usize {
    struct Counted(usize);
    impl io::Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counted = Counted(0);
    // Cannot fail: keys are text, and the writer accepts everything.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}
