//! Mistakes in files, expressions and arguments.

use crate::program::{folder, golden, run};

#[test]
fn a_pool_that_says_what_no_pool_can_is_placed() {
    let pool =
        "apiVersion: gpu.tessera.dev/v1alpha1\nkind: GpuPool\nmetadata: {name: a}\nspec:\n  prority: 1\n";
    let output = run(&["pools", "-f", "-"], pool);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard input, document 1, line ") && said.contains("`prority`"), "{said}");
}

#[test]
fn new_expressions_are_refused_as_the_api_server_refuses_them() {
    let complex = r#"device.attributes["gpu.tessera.dev"].productName.matches(device.driver) &&
        lists.range(2000).all(x, lists.range(2000).all(y, device.driver != ""))"#;
    golden("cel-complex", &["cel", complex, "-f", "slices.yaml", "--device", "node-a/gpu-18-00"], "");
    let unbounded = r#"true || device.driver.split("").all(a, device.driver.split("").all(b, device.driver.split("").all(c, a + b + c != "")))"#;
    golden("cel-unbounded", &["cel", unbounded, "-f", "slices.yaml"], "");
    golden(
        "cel-complex-json",
        &["cel", unbounded, "-f", "slices.yaml", "-o", "json", "--device", "node-b/gpu-18-00"],
        "",
    );
    let gated = r#"device.attributes["gpu.tessera.dev"].type.includes("gpu")"#;
    golden("cel-gated", &["cel", gated, "-f", "slices.yaml"], "");
    let long = format!("device.driver == '{}'", "x".repeat(11_000));
    let output = run(&["cel", &long, "-f", "slices.yaml"], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("Too long: may not be more than 10240 bytes; it has 11019"), "{said}");
}

#[test]
fn files_without_objects() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    file("empty.yaml", "");
    file("comments.yaml", "# nothing\n---\n# more\n---\n");
    let of = |name: &str| {
        let path = folder.path().join(name);
        let output = run(&["allocate", "-f", path.to_str().unwrap()], "");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for name in ["empty.yaml", "comments.yaml"] {
        let (code, said) = of(name);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(name) && said.contains("has no Kubernetes object in it"), "{said}");
    }
    // Beside a file that has one it is worth a word.
    file("größe.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: knöten}\n");
    let path = folder.path().to_str().unwrap();
    let output = run(&["allocate", "claim/ä", "-f", path], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("warning: ") && said.contains("there is no ResourceClaim ä"), "{said}");
    assert_eq!(run(&["allocate", "-f", "-"], "").status.code(), Some(2));
}

/// A file of aliases that would be billions of values, and one of a hundred thousand levels.
#[test]
fn bombs_end_in_an_error() {
    let mut bomb = String::from("k0: &k0 [x, x]\n");
    for level in 1..40 {
        bomb += &format!("k{level}: &k{level} [*k{}, *k{}]\n", level - 1, level - 1);
    }
    for text in [bomb, "[".repeat(100_000), format!("a: {}", "{b: ".repeat(100_000))] {
        let output = run(&["allocate", "-f", "-"], &text);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("error: standard input, document 1, line "), "{said}");
        assert!(said.len() < 1000, "{said}");
    }
}

#[test]
fn documents_that_are_no_objects_are_placed() {
    let slices = std::fs::read_to_string(folder().join("data/slices.yaml")).unwrap();
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
fn misuse_ends_with_2() {
    for arguments in [
        &["allocate", "pod", "-f", "."][..],
        &["explain", "-f", "."],
        &["cel"],
        &["allocate", "-f", "no-such-file"],
        &["allocate", "-f", "no-such-\u{1b}[31mfile"],
        &["allocate", "--lines", "-f", "."],
        &["nonsense"],
        &["topology", "a", "b"],
        &["advise", "--min-observed", "-1h"],
        &["advise", "--min-observed", "soon"],
        &["pools", "-f", ".", "-o", "text"],
        &["ungate"],
        &["migrate"],
        &["migrate", "--from", "hami"],
        &["get", "pods"],
        &["get", "-w", "-f", "."],
        &["resume"],
        &["resume", "claim/x", "--kubeconfig", "no-such-kubeconfig"],
        &["ungate", "pod", "--all"],
        &["ungate", "claim/x", "--kubeconfig", "no-such-kubeconfig"],
    ] {
        let output = run(arguments, "");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?} says nothing");
        assert!(!output.stderr.contains(&0x1b), "{arguments:?} controls the terminal");
    }
}
