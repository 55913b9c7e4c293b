//! `kubectl gpu migrate` on clusters of others (`tests/migrate/README.md`).

use std::fs;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::program::{folder, golden_in, run_in};

const PLACE: &str = "migrate";

fn release(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder().join(format!("migrate/{name}-release.json"))).unwrap())
        .unwrap()
}

/// The Secret that helm keeps a release in.
fn secret(release: &Value) -> Value {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(release.to_string().as_bytes()).unwrap();
    with_data(release, &STANDARD.encode(STANDARD.encode(packer.finish().unwrap())))
}

fn with_data(release: &Value, data: &str) -> Value {
    let (name, version) = (release["name"].as_str().unwrap(), release["version"].as_u64().unwrap());
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": format!("sh.helm.release.v1.{name}.v{version}"),
            "namespace": release["namespace"],
            "labels": { "name": name, "owner": "helm", "status": "deployed", "version": version.to_string() },
        },
        "type": "helm.sh/release.v1",
        "data": { "release": data },
    })
}

fn all(from: &str) {
    let helm = secret(&release(from)).to_string();
    let file = format!("{from}.yaml");
    let arguments = ["migrate", "--from", from, "-f", &file, "-f", "-"];
    golden_in(PLACE, &format!("migrate-{from}"), &arguments, &helm);
    let with = |format| [&arguments[..], &["-o", format]].concat();
    golden_in(PLACE, &format!("migrate-{from}-values"), &with("values"), &helm);
    let manifests = run_in(PLACE, &with("yaml"), &helm);
    let manifests = String::from_utf8(manifests.stdout).unwrap();
    // Read as strictly as the API server does, and no pool has a status yet.
    let read = run_in(PLACE, &["pools", "-f", "-", "-o", "json"], &manifests);
    assert_eq!(read.status.code(), Some(1), "{manifests}{}", String::from_utf8_lossy(&read.stderr));
    assert!(read.stderr.is_empty(), "{}", String::from_utf8_lossy(&read.stderr));
    let plan: Value = serde_json::from_slice(&run_in(PLACE, &with("json"), &helm).stdout).unwrap();
    let pools: Vec<Value> = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(pools.len(), plan["pools"].as_array().unwrap().len());
    assert!(!pools.is_empty());
    // Everything that the JSON says is in the text, too.
    let text = String::from_utf8(run_in(PLACE, &arguments, &helm).stdout).unwrap();
    for note in plan["notes"].as_array().unwrap() {
        assert!(text.contains(note["what"].as_str().unwrap()), "{note}");
    }
}

#[test]
fn from_nvidias_dra_driver() {
    all("nvidia-dra");
}

#[test]
fn from_the_device_plugin() {
    all("device-plugin");
}

#[test]
fn from_the_gpu_operator() {
    all("gpu-operator");
}

/// Whoever asks again halfway gets the same values, whatever the steps have changed.
#[test]
fn halfway_the_values_are_the_same() {
    let values = |release: &Value| {
        let arguments =
            ["migrate", "--from", "nvidia-dra", "-o", "values", "-f", "nvidia-dra.yaml", "-f", "-"];
        String::from_utf8(run_in(PLACE, &arguments, &secret(release).to_string()).stdout).unwrap()
    };
    let before = release("nvidia-dra");
    let mut halfway = before.clone();
    halfway["version"] = 4.into();
    halfway["config"]["kubeletPlugin"]["nodeSelector"]["gpu.tessera.dev/moved-in"] = "no".into();
    assert!(!values(&before).is_empty());
    assert_eq!(values(&before), values(&halfway));
}

/// As for somebody who may not read Secrets, or where nobody used helm.
#[test]
fn without_a_release() {
    let from = "device-plugin";
    golden_in(PLACE, "migrate-static", &["migrate", "--from", from, "-f", "device-plugin-static.yaml"], "");
    let operator = ["migrate", "--from", "gpu-operator", "-f", "gpu-operator.yaml", "-o", "json"];
    let plan: Value = serde_json::from_slice(&run_in(PLACE, &operator, "").stdout).unwrap();
    let with = secret(&release("gpu-operator")).to_string();
    let with: Value =
        serde_json::from_slice(&run_in(PLACE, &[&operator[..], &["-f", "-"]].concat(), &with).stdout)
            .unwrap();
    assert_eq!(plan["values"], with["values"], "the ClusterPolicy says the same");
    assert_eq!(plan["pools"], with["pools"]);
}

#[test]
fn what_cannot_be_read_is_named() {
    let nodes = "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\n";
    let said = |from: &str, input: &str| {
        let output = run_in(PLACE, &["migrate", "--from", from, "-f", "-"], input);
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    };
    for (from, words) in [
        ("nvidia-dra", "no helm release of dra-driver-nvidia-gpu or nvidia-dra-driver-gpu"),
        ("device-plugin", "no helm release of nvidia-device-plugin"),
        ("gpu-operator", "no ClusterPolicy"),
    ] {
        let error = said(from, nodes);
        assert!(error.contains(" was not found: ") && error.contains(words), "{error}");
    }
    let whole = release("device-plugin");
    for (data, words) in [
        ("%%%", "Secret nvidia-device-plugin/sh.helm.release.v1.nvdp.v1 is not a helm release: Invalid"),
        (&STANDARD.encode("%%%"), "is not a helm release: Invalid"),
        (&STANDARD.encode(STANDARD.encode([0x1f, 0x8b, 1, 2])), "is not a helm release: "),
        (&STANDARD.encode(STANDARD.encode("{")), "is not a helm release: EOF while parsing"),
        ("", "it has no data.release"),
    ] {
        let error = said("device-plugin", &with_data(&whole, data).to_string());
        assert!(error.contains(words), "{data}: {error}");
    }
    let mut broken = whole.clone();
    broken["config"]["config"]["map"]["slices"] = "sharing: [".into();
    let error = said("device-plugin", &secret(&broken).to_string());
    assert!(error.contains("the values of the release, slices: "), "{error}");
    broken["config"]["config"]["map"]["slices"] =
        "sharing: {timeSlicing: {resources: [{replicas: many}]}}".into();
    let error = said("device-plugin", &secret(&broken).to_string());
    assert!(
        error.contains("the values of the release, slices: ") && error.contains("invalid u32"),
        "{error}"
    );
    let mut second = whole.clone();
    second["namespace"] = "other".into();
    let two = format!("{}\n{}", secret(&whole), secret(&second));
    let error = said("device-plugin", &two);
    assert!(
        error.contains("there are several: ") && error.contains("choose one with -n NAMESPACE"),
        "{error}"
    );
    let one = run_in(PLACE, &["migrate", "--from", "device-plugin", "-n", "other", "-f", "-"], &two);
    assert_eq!(one.status.code(), Some(0), "{}", String::from_utf8_lossy(&one.stderr));
    let layouts = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: cluster-policy}\nspec: {migManager: {config: {name: \
                   l}}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: l, namespace: gpu-operator}\ndata: {config.yaml: 'hello: \
                   world'}\n";
    let error = said("gpu-operator", layouts);
    assert!(error.contains("ConfigMap gpu-operator/l, config.yaml: it has no mig-configs"), "{error}");
}

/// A few KiB that unpack to more than a machine has.
#[test]
fn a_bomb_in_place_of_a_release_is_refused() {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    let spaces = vec![b' '; 1 << 20];
    for _ in 0..80 {
        packer.write_all(&spaces).unwrap();
    }
    let data = STANDARD.encode(STANDARD.encode(packer.finish().unwrap()));
    let secret = with_data(&release("device-plugin"), &data);
    let output = run_in(PLACE, &["migrate", "--from", "device-plugin", "-f", "-"], &secret.to_string());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("it unpacks to more than 64 MiB"), "{said}");
}
