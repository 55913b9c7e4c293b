//! Journals from the disks of nodes: recorded ones are understood, and today's are understood by the
//! version of the recorded ones.
//!
//! `RECORD_JOURNALS=1 cargo test -p tessera-kubelet-plugin --test prepare recorded` writes missing recordings. An existing one
//! is never changed: a form no longer written is still on some disk.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::storage::kinds;
use crate::support::{Node, claim, names, prepare, unprepare};

/// Stands for the node's directory, different each time.
const DIRECTORY: &str = "$(NODE)";

fn hardware(node: &Node) -> PathBuf {
    node.path().join("kubelet/plugins/gpu.tessera.dev/journal/hardware")
}

fn read(path: &Path, node: &Node) -> Value {
    let text = fs::read_to_string(path).unwrap().replace(&*node.path().to_string_lossy(), DIRECTORY);
    serde_json::from_str(&text).unwrap()
}

fn write(path: &Path, node: &Node, value: &Value) {
    let text = value.to_string().replace(DIRECTORY, &node.path().to_string_lossy());
    fs::write(path, text).unwrap();
}

/// Everything on the disk for the claim `mine`.
fn on_disk(node: &Node) -> Value {
    let mine = claim("mine");
    let records: Map<String, Value> = names(&hardware(node))
        .into_iter()
        .map(|name| (name.clone(), read(&hardware(node).join(&name), node)))
        .collect();
    json!({
        "claim": read(&node.record_path(&mine), node),
        "spec": read(&node.spec_path(&mine), node),
        "hardware": records,
    })
}

/// Replaces everything on the disk.
fn put(node: &Node, state: &Value) {
    let mine = claim("mine");
    write(&node.record_path(&mine), node, &state["claim"]);
    write(&node.spec_path(&mine), node, &state["spec"]);
    for name in names(&hardware(node)) {
        fs::remove_file(hardware(node).join(name)).unwrap();
    }
    for (name, record) in state["hardware"].as_object().unwrap() {
        write(&hardware(node).join(name), node, record);
    }
}

/// Whether `new` has everything in `old`, with the same values.
fn has_all_of(new: &Value, old: &Value, place: &str) {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            for (key, old) in old {
                let new = new.get(key).unwrap_or_else(|| panic!("{place}.{key} is not written any more"));
                has_all_of(new, old, &format!("{place}.{key}"));
            }
        }
        (Value::Array(new), Value::Array(old)) => {
            assert_eq!(new.len(), old.len(), "{place}");
            for (index, (new, old)) in new.iter().zip(old).enumerate() {
                has_all_of(new, old, &format!("{place}[{index}]"));
            }
        }
        _ => assert_eq!(new, old, "{place}"),
    }
}

/// The same state with a field of a later version in each record.
fn with_later_fields(state: &Value) -> Value {
    let mut state = state.clone();
    let later = json!({"of": ["a", "later", "version"]});
    state["claim"]["later"] = later.clone();
    for device in state["claim"]["devices"].as_array_mut().unwrap() {
        device["later"] = later.clone();
    }
    for (_, record) in state["hardware"].as_object_mut().unwrap() {
        record["later"] = later.clone();
        record["change"]["later"] = later.clone();
    }
    state
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_journals_are_understood_and_todays_by_the_version_before() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journals-1");
    let nodes = || kinds().into_iter();
    for ((kind, node, allocated), has_later) in
        nodes().map(|node| (node, false)).chain(nodes().map(|node| (node, true)))
    {
        let file = folder.join(format!("{}.json", kind.replace(' ', "-").to_lowercase()));
        let mine = claim("mine");
        node.api.put(&mine, vec![allocated]);
        let preparer = node.start().await;
        let mut devices = prepare(&preparer, &mine).await.unwrap();
        let written = on_disk(&node);
        if !file.exists() && std::env::var_os("RECORD_JOURNALS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, serde_json::to_string_pretty(&written).unwrap() + "\n").unwrap();
        }
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let recorded: Value = serde_json::from_str(&text).unwrap();
        has_all_of(&written["claim"], &recorded["claim"], kind);
        has_all_of(&written["hardware"], &recorded["hardware"], kind);
        drop(preparer);

        // Claims prepared by the version before are prepared; a later version's fields are kept; the end leaves nothing.
        let state = if has_later { with_later_fields(&recorded) } else { recorded };
        put(&node, &state);
        let preparer = node.start().await;
        // The version before told containers nothing about their devices.
        devices.iter_mut().for_each(|device| device.cdi_device_ids.truncate(1));
        assert_eq!(prepare(&preparer, &mine).await.unwrap(), devices, "{kind}");
        assert_eq!(on_disk(&node)["claim"], state["claim"], "{kind}");
        assert_eq!(on_disk(&node)["hardware"], state["hardware"], "{kind}");
        unprepare(&preparer, &mine).await.unwrap();
        assert!(node.settled().is_empty(), "{kind}");
        assert_eq!(names(&hardware(&node)), [""; 0], "{kind}");
    }
}
