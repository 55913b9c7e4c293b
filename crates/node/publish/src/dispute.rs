//! Describes foreign changes of our slices, and who made them.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    plan::{Plan, Write},
    server::FIELD_MANAGER,
    store::Store,
};

/// Describes what `plan` repairs: which slices somebody else deleted, changed or added.
#[must_use]
pub fn describe(plan: &Plan, store: &Store) -> String {
    let mut deleted = Vec::new();
    let mut others = Vec::new();
    for write in plan.writes() {
        let name = write.name();
        match write {
            Write::Create(_) => deleted.push(name),
            Write::Replace(_) => others.push(format!(
                "{name} was changed by {}",
                manager(store.get(name).map(|slice| &slice.metadata))
            )),
            Write::Delete(metadata) => {
                others.push(format!("{name} was added by {}", manager(Some(metadata))))
            }
        }
    }
    if !deleted.is_empty() {
        let note = "by somebody (a starting kubelet deletes all ResourceSlices of its node)";
        others.insert(0, format!("{} deleted {note}", deleted.join(", ")));
    }
    others.join("; ")
}

/// Who last wrote a slice, by its `managedFields`.
fn manager(metadata: Option<&ObjectMeta>) -> String {
    let entries = metadata.and_then(|metadata| metadata.managed_fields.as_deref()).unwrap_or_default();
    let Some(latest) = entries.iter().filter_map(|entry| entry.time.as_ref()).map(|time| &time.0).max()
    else {
        return "somebody unknown".to_owned();
    };
    let last = entries.iter().filter(|entry| entry.time.as_ref().is_some_and(|time| time.0 == *latest));
    let names: BTreeSet<&str> = last.filter_map(|entry| entry.manager.as_deref()).collect();
    // Times are in whole seconds, so our own write may have the same time as theirs.
    let foreign: Vec<&str> = names.iter().copied().filter(|name| *name != FIELD_MANAGER).collect();
    if foreign.is_empty() {
        // Removing a field leaves no entry, and all instances of this plugin have the same manager name.
        "somebody whom managedFields does not name (who only removes fields leaves no trace there)".to_owned()
    } else {
        format!("field manager {:?}", foreign.join(", "))
    }
}
