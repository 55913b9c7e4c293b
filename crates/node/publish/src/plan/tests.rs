//! The planning of writes, held to what a reader of ResourceSlices may see.
//!
//! The reader is the one of `k8s.io/dynamic-resource-allocation/structured`: of the slices of a pool it takes those of
//! the highest generation, and trusts them when there are as many as they say.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceTaint, ResourceSlice};
use proptest::prelude::*;
use tessera_slices::Contents;

use super::*;

fn identity() -> PoolIdentity {
    PoolIdentity::new("gpu.tessera.dev", "n")
}

fn owner(uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: "n".into(),
        uid: uid.into(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn device(name: &str) -> Device {
    Device { name: name.into(), ..Device::default() }
}

fn desired(name: &str, contents: &str) -> DesiredSlice {
    slice_of(name, vec![device(contents)])
}

fn slice_of(name: &str, devices: Vec<Device>) -> DesiredSlice {
    DesiredSlice { name: name.into(), annotations: BTreeMap::new(), contents: Contents::of_devices(&devices) }
}

/// An API server's table of ResourceSlices.
#[derive(Clone, Debug, Default, PartialEq)]
struct Table {
    slices: BTreeMap<String, ResourceSlice>,
    versions: u64,
}

impl Table {
    /// All slices, compared with what is desired.
    fn all(&self, desired: &[DesiredSlice]) -> Vec<HeldSlice> {
        let mut all: Vec<HeldSlice> = self.slices.values().cloned().map(HeldSlice::from).collect();
        for slice in &mut all {
            if let Some(desired) = desired.iter().find(|desired| desired.name == slice.name()) {
                let spec = slice.spec.as_mut().expect("read");
                spec.recognise(identity().spec(0, 0), &desired.contents);
            }
        }
        all
    }

    fn put(&mut self, mut slice: ResourceSlice) {
        self.versions += 1;
        slice.metadata.resource_version = Some(self.versions.to_string());
        slice.metadata.uid.get_or_insert_with(|| format!("uid-{}", self.versions));
        self.slices.insert(slice.metadata.name.clone().expect("a name"), slice);
    }

    /// As the real server: names are unique, versions must match, pool names cannot change.
    fn write(&mut self, write: &Write) {
        let old = self.slices.get(write.name());
        match write {
            Write::Create(draft) => {
                let slice = draft.slice();
                assert_eq!(old, None, "already exists");
                assert_eq!(slice.metadata.resource_version, None);
                self.put(slice);
            }
            Write::Replace(draft) => {
                let slice = draft.slice();
                let old = old.expect("exists");
                assert_eq!(old.metadata.resource_version, slice.metadata.resource_version);
                assert_eq!(old.spec.pool.name, slice.spec.pool.name);
                self.put(slice);
            }
            Write::Delete(metadata) => {
                assert_eq!(old.map(|old| &old.metadata.resource_version), Some(&metadata.resource_version));
                self.slices.remove(write.name());
            }
        }
    }

    /// What readers trust: the contents by slice, if they could count them complete in any way.
    fn seen(&self) -> Option<BTreeMap<String, Option<Vec<Device>>>> {
        let pool: Vec<_> =
            self.slices.values().filter(|slice| slice.spec.pool.name == identity().pool_name).collect();
        let highest = pool.iter().map(|slice| slice.spec.pool.generation).max()?;
        let seen: Vec<_> = pool.into_iter().filter(|slice| slice.spec.pool.generation == highest).collect();
        let count = i64::try_from(seen.len()).expect("few");
        let trusted = seen.iter().any(|slice| slice.spec.pool.resource_slice_count == count);
        trusted.then(|| {
            seen.iter()
                .map(|slice| (slice.metadata.name.clone().expect("a name"), slice.spec.devices.clone()))
                .collect()
        })
    }
}

fn plan_for(table: &Table, desired: &[DesiredSlice]) -> Plan {
    plan_with(table, "node-uid", desired, None)
}

fn plan_with(table: &Table, uid: &str, desired: &[DesiredSlice], generation: Option<i64>) -> Plan {
    let all = table.all(desired);
    plan(&identity(), &owner(uid), &all.iter().collect::<Vec<_>>(), desired, generation)
}

fn publish(table: &mut Table, desired: &[DesiredSlice]) -> Plan {
    let plan = plan_for(table, desired);
    plan.writes().for_each(|write| table.write(write));
    plan
}

fn generations(table: &Table) -> Vec<i64> {
    table.slices.values().map(|slice| slice.spec.pool.generation).collect()
}

#[test]
fn the_first_publication_creates_all_side_by_side_and_nothing_more() {
    let mut table = Table::default();
    let wanted = [desired("a", "x"), desired("b", "y")];
    let plan = publish(&mut table, &wanted);
    assert_eq!(plan.stages.len(), 1);
    assert_eq!(generations(&table), [1, 1]);
    let slice = &table.slices["a"];
    assert_eq!(slice.spec.node_name.as_deref(), Some("n"));
    assert_eq!(slice.spec.pool.name, "gpu.tessera.dev/n");
    assert_eq!(slice.spec.pool.resource_slice_count, 2);
    assert_eq!(slice.metadata.owner_references, Some(vec![owner("node-uid")]));
    assert!(plan_for(&table, &wanted).is_empty());
}

#[test]
fn one_slice_that_changed_is_one_write_at_the_same_generation() {
    let mut table = Table::default();
    publish(&mut table, &[desired("a", "x"), desired("b", "y")]);
    let plan = publish(&mut table, &[desired("a", "x"), desired("b", "z")]);
    assert_eq!(plan.writes().count(), 1);
    assert_eq!(generations(&table), [1, 1]);
}

#[test]
fn two_slices_that_changed_or_another_number_of_them_is_a_new_generation() {
    let mut table = Table::default();
    publish(&mut table, &[desired("a", "x"), desired("b", "y")]);
    assert_eq!(publish(&mut table, &[desired("a", "1"), desired("b", "2")]).writes().count(), 2);
    assert_eq!(generations(&table), [2, 2]);
    assert_eq!(
        publish(&mut table, &[desired("a", "1"), desired("b", "2"), desired("c", "3")]).writes().count(),
        3
    );
    assert_eq!(generations(&table), [3, 3, 3]);
    let plan = publish(&mut table, &[desired("c", "3")]);
    assert_eq!(plan.writes().count(), 3);
    assert!(matches!(plan.stages.last().expect("stages")[0], Write::Delete(_)), "what goes, goes last");
    assert_eq!(generations(&table), [4]);
}

#[test]
fn what_was_wiped_comes_back_with_the_generation_it_had() {
    let mut table = Table::default();
    let wanted = [desired("a", "x"), desired("b", "y")];
    let plan = plan(&identity(), &owner("node-uid"), &[], &wanted, Some(7));
    plan.writes().for_each(|write| table.write(write));
    assert_eq!(generations(&table), [7, 7]);
    table.slices.remove("a");
    assert_eq!(publish(&mut table, &wanted).writes().count(), 1);
    assert_eq!(generations(&table), [7, 7]);
}

#[test]
fn a_higher_foreign_generation_is_honoured() {
    let mut table = Table::default();
    let wanted = [desired("a", "x"), desired("b", "y")];
    publish(&mut table, &wanted);
    table.slices.get_mut("a").expect("a").spec.pool.generation = 40;
    publish(&mut table, &wanted);
    assert_eq!(generations(&table), [40, 40]);
    for slice in table.slices.values_mut() {
        slice.spec.pool.generation = 50;
        slice.spec.devices = None;
    }
    publish(&mut table, &wanted);
    assert_eq!(generations(&table), [51, 51]);
}

#[test]
fn a_generation_that_cannot_be_raised_is_left_by_starting_over() {
    let mut table = Table::default();
    let wanted = [desired("a", "x"), desired("b", "y")];
    publish(&mut table, &wanted);
    for slice in table.slices.values_mut() {
        slice.spec.pool.generation = i64::MAX;
        slice.spec.devices = None;
    }
    publish(&mut table, &wanted);
    assert_eq!(generations(&table), [1, 1]);
    assert!(plan_for(&table, &wanted).is_empty());
}

#[test]
fn a_node_that_was_made_anew_owns_its_slices_without_a_new_generation() {
    let mut table = Table::default();
    let wanted = [desired("a", "x"), desired("b", "y")];
    publish(&mut table, &wanted);
    let plan = plan_with(&table, "another-uid", &wanted, Some(1));
    plan.writes().for_each(|write| table.write(write));
    assert_eq!(generations(&table), [1, 1]);
    assert_eq!(table.slices["b"].metadata.owner_references, Some(vec![owner("another-uid")]));
}

#[test]
fn annotations_change_in_place_and_those_of_others_stay() {
    let said = |mut slice: DesiredSlice, text: &str| {
        slice.annotations.insert("example.com/report".to_owned(), text.to_owned());
        slice
    };
    let held = |table: &Table, name: &str, key: &str| {
        let annotations = table.slices[name].metadata.annotations.clone().unwrap_or_default();
        annotations.get(key).cloned()
    };
    let mut table = Table::default();
    publish(&mut table, &[said(desired("a", "x"), "one"), desired("b", "y")]);
    assert_eq!(held(&table, "a", "example.com/report").as_deref(), Some("one"));
    let foreign = [("team".to_owned(), "a".to_owned())];
    table.slices.get_mut("a").unwrap().metadata.annotations.get_or_insert_default().extend(foreign);
    assert!(plan_for(&table, &[said(desired("a", "x"), "one"), desired("b", "y")]).is_empty());

    let plan = publish(&mut table, &[said(desired("a", "x"), "two"), desired("b", "y")]);
    let written: Vec<&str> = plan.writes().map(Write::name).collect();
    assert_eq!((written, generations(&table)), (vec!["a"], vec![1, 1]));
    assert_eq!(held(&table, "a", "example.com/report").as_deref(), Some("two"));

    // Another slice has it now: it is on no other.
    publish(&mut table, &[desired("a", "x"), said(desired("b", "y"), "two")]);
    assert_eq!((held(&table, "a", "example.com/report"), generations(&table)), (None, vec![1, 1]));
    assert_eq!(held(&table, "b", "example.com/report").as_deref(), Some("two"));
    assert_eq!(held(&table, "a", "team").as_deref(), Some("a"));
}

#[test]
fn taints_that_stay_keep_their_times_and_others_metadata_stays() {
    let tainted = |more: &[&str]| {
        let taint = |key: &str| DeviceTaint {
            key: key.into(),
            effect: "NoSchedule".into(),
            ..DeviceTaint::default()
        };
        let mut device = device("x");
        device.taints = Some(more.iter().map(|key| taint(key)).collect());
        slice_of("a", vec![device])
    };
    let mut table = Table::default();
    publish(&mut table, &[tainted(&["lost"])]);
    let slice = table.slices.get_mut("a").expect("a");
    let time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time =
        serde_json::from_str("\"2026-11-21T10:00:00Z\"").expect("a time");
    slice.spec.devices.as_mut().expect("devices")[0].taints.as_mut().expect("taints")[0].time_added =
        Some(time.clone());
    slice.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
    assert!(plan_for(&table, &[tainted(&["lost"])]).is_empty(), "the server fills in times");
    publish(&mut table, &[tainted(&["lost", "hot"])]);
    let slice = &table.slices["a"];
    let times: Vec<_> = slice.spec.devices.as_ref().expect("devices")[0]
        .taints
        .as_ref()
        .expect("taints")
        .iter()
        .map(|taint| taint.time_added.clone())
        .collect();
    assert_eq!(times, [Some(time), None]);
    assert!(slice.metadata.labels.is_some());
}

/// Slices as anybody may have left them.
fn any_slice() -> impl Strategy<Value = (String, ResourceSlice)> {
    let generation = prop_oneof![8 => 0_i64..4, 1 => Just(i64::MAX)];
    ("[a-e]", generation, 1_i64..5, "[xyz]", any::<bool>(), prop_oneof![4 => Just(true), 1 => Just(false)])
        .prop_map(|(name, generation, count, contents, owned, ours)| {
            let mut slice = ResourceSlice::default();
            slice.metadata.name = Some(name.clone());
            slice.metadata.owner_references = owned.then(|| vec![owner("node-uid")]);
            slice.spec = identity().spec(generation, count);
            slice.spec.devices = Some(vec![device(&contents)]);
            if !ours {
                slice.spec.pool.name = "another".into();
            }
            (name, slice)
        })
}

fn any_table() -> impl Strategy<Value = Table> {
    prop::collection::vec(any_slice(), 0..6).prop_map(|slices| {
        let mut table = Table::default();
        slices.into_iter().for_each(|(_, slice)| table.put(slice));
        table
    })
}

fn any_desired() -> impl Strategy<Value = Vec<DesiredSlice>> {
    prop::collection::btree_map("[a-e]", "[xyz]", 0..5)
        .prop_map(|slices| slices.iter().map(|(name, contents)| desired(name, contents)).collect())
}

/// A table as this plugin or a crash of it leaves it: publications one after another, the last cut off anywhere.
fn any_history() -> impl Strategy<Value = (Table, Vec<DesiredSlice>)> {
    (prop::collection::vec(any_desired(), 1..4), 0_usize..12, any_desired()).prop_map(
        |(history, cut, next)| {
            let mut table = Table::default();
            let (last, before) = history.split_last().expect("not empty");
            for desired in before {
                publish(&mut table, desired);
            }
            plan_for(&table, last).writes().take(cut).for_each(|write| table.write(write));
            (table, next)
        },
    )
}

fn contents(desired: &[DesiredSlice]) -> BTreeMap<String, Option<Vec<Device>>> {
    let devices = |slice: &DesiredSlice| Some(slice.contents.devices());
    desired.iter().map(|slice| (slice.name.clone(), devices(slice))).collect()
}

/// Carries out `plan` in an order that `shuffle` picks inside each stage, and looks after every write.
fn each_step(table: &mut Table, plan: &Plan, shuffle: usize, mut look: impl FnMut(&Table)) {
    for stage in &plan.stages {
        let mut stage: Vec<&Write> = stage.iter().collect();
        let mut seed = shuffle;
        while !stage.is_empty() {
            let write = stage.remove(seed % stage.len());
            seed = seed / 7 + 1;
            table.write(write);
            look(table);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_state_becomes_the_desired_one_in_one_round((mut table, wanted, shuffle) in (any_table(), any_desired(), any::<usize>())) {
        let plan = plan_for(&table, &wanted);
        each_step(&mut table, &plan, shuffle, |_| {});
        prop_assert!(plan_for(&table, &wanted).is_empty());
        prop_assert_eq!(table.slices.len(), wanted.len());
        if !wanted.is_empty() {
            prop_assert_eq!(table.seen(), Some(contents(&wanted)));
            prop_assert_eq!(plan.generation, generations(&table).first().copied());
        }
        for (slice, held) in wanted.iter().zip(table.all(&wanted)) {
            prop_assert_eq!(held.name(), &slice.name);
            prop_assert_eq!(held.spec.unwrap().contents, HeldContents::Same(slice.contents.clone()));
            prop_assert_eq!(&held.metadata.owner_references, &Some(vec![owner("node-uid")]));
        }
    }

    #[test]
    fn readers_see_the_old_pool_or_the_new_one_and_never_a_mixture(((mut table, wanted), shuffle) in (any_history(), any::<usize>())) {
        let before = table.seen();
        let plan = plan_for(&table, &wanted);
        let mut seen = Vec::new();
        each_step(&mut table, &plan, shuffle, |table| seen.push(table.seen()));
        for seen in seen.into_iter().flatten() {
            // While the last slices of a pool that ends are deleted, the rest may still look whole.
            let part_of_before = before.as_ref().is_some_and(|before| seen.iter().all(|(name, devices)| before.get(name) == Some(devices)));
            prop_assert!(seen == contents(&wanted) || part_of_before, "{seen:?}");
        }
    }

    #[test]
    fn what_is_published_changes_with_as_few_writes_as_can_be((first, second) in (any_desired(), any_desired())) {
        let mut table = Table::default();
        publish(&mut table, &first);
        let plan = plan_for(&table, &second);
        let (first, second) = (contents(&first), contents(&second));
        let names_changed = !first.keys().eq(second.keys());
        let changed = second.iter().filter(|(name, devices)| first.get(*name) != Some(devices)).count();
        let expected = if !names_changed && changed <= 1 {
            changed
        } else {
            second.len() + first.keys().filter(|name| !second.contains_key(*name)).count()
        };
        prop_assert_eq!(plan.writes().count(), expected);
    }
}
