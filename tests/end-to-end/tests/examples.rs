//! The folders of `examples/`: each has a README, each file has kinds that Kubernetes knows, and each is applied by the
//! demo or by a test on a cluster. Those check the results.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests have no #[test]"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::Job,
    core::v1::{Namespace, Pod, Service},
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
    scheduling::v1::PriorityClass,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tessera_api::{GpuPoolSpec, GpuQuotaSpec};
use tessera_harness::workspace;

fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn folders() -> Vec<PathBuf> {
    let folders = in_folder(&workspace::root().join("examples"));
    folders.into_iter().filter(|path| path.is_dir()).collect()
}

fn manifests() -> Vec<PathBuf> {
    let files = folders().into_iter().flat_map(|folder| in_folder(&folder));
    files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect()
}

fn in_repository(path: &Path) -> &str {
    path.strip_prefix(workspace::root()).unwrap().to_str().unwrap()
}

/// The text of all sources in these folders, and in the folders within them.
fn sources(folder: &Path) -> String {
    let texts = in_folder(folder).into_iter().map(|path| match path.extension() {
        _ if path.is_dir() => sources(&path),
        Some(extension) if extension == "rs" => fs::read_to_string(path).unwrap(),
        _ => String::new(),
    });
    texts.collect()
}

/// Fields that the object's type does not know, for example misspelt ones.
fn unknown_fields<T: DeserializeOwned + Serialize>(object: &Value) -> Vec<String> {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"));
    let mut unknown = Vec::new();
    compare(object, &serde_json::to_value(typed).unwrap(), "", &mut unknown);
    unknown
}

fn compare(written: &Value, known: &Value, place: &str, unknown: &mut Vec<String>) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written {
                let place = format!("{place}.{key}");
                compare(value, known.get(key).unwrap_or(&Value::Null), &place, unknown);
            }
        }
        (Value::Array(written), Value::Array(known)) if written.len() == known.len() => {
            for (index, (written, known)) in written.iter().zip(known).enumerate() {
                compare(written, known, &format!("{place}[{index}]"), unknown);
            }
        }
        _ if written == known => {}
        _ => unknown.push(place.to_owned()),
    }
}

/// The API's types have quantities as strings, but manifests may have numbers.
fn quantities_as_texts(object: &mut Value) {
    for (key, value) in object.as_object_mut().into_iter().flatten() {
        if key == "limits" {
            for quantity in value.as_object_mut().unwrap().values_mut() {
                if quantity.is_number() {
                    *quantity = Value::String(quantity.to_string());
                }
            }
        }
        quantities_as_texts(value);
        value.as_array_mut().into_iter().flatten().for_each(quantities_as_texts);
    }
}

#[test]
fn each_folder_says_what_it_shows() {
    for folder in folders() {
        assert!(folder.join("README.md").is_file(), "{} has no README.md", in_repository(&folder));
    }
    let readme = fs::read_to_string(workspace::root().join("examples/README.md")).unwrap();
    for folder in folders() {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(readme.contains(&format!("]({name}/README.md)")), "examples/README.md does not name {name}");
    }
}

#[test]
fn each_file_is_of_known_kinds_and_fields() {
    for path in manifests() {
        let text = fs::read_to_string(&path).unwrap();
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert!(!objects.is_empty(), "{}", path.display());
        for object in &mut objects {
            quantities_as_texts(object);
            let kind = (object["apiVersion"].as_str(), object["kind"].as_str());
            let unknown = match kind {
                (Some("resource.k8s.io/v1"), Some("ResourceClaim")) => {
                    unknown_fields::<ResourceClaim>(object)
                }
                (Some("resource.k8s.io/v1"), Some("ResourceClaimTemplate")) => {
                    unknown_fields::<ResourceClaimTemplate>(object)
                }
                (Some("v1"), Some("Pod")) => unknown_fields::<Pod>(object),
                // Not of Kubernetes' own: kubectl refuses unknown fields where a test applies these.
                (Some("jobset.x-k8s.io/v1alpha2"), Some("JobSet"))
                | (Some("leaderworkerset.x-k8s.io/v1"), Some("LeaderWorkerSet"))
                | (Some("ray.io/v1"), Some("RayCluster")) => Vec::new(),
                (Some("v1"), Some("Service")) => unknown_fields::<Service>(object),
                (Some("v1"), Some("Namespace")) => unknown_fields::<Namespace>(object),
                (Some("batch/v1"), Some("Job")) => unknown_fields::<Job>(object),
                (Some("apps/v1"), Some("Deployment")) => unknown_fields::<Deployment>(object),
                (Some("scheduling.k8s.io/v1"), Some("PriorityClass")) => {
                    unknown_fields::<PriorityClass>(object)
                }
                (Some("apps/v1"), Some("StatefulSet")) => unknown_fields::<StatefulSet>(object),
                (Some("gpu.tessera.dev/v1alpha1"), Some("GpuPool")) => GpuPoolSpec::decode(&object["spec"])
                    .err()
                    .into_iter()
                    .map(|error| error.to_string())
                    .collect(),
                (Some("gpu.tessera.dev/v1alpha1"), Some("GpuQuota")) => {
                    let decoded = GpuQuotaSpec::decode(&object["spec"]);
                    decoded.err().into_iter().map(|error| error.to_string()).collect()
                }
                _ => panic!("{}: {kind:?} is no kind that this test knows", in_repository(&path)),
            };
            assert_eq!(unknown, [""; 0], "{}: unknown fields", in_repository(&path));
        }
    }
}

#[test]
fn the_readme_quotes_files() {
    let readme = fs::read_to_string(workspace::root().join("README.md")).unwrap();
    let quotes: Vec<&str> =
        readme.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let files: Vec<String> = manifests().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    assert_eq!(quotes.len(), 3, "a whole card, a partition, a share");
    for quote in quotes {
        assert!(files.iter().any(|file| file.starts_with(quote)), "no file begins with {quote}");
    }
}

#[test]
fn each_file_is_submitted_by_the_demo_or_a_test() {
    let this =
        fs::read_to_string(workspace::root().join("tests/end-to-end").join("tests/examples.rs")).unwrap();
    let root = workspace::root();
    let users: String = ["tests/tasks/src", "tests/end-to-end/tests", "controller/tests"]
        .map(|folder| sources(&root.join(folder)))
        .concat();
    let users = users.replace(&this, "");
    // These are simulated, from their folder.
    let simulated = fs::read_to_string(root.join("cli/tests/golden_simulate.rs")).unwrap();
    let is_used = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_simulated = path.parent().is_some_and(|folder| folder.ends_with("examples/simulate"));
        users.contains(in_repository(path)) || is_simulated && simulated.contains(&format!("\"{name}\""))
    };
    let unused: BTreeSet<PathBuf> = manifests().into_iter().filter(|path| !is_used(path)).collect();
    assert_eq!(unused, BTreeSet::new(), "nothing submits these");
}
