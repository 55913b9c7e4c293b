//! Our knowledge of this driver's slices of this node on the API server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::resource::v1::ResourceSlice, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{core::PartialObjectMeta, runtime::watcher::Event};

use crate::held_slice::HeldSlice;

/// An event of the watch, with a slice's metadata.
pub type SliceMetadata = PartialObjectMeta<ResourceSlice>;

/// The slices of one driver on one node: from the watch, and from the answers to our own requests, which come earlier.
///
/// The watch shows the existing slices, and by their resource versions any changes since the last read or write.
#[derive(Debug, Default)]
pub struct Store {
    slices: BTreeMap<String, HeldSlice>,
    /// UIDs of deleted slices. The watch may still send older events about them.
    deleted: BTreeSet<String>,
    /// The list being received.
    listing: Option<Listing>,
    complete: bool,
}

/// A partly received list.
#[derive(Debug, Default)]
struct Listing {
    slices: BTreeMap<String, ObjectMeta>,
    /// Names of slices read or written since the list was requested: the list may be older.
    since: BTreeSet<String>,
}

impl Store {
    /// Whether a complete list has been received. Until then, unknown slices may exist.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// All slices, by name.
    pub fn iter(&self) -> impl Iterator<Item = &HeldSlice> {
        self.slices.values()
    }

    /// All slices, by name.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut HeldSlice> {
        self.slices.values_mut()
    }

    /// Names of the slices to be read.
    #[must_use]
    pub fn unread(&self) -> Vec<String> {
        self.iter().filter(|slice| slice.spec.is_none()).map(|slice| slice.name().to_owned()).collect()
    }

    /// The slice called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&HeldSlice> {
        self.slices.get(name)
    }

    /// Handles an event of the watch.
    pub fn observe(&mut self, event: Event<SliceMetadata>) {
        match event {
            Event::Init => self.listing = Some(Listing::default()),
            Event::InitApply(SliceMetadata { metadata, .. }) => {
                let listing = self.listing.get_or_insert_default();
                listing.slices.insert(name_of(&metadata).to_owned(), metadata);
            }
            Event::InitDone => {
                let Listing { slices: listed, since } = self.listing.take().unwrap_or_default();
                self.slices.retain(|name, slice| {
                    // Only another read shows whether the list or the answer to our request was first.
                    if !listed.contains_key(name) {
                        slice.spec = None;
                    }
                    listed.contains_key(name) || since.contains(name)
                });
                self.deleted.retain(|uid| listed.values().any(|listed| listed.uid.as_ref() == Some(uid)));
                listed.into_values().for_each(|metadata| self.apply(HeldSlice::unread(metadata)));
                self.complete = true;
            }
            Event::Apply(SliceMetadata { metadata, .. }) => self.apply(HeldSlice::unread(metadata)),
            Event::Delete(SliceMetadata { metadata, .. }) => {
                let name = name_of(&metadata);
                if self.get(name).is_some_and(|known| known.metadata.uid == metadata.uid) {
                    self.slices.remove(name);
                }
                if let Some(uid) = &metadata.uid {
                    self.deleted.remove(uid);
                }
            }
        }
    }

    /// Stores a slice from the server, unless the same or a newer version is known.
    pub fn apply(&mut self, slice: HeldSlice) {
        if slice.metadata.uid.as_ref().is_some_and(|uid| self.deleted.contains(uid)) {
            return;
        }
        if let Some(known) = self.get(slice.name())
            && known.metadata.uid == slice.metadata.uid
        {
            let is_known =
                slice.spec.is_none() && known.metadata.resource_version == slice.metadata.resource_version;
            if is_known || version(known) > version(&slice) {
                return;
            }
        }
        if let Some(listing) = &mut self.listing {
            listing.since.insert(slice.name().to_owned());
        }
        self.slices.insert(slice.name().to_owned(), slice);
    }

    /// Removes a deleted or missing slice.
    pub fn remove(&mut self, metadata: &ObjectMeta) {
        if let Some(uid) = &metadata.uid {
            self.deleted.insert(uid.clone());
        }
        let name = name_of(metadata);
        if self.get(name).is_some_and(|known| known.metadata.uid == metadata.uid) {
            self.slices.remove(name);
        }
    }
}

fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// Resource versions of one object compare as numbers (guaranteed since Kubernetes 1.35, and always so with etcd). A
/// version in another form counts as older, so that the watch decides.
fn version(slice: &HeldSlice) -> u128 {
    slice.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, uid: &str, version: u32) -> HeldSlice {
        let mut slice = ResourceSlice::default();
        slice.metadata.name = Some(name.to_owned());
        slice.metadata.uid = Some(uid.to_owned());
        slice.metadata.resource_version = Some(version.to_string());
        slice.into()
    }

    fn told(name: &str, uid: &str, version: u32) -> SliceMetadata {
        SliceMetadata { metadata: slice(name, uid, version).metadata, ..SliceMetadata::default() }
    }

    fn held(store: &Store) -> Vec<(String, String)> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        store.iter().map(|s| (text(&s.metadata.name), text(&s.metadata.resource_version))).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
    }

    #[test]
    fn late_echoes_of_our_own_writes_change_nothing() {
        let mut store = Store::default();
        store.apply(slice("a", "1", 10));
        store.observe(Event::Apply(told("a", "1", 9)));
        assert_eq!(held(&store), pairs(&[("a", "10")]));
        store.remove(&slice("a", "1", 10).metadata);
        store.observe(Event::Apply(told("a", "1", 10)));
        assert_eq!(held(&store), []);
        store.apply(slice("a", "2", 12));
        store.observe(Event::Delete(told("a", "1", 11)));
        assert_eq!(held(&store), pairs(&[("a", "12")]));
    }

    #[test]
    fn what_has_another_version_than_was_read_or_written_is_to_be_read() {
        let mut store = Store::default();
        store.apply(slice("a", "1", 10));
        store.observe(Event::Apply(told("a", "1", 10)));
        assert_eq!(store.unread(), [""; 0]);
        store.observe(Event::Apply(told("a", "1", 11)));
        store.observe(Event::Apply(told("b", "2", 12)));
        assert_eq!(store.unread(), ["a", "b"]);
        store.apply(slice("a", "1", 11));
        assert_eq!(store.unread(), ["b"]);
        store.apply(slice("b", "2", 11));
        assert_eq!(store.unread(), ["b"], "that is what it was before");
    }

    #[test]
    fn a_list_replaces_what_was_known_but_nothing_newer() {
        let mut store = Store::default();
        store.apply(slice("a", "1", 10));
        store.apply(slice("b", "2", 11));
        assert!(!store.is_complete());
        store.observe(Event::Init);
        store.observe(Event::InitApply(told("a", "1", 8)));
        store.observe(Event::InitApply(told("c", "3", 9)));
        assert_eq!(held(&store), pairs(&[("a", "10"), ("b", "11")]));
        store.observe(Event::InitDone);
        assert!(store.is_complete());
        assert_eq!(held(&store), pairs(&[("a", "10"), ("c", "9")]));
    }

    #[test]
    fn a_list_asked_for_before_a_write_does_not_take_the_slice_away() {
        let mut store = Store::default();
        store.apply(slice("old", "1", 9));
        store.observe(Event::Init);
        store.apply(slice("a", "2", 10));
        store.observe(Event::InitDone);
        assert_eq!(held(&store), pairs(&[("a", "10")]));
        assert_eq!(store.unread(), ["a"]);
        store.observe(Event::Init);
        store.observe(Event::InitDone);
        assert_eq!(held(&store), []);
    }
}
