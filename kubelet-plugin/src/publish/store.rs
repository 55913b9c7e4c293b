//! What the API server holds of this driver and node, as far as we know.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;

use super::held_slice::HeldSlice;

/// The slices of one driver on one node: from the watch, and from the answers to our own writes, which come earlier.
#[derive(Debug, Default)]
pub struct Store {
    slices: BTreeMap<String, HeldSlice>,
    /// UIDs that we deleted while the watch may still tell of their past.
    deleted: BTreeSet<String>,
    /// A list under way.
    listing: Option<BTreeMap<String, HeldSlice>>,
    complete: bool,
}

impl Store {
    /// Whether a whole list has been seen: before, a missing slice may only be unknown.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// All slices, by name.
    #[must_use]
    pub fn slices(&self) -> Vec<HeldSlice> {
        self.slices.values().cloned().collect()
    }

    /// All slices, by name.
    pub fn iter(&self) -> impl Iterator<Item = &HeldSlice> {
        self.slices.values()
    }

    /// The slice called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&HeldSlice> {
        self.slices.get(name)
    }

    /// Takes in what the watch says.
    pub fn observe(&mut self, event: Event<HeldSlice>) {
        match event {
            Event::Init => self.listing = Some(BTreeMap::new()),
            Event::InitApply(slice) => {
                self.listing.get_or_insert_default().insert(slice.name().to_owned(), slice);
            }
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                self.slices.retain(|name, _| listed.contains_key(name));
                self.deleted
                    .retain(|uid| listed.values().any(|slice| slice.metadata.uid.as_ref() == Some(uid)));
                listed.into_values().for_each(|slice| self.apply(slice));
                self.complete = true;
            }
            Event::Apply(slice) => self.apply(slice),
            Event::Delete(slice) => {
                if self.get(slice.name()).is_some_and(|known| known.metadata.uid == slice.metadata.uid) {
                    self.slices.remove(slice.name());
                }
                if let Some(uid) = &slice.metadata.uid {
                    self.deleted.remove(uid);
                }
            }
        }
    }

    /// Takes in a slice as the server holds it, unless a newer state of it is known.
    pub fn apply(&mut self, slice: HeldSlice) {
        if slice.metadata.uid.as_ref().is_some_and(|uid| self.deleted.contains(uid)) {
            return;
        }
        if let Some(known) = self.get(slice.name())
            && known.metadata.uid == slice.metadata.uid
            && version(known) > version(&slice)
        {
            return;
        }
        self.slices.insert(slice.name().to_owned(), slice);
    }

    /// Forgets the slice with this metadata, which we deleted or found gone.
    pub fn remove(&mut self, metadata: &ObjectMeta) {
        if let Some(uid) = &metadata.uid {
            self.deleted.insert(uid.clone());
        }
        let name = metadata.name.as_deref().unwrap_or_default();
        if self.get(name).is_some_and(|known| known.metadata.uid == metadata.uid) {
            self.slices.remove(name);
        }
    }
}

/// Resource versions of one object compare as numbers (Kubernetes promises so since 1.35, and etcd always did). One that
/// is no number counts as old: the watch has the last word then.
fn version(slice: &HeldSlice) -> u128 {
    slice.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::ResourceSlice;

    use super::*;

    fn slice(name: &str, uid: &str, version: u32) -> HeldSlice {
        let mut slice = ResourceSlice::default();
        slice.metadata.name = Some(name.to_owned());
        slice.metadata.uid = Some(uid.to_owned());
        slice.metadata.resource_version = Some(version.to_string());
        slice.into()
    }

    fn held(store: &Store) -> Vec<(String, String)> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        store.slices().iter().map(|s| (text(&s.metadata.name), text(&s.metadata.resource_version))).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
    }

    #[test]
    fn late_echoes_of_our_own_writes_change_nothing() {
        let mut store = Store::default();
        store.apply(slice("a", "1", 10));
        store.observe(Event::Apply(slice("a", "1", 9)));
        assert_eq!(held(&store), pairs(&[("a", "10")]));
        store.remove(&slice("a", "1", 10).metadata);
        store.observe(Event::Apply(slice("a", "1", 10)));
        assert_eq!(held(&store), []);
        store.apply(slice("a", "2", 12));
        store.observe(Event::Delete(slice("a", "1", 11)));
        assert_eq!(held(&store), pairs(&[("a", "12")]));
    }

    #[test]
    fn a_list_replaces_what_was_known_but_nothing_newer() {
        let mut store = Store::default();
        store.apply(slice("a", "1", 10));
        store.apply(slice("b", "2", 11));
        assert!(!store.is_complete());
        store.observe(Event::Init);
        store.observe(Event::InitApply(slice("a", "1", 8)));
        store.observe(Event::InitApply(slice("c", "3", 9)));
        assert_eq!(held(&store), pairs(&[("a", "10"), ("b", "11")]));
        store.observe(Event::InitDone);
        assert!(store.is_complete());
        assert_eq!(held(&store), pairs(&[("a", "10"), ("c", "9")]));
    }
}
