//! Plans the fewest writes from the slices on the server to the desired ones.
//!
//! Readers use the slices of a pool's highest generation, and only if their number equals the `resourceSliceCount` of
//! each. So a single slice may be replaced within a generation: readers see the old or the new pool. All other changes
//! need a new generation, ignored by readers until its last slice is written.
//! Readers of a pool ignore annotations, so these are changed in place.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::resource::v1::ResourceSliceSpec,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::{
    desired::{DesiredSlice, PoolIdentity},
    draft::Draft,
    held_slice::{HeldContents, HeldSlice, HeldSpec},
};

/// Generation of a pool never published before.
pub const FIRST_GENERATION: i64 = 1;

/// One request to the API server.
#[derive(Clone, Debug)]
pub enum Write {
    /// Create this slice.
    Create(Box<Draft>),
    /// Replace the slice of the same name and resource version.
    Replace(Box<Draft>),
    /// Delete the slice of this name, uid and resource version.
    Delete(Box<ObjectMeta>),
}

impl Write {
    /// Metadata of the slice to write or to delete.
    #[must_use]
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Create(draft) | Self::Replace(draft) => &draft.metadata,
            Self::Delete(metadata) => metadata,
        }
    }

    /// `create`, `update` or `delete`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Replace(_) => "update",
            Self::Delete(_) => "delete",
        }
    }

    /// The slice's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }
}

/// The writes and their order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The pool's generation afterwards; `None` if the pool is to have no slices.
    pub generation: Option<i64>,
    /// Stages, none of them empty. Writes of one stage may run concurrently; a stage begins when all writes of the one
    /// before it have succeeded.
    pub stages: Vec<Vec<Write>>,
}

impl Plan {
    /// All writes, in order of stages.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        self.stages.iter().flatten()
    }

    /// Whether the slices on the server are already as desired.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }
}

/// Plans from `current`, all slices of this driver and node on the server, to `desired`. The `spec` of each current
/// slice must be known and compared with the desired slice of the same name.
///
/// `generation` is the pool's last known generation, used again if all slices were deleted. `owner`, the Node, will own
/// every slice.
#[must_use]
pub fn plan(
    identity: &PoolIdentity,
    owner: &OwnerReference,
    current: &[&HeldSlice],
    desired: &[DesiredSlice],
    generation: Option<i64>,
) -> Plan {
    let count = i64::try_from(desired.len()).unwrap_or(i64::MAX);
    let generation_of = |slice: &HeldSlice| {
        let pool = slice.spec.as_ref().map(|spec| &spec.pool)?;
        (pool.name == identity.pool_name).then_some(pool.generation)
    };
    let highest = current.iter().filter_map(|slice| generation_of(slice)).max();

    let ours: BTreeSet<&str> =
        desired.iter().flat_map(|slice| slice.annotations.keys().map(String::as_str)).collect();
    let find = |desired| Pair::find(identity, owner, desired, current, highest, count, &ours);
    let pairs: Vec<Pair<'_>> = desired.iter().map(find).collect();
    let obsolete: Vec<&HeldSlice> = current
        .iter()
        .copied()
        .filter(|slice| !desired.iter().any(|desired| slice.metadata.name.as_ref() == Some(&desired.name)))
        .collect();

    let differing = pairs.iter().filter(|pair| pair.state == State::Differs).count();
    let recounted = pairs.iter().any(|pair| pair.state == State::Differs && pair.recounted);
    let obsolete_at_highest =
        obsolete.iter().filter_map(|slice| generation_of(slice)).max() == highest && highest.is_some();
    // Readers count a slice of the highest generation until its deletion, so nothing may be added at this generation
    // before.
    let written = pairs.iter().any(|pair| pair.state != State::Same);
    let anew = differing > 1 || recounted || obsolete_at_highest && written;

    let (generation, from_scratch) = match highest {
        None => (generation.unwrap_or(FIRST_GENERATION).max(FIRST_GENERATION), false),
        Some(highest) if !anew => (highest, false),
        // A generation at its maximum (only ever written by somebody else) can't be raised: delete all slices, then
        // begin with the first generation again.
        Some(i64::MAX) => (FIRST_GENERATION, true),
        Some(highest) => (highest + 1, false),
    };

    let spec = || identity.spec(generation, count);
    let mut first: Vec<Write> = Vec::new();
    let mut second: Vec<Write> = Vec::new();
    let mut third: Vec<Write> = Vec::new();
    if from_scratch {
        let [lower, highest] = deletions(current.to_vec(), highest);
        third.extend(desired.iter().map(|desired| create(desired, spec(), owner)));
        return Plan { generation: Some(generation), stages: stages(vec![lower, highest, third]) };
    }
    for (pair, desired) in pairs.iter().zip(desired) {
        match (pair.state, pair.current) {
            (State::Same, _) if !anew => {}
            (State::Missing, _) | (_, None) => third.push(create(desired, spec(), owner)),
            (State::OtherPool, Some(current)) => {
                // The pool's name cannot be changed.
                first.push(Write::Delete(Box::new(current.metadata.clone())));
                third.push(create(desired, spec(), owner));
            }
            (State::Differs, Some(current)) if !anew => {
                second.push(replace(current, desired, spec(), owner, &ours))
            }
            (_, Some(current)) => third.push(replace(current, desired, spec(), owner, &ours)),
        }
    }
    let [lower, highest] = deletions(obsolete, highest);
    Plan {
        generation: (count > 0).then_some(generation),
        stages: stages(vec![first, second, third, lower, highest]),
    }
}

/// Deletes `slices`, those of the highest generation last: otherwise readers would use the generation below meanwhile.
fn deletions(slices: Vec<&HeldSlice>, highest: Option<i64>) -> [Vec<Write>; 2] {
    let (last, first): (Vec<_>, Vec<_>) =
        slices.into_iter().partition(|slice| slice.spec.as_ref().map(|spec| spec.pool.generation) == highest);
    [first, last].map(|slices| {
        slices.into_iter().map(|slice| Write::Delete(Box::new(slice.metadata.clone()))).collect()
    })
}

fn stages(stages: Vec<Vec<Write>>) -> Vec<Vec<Write>> {
    stages.into_iter().filter(|stage| !stage.is_empty()).collect()
}

/// How a slice on the server compares with the desired one of the same name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// There is none.
    Missing,
    /// The slice is in another pool, whose generation is unrelated.
    OtherPool,
    /// At the highest generation, as desired.
    Same,
    /// The slice is at the highest generation, so readers use it, but not as desired.
    Differs,
    /// The slice has an earlier generation, ignored by readers, or another owner or other annotations.
    Behind,
}

struct Pair<'a> {
    current: Option<&'a HeldSlice>,
    state: State,
    /// Whether its number of slices is another.
    recounted: bool,
}

impl<'a> Pair<'a> {
    fn find(
        identity: &PoolIdentity,
        owner: &OwnerReference,
        desired: &DesiredSlice,
        current: &[&'a HeldSlice],
        highest: Option<i64>,
        count: i64,
        ours: &BTreeSet<&str>,
    ) -> Self {
        let current =
            current.iter().copied().find(|slice| slice.metadata.name.as_ref() == Some(&desired.name));
        let Some(slice) = current else { return Self { current, state: State::Missing, recounted: false } };
        let Some(HeldSpec { pool, contents, .. }) = &slice.spec else {
            return Self { current, state: State::Behind, recounted: false };
        };
        let recounted = pool.resource_slice_count != count;
        let state = if pool.name != identity.pool_name {
            State::OtherPool
        } else if Some(pool.generation) != highest {
            State::Behind
        } else if recounted || *contents != HeldContents::Same(desired.contents.clone()) {
            State::Differs
        } else if !is_owned(&slice.metadata, owner) || !is_annotated(&slice.metadata, desired, ours) {
            State::Behind
        } else {
            State::Same
        };
        Self { current, state, recounted }
    }
}

fn is_owned(metadata: &ObjectMeta, owner: &OwnerReference) -> bool {
    metadata.owner_references.as_deref() == Some(std::slice::from_ref(owner))
}

/// Whether the slice has, of the annotation keys in `ours`, exactly the desired ones.
fn is_annotated(metadata: &ObjectMeta, desired: &DesiredSlice, ours: &BTreeSet<&str>) -> bool {
    let held = |key: &str| metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
    ours.iter().all(|key| held(key) == desired.annotations.get(*key))
}

fn create(desired: &DesiredSlice, spec: ResourceSliceSpec, owner: &OwnerReference) -> Write {
    let metadata = ObjectMeta {
        name: Some(desired.name.clone()),
        owner_references: Some(vec![owner.clone()]),
        annotations: (!desired.annotations.is_empty()).then(|| desired.annotations.clone()),
        ..ObjectMeta::default()
    };
    let contents = desired.contents.clone();
    Write::Create(Box::new(Draft { metadata, spec, contents, taint_times: Vec::new() }))
}

fn replace(
    current: &HeldSlice,
    desired: &DesiredSlice,
    spec: ResourceSliceSpec,
    owner: &OwnerReference,
    ours: &BTreeSet<&str>,
) -> Write {
    let mut metadata = current.metadata.clone();
    // Labels, finalizers and annotations are others' to set, and stay, but for our own annotations.
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    annotations.retain(|key, _| !ours.contains(key.as_str()));
    annotations.extend(desired.annotations.clone());
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    metadata.owner_references = Some(vec![owner.clone()]);
    metadata.managed_fields = None;
    let taint_times = current.spec.as_ref().map(|spec| spec.taint_times.clone()).unwrap_or_default();
    Write::Replace(Box::new(Draft { metadata, spec, contents: desired.contents.clone(), taint_times }))
}

#[cfg(test)]
mod tests;
