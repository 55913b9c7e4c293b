//! Static MIG layouts of the GPU Operator's MIG manager: mig-parted's file in a ConfigMap, and the nodes' label with a layout's name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Draft, Known, MigrateError, labels};
use crate::foreign;

/// Label with a node's layout. NVIDIA's documentation:
/// <https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html>
const LABEL: &str = "nvidia.com/mig.config";

/// The layout of cards without MIG, where no GpuPool layout is needed.
const DISABLED: &str = "all-disabled";

/// Fields of an entry supported here (docs/mig-layouts.md).
const FIELDS: [&str; 4] = ["device-filter", "devices", "mig-enabled", "mig-devices"];

/// Carries over the layouts of nodes, and the pool following the label.
pub fn carry(
    known: Known<'_>,
    namespace: &str,
    config: Option<&Value>,
    draft: &mut Draft,
) -> Result<(), MigrateError> {
    let default =
        config.and_then(|config| foreign::text(config, "/default")).filter(|name| *name != DISABLED);
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (node, labels) in labels(known) {
        if let Some(layout) = labels.get(LABEL).filter(|layout| **layout != DISABLED) {
            wanted.entry(layout).or_default().insert(node);
        }
    }
    let named = config.and_then(|config| foreign::text(config, "/name"));
    let file = read(known, namespace, named)?;
    let mut carried: BTreeMap<&str, &Value> = BTreeMap::new();
    for layout in wanted.keys().copied().chain(default) {
        match file.layouts.get(layout) {
            Some(entries) => {
                for field in unknown_fields(entries) {
                    draft.note(
                        format!("layout {layout}"),
                        format!(
                            "its field {field} is not supported here: use device-filter or devices instead"
                        ),
                    );
                }
                carried.insert(layout, entries);
            }
            None => {
                let of = wanted.get(layout).map(|nodes| nodes.iter().copied().collect::<Vec<_>>().join(", "));
                draft.note(
                    format!("layout {layout}"),
                    format!(
                        "no ConfigMap has it (from 0.14 the MIG manager generates layouts from the hardware): its \
                         partitions{} stay and are offered; to keep them over a reboot, add the layout to \
                         migLayouts.configs (docs/mig-layouts.md)",
                        of.map(|nodes| format!(" on {nodes}")).unwrap_or_default()
                    ),
                );
            }
        }
    }
    if carried.is_empty() {
        return Ok(());
    }
    draft.found.extend(file.place);
    for (name, entries) in &carried {
        let known: Vec<Value> = entries.as_array().into_iter().flatten().map(only_known).collect();
        draft.values.set(&["migLayouts", "configs", name], known);
    }
    let others = file.layouts.len() - carried.len();
    if others > 0 {
        draft.note(
            "migLayouts",
            format!("{others} more layouts that no node has are left out: migLayouts.configs takes them as they are in the ConfigMap"),
        );
    }
    let names: Vec<&str> = carried.keys().copied().filter(|name| wanted.contains_key(name)).collect();
    let offer = json!({ "partitioning": { "mode": "None" }, "layoutFromNodeLabel": LABEL });
    if !names.is_empty() {
        let selector = json!({ "matchExpressions": [{ "key": LABEL, "operator": "In", "values": names }] });
        draft.pool("mig-layouts", json!({ "priority": 20, "nodeSelector": selector, "offer": offer }))?;
    }
    if let Some(default) = default.filter(|default| carried.contains_key(default)) {
        let selector = json!({ "matchExpressions": [{ "key": LABEL, "operator": "DoesNotExist" }] });
        let offer = json!({ "partitioning": { "mode": "None" }, "layout": default });
        draft.pool(
            "mig-layout-default",
            json!({ "priority": 20, "nodeSelector": selector, "offer": offer }),
        )?;
    }
    Ok(())
}

#[derive(Default)]
struct File {
    place: Option<String>,
    layouts: BTreeMap<String, Value>,
}

/// The named ConfigMap's file, else the operator's default one.
fn read(known: Known<'_>, namespace: &str, name: Option<&str>) -> Result<File, MigrateError> {
    let name = name.unwrap_or("default-mig-parted-config");
    let maps = known.foreign.config_maps.iter();
    let map = maps.into_iter().find(|map| foreign::name(map) == name && foreign::namespace(map) == namespace);
    let Some(text) = map.and_then(|map| map.get("data")?.get("config.yaml")?.as_str()) else {
        return Ok(File::default());
    };
    let place = format!("ConfigMap {namespace}/{name}");
    let wrong =
        |reason: String| MigrateError::Configuration { place: format!("{place}, config.yaml"), reason };
    let file: Value = serde_saphyr::from_str(text)
        .map_err(|error| wrong(error.to_string().lines().next().unwrap_or_default().to_owned()))?;
    let layouts = file
        .get("mig-configs")
        .and_then(Value::as_object)
        .ok_or_else(|| wrong("it has no mig-configs: not a mig-parted file".to_owned()))?;
    let layouts = layouts.iter().map(|(name, entries)| (name.clone(), entries.clone())).collect();
    Ok(File { place: Some(place), layouts })
}

fn unknown_fields(entries: &Value) -> BTreeSet<&str> {
    let fields =
        entries.as_array().into_iter().flatten().filter_map(Value::as_object).flat_map(|entry| entry.keys());
    fields.map(String::as_str).filter(|field| !FIELDS.contains(field)).collect()
}

fn only_known(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.retain(|field, _| FIELDS.contains(&field.as_str()));
    }
    entry
}
