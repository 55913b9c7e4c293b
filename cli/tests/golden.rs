//! The program on files: what it prints and how it ends, compared with `tests/golden`. After a wanted change:
//! `UPDATE_GOLDEN=1 cargo test -p kubectl-gpu --test golden`, then read the difference.

#![allow(clippy::unwrap_used)] // The helpers are tests too, which clippy does not see.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-gpu"))
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"))
        .env("KUBECONFIG", "no-such-kubeconfig")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn golden(name: &str, arguments: &[&str], input: &str) {
    let output = run(arguments, input);
    let found = format!(
        "$ kubectl gpu {}\n{}{}exit code {}\n",
        arguments.join(" "),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
        output.status.code().unwrap()
    );
    assert!(!found.contains('\u{1b}'), "colours without a terminal");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{name} differs from {}", path.display());
}

const MEMORY: &str = r#"device.attributes["gpu.tessera.dev"].memoryMiB >= 40000"#;

#[test]
fn cel() {
    let some = r#"device.attributes["gpu.tessera.dev"].index < 2"#;
    golden("cel-matches", &["cel", some, "-f", "slices.yaml"], "");
    golden("cel-none", &["cel", "device.driver == 'x'", "-f", "slices.yaml"], "");
    let misspelt = r#"device.attributes["gpu.tessera.dev"].memoryMib >= 40000 && device.driver == "x""#;
    golden("cel-misspelt", &["cel", misspelt, "-f", "slices.yaml", "-v"], "");
    golden("cel-no-selector", &["cel", "device.driver + 1", "-f", "slices.yaml"], "");
    golden("cel-device", &["cel", MEMORY, "-f", "slices.yaml", "--device", "node-a/gpu-18-00"], "");
    golden(
        "cel-device-json",
        &["cel", MEMORY, "-f", "slices.yaml", "--device", "node-b/gpu-18-00", "-o", "json"],
        "",
    );
    golden("cel-device-ambiguous", &["cel", MEMORY, "-f", "slices.yaml", "--device", "gpu-18-00"], "");
}

#[test]
fn allocate() {
    golden("allocate", &["allocate", "-f", "."], "");
    golden("allocate-claim-yaml", &["allocate", "claim/one", "-f", ".", "-o", "yaml"], "");
    golden("allocate-unknown", &["allocate", "pod/trainr", "-f", "."], "");
    golden("allocate-without-cluster", &["allocate", "-f", "waiting.yaml"], "");
}

#[test]
fn explain() {
    golden("explain-in-use", &["explain", "pod/trainer", "-f", "."], "");
    golden("explain-in-use-verbose", &["explain", "pod/trainer", "-f", ".", "-v"], "");
    golden("explain-fits", &["explain", "pod/small", "-f", "."], "");
    golden("explain-selector", &["explain", "claim/large", "-f", "."], "");
    golden("explain-misspelt", &["explain", "claim/misspelt", "-f", "."], "");
    golden("explain-allocated", &["explain", "claim/five", "-n", "research", "-f", "."], "");
}

#[test]
fn explain_shares_counters_taints_and_constraints() {
    for claim in ["wants-whole", "wants-share", "wants-sick", "wants-pair"] {
        let name = format!("explain-{claim}");
        golden(&name, &["explain", &format!("claim/{claim}"), "-f", "../sharing.yaml"], "");
    }
    golden("explain-json", &["explain", "claim/wants-whole", "-f", "../sharing.yaml", "-o", "json"], "");
}

#[test]
fn documents_that_are_no_objects_are_placed() {
    let slices =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/slices.yaml"))
            .unwrap();
    let with = |more: &str| format!("{slices}---\n{more}");
    let arguments = ["allocate", "-f", "-"];
    golden("document-no-object", &arguments, &with("hello: world\n"));
    golden("document-wrong-type", &arguments, &with("apiVersion: v1\nkind: Pod\nmetadata:\n  name: [a]\n"));
    golden("document-broken", &arguments, &with("apiVersion: v1\nkind: {\n"));
    golden("document-twice", &arguments, &format!("{slices}\n---\n{slices}"));
    let old = "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: a}\n";
    golden("document-old-version", &arguments, &with(old));
    let unknown = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec:\n  devices:\n    \
                   requests:\n    - name: r\n      exactly:\n        deviceClasName: x\n        deviceClassName: c\n";
    golden("document-unknown-field", &arguments, &with(unknown));
}

#[test]
fn line_protocols() {
    let cel = concat!(
        r#"{"id":1,"expression":"device.driver == \"d\"","driver":"d"}"#,
        "\nbroken\n\n[]\n",
        r#"{"id":2,"expression":7}"#,
        "\n",
        r#"{"id":"three","expression":"device.capacity[\"d\"].m.compareTo(quantity(\"1Ki\")) == 0","driver":"d","capacity":{"m":{"value":1024}}}"#,
        "\n",
        r#"{"id":4,"expression":"device.attributes[\"d\"].x","driver":"d"}"#,
        "\n",
        r#"{"id":5,"expression":"1 +"}"#
    );
    golden("cel-lines", &["cel", "--lines"], cel);
    let slice = r#"{"metadata":{"name":"s"},"spec":{"driver":"d","nodeName":"n","pool":{"name":"n","generation":1,"resourceSliceCount":1},"devices":[{"name":"a"},{"name":"b"}]}}"#;
    let claim = |count: u32| {
        format!(
            r#"{{"metadata":{{"name":"c","namespace":"x"}},"spec":{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"k","allocationMode":"ExactCount","count":{count}}}}}]}}}}}}"#
        )
    };
    let request = |id: u32, count: u32, class: &str| {
        format!(
            r#"{{"id":{id},"node":{{"metadata":{{"name":"n"}}}},"slices":[{slice}],"classes":[{{"metadata":{{"name":"{class}"}},"spec":{{}}}}],"allocated":[],"claims":[{}]}}"#,
            claim(count)
        )
    };
    let lines = format!(
        "{}\n{}\n{}\n{}\n",
        request(1, 2, "k"),
        request(2, 3, "k"),
        request(3, 1, "other"),
        r#"{"id":4,"features":["Nonsense"],"claims":[]}"#
    );
    golden("allocate-lines", &["allocate", "--lines"], &lines);
}

#[test]
fn misuse_ends_with_2() {
    for arguments in [
        &["allocate", "pod", "-f", "."][..],
        &["explain", "-f", "."],
        &["cel"],
        &["allocate", "-f", "no-such-file"],
        &["allocate", "--lines", "-f", "."],
        &["nonsense"],
    ] {
        let output = run(arguments, "");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?} says nothing");
    }
}
