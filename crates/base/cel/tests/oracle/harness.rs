//! Runs the Go oracle and compares.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cel::{Device, Environment, EvaluationError, PublishedAttribute, Selector};

/// Releases whose expressions differ.
pub const VERSIONS: [KubernetesVersion; 2] = [KubernetesVersion::V1_36_3, KubernetesVersion::V1_37];

/// A device in the form for both sides.
#[derive(Debug, Clone, Default)]
pub struct DeviceSpec {
    pub driver: &'static str,
    pub allow_multiple_allocations: Option<bool>,
    pub attributes: BTreeMap<String, PublishedAttribute>,
    pub capacity: BTreeMap<String, String>,
}

/// One comparison.
#[derive(Debug, Clone)]
pub struct Request {
    pub expression: String,
    pub device: DeviceSpec,
    pub list_type_attributes: bool,
}

fn attribute_json(attribute: &PublishedAttribute) -> Value {
    match attribute {
        PublishedAttribute::Int(value) => json!({ "int": value }),
        PublishedAttribute::Bool(value) => json!({ "bool": value }),
        PublishedAttribute::String(value) => json!({ "string": value }),
        PublishedAttribute::Version(value) => json!({ "version": value }),
        PublishedAttribute::Ints(values) => json!({ "ints": values }),
        PublishedAttribute::Bools(values) => json!({ "bools": values }),
        PublishedAttribute::Strings(values) => json!({ "strings": values }),
        PublishedAttribute::Versions(values) => json!({ "versions": values }),
        PublishedAttribute::Unknown => json!({}),
    }
}

impl Request {
    fn json(&self, id: usize) -> Value {
        let attributes: serde_json::Map<String, Value> = self
            .device
            .attributes
            .iter()
            .map(|(name, value)| (name.clone(), attribute_json(value)))
            .collect();
        let capacity: serde_json::Map<String, Value> = self
            .device
            .capacity
            .iter()
            .map(|(name, value)| (name.clone(), json!({ "value": value })))
            .collect();
        json!({
            "id": id,
            "expression": self.expression,
            "driver": self.device.driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": self.device.allow_multiple_allocations,
            "listTypeAttributes": self.list_type_attributes,
            "admission": true,
        })
    }
}

/// The answer of one side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    matches: Option<bool>,
    compile_error: Option<String>,
    match_error: Option<String>,
    cost: Option<u64>,
    /// Estimated upper bound of its cost.
    max_cost: Option<u64>,
    /// The API server's error when the expression is written.
    admission_error: Option<String>,
    /// Overloads that the checker chose; only from upstream.
    overloads: Vec<String>,
}

fn ours(version: KubernetesVersion, request: &Request) -> Answer {
    let environment = Environment { version, list_type_attributes: request.list_type_attributes };
    let admission_error =
        Selector::compile_new(&request.expression, environment).err().map(|error| error.to_string());
    let selector = match Selector::compile_with(&request.expression, environment) {
        Ok(selector) => selector,
        Err(error) => {
            let compile_error = Some(error.to_string());
            return Answer { compile_error, admission_error, ..Answer::default() };
        }
    };
    let device = Device::new(request.device.driver)
        .with_multiple_allocations(request.device.allow_multiple_allocations.unwrap_or(false))
        .with_attributes(&request.device.attributes, environment.reads_lists())
        .with_capacity(&request.device.capacity)
        .expect("quantities of test devices");
    let evaluation = selector.evaluate(&device);
    let is_defect = matches!(evaluation.result, Err(EvaluationError::Device(_)));
    Answer {
        matches: evaluation.result.as_ref().ok().copied(),
        match_error: evaluation.result.err().map(|error| error.to_string()),
        cost: (!is_defect).then_some(evaluation.cost),
        compile_error: None,
        max_cost: Some(selector.max_cost()),
        admission_error,
        overloads: Vec::new(),
    }
}

fn theirs(line: &str) -> Answer {
    let value: Value = serde_json::from_str(line).expect("the oracle answers in JSON");
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    Answer {
        matches: value.get("match").and_then(Value::as_bool),
        compile_error: text("compileError"),
        match_error: text("matchError"),
        cost: value.get("cost").and_then(Value::as_u64),
        max_cost: value.get("maxCost").and_then(Value::as_u64),
        admission_error: text("admissionError"),
        overloads: value
            .get("overloads")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default(),
    }
}

/// Whether both give the same verdict on a new expression. For one that is too long or too complex, the texts must
/// agree.
fn same_admission(ours: &Option<String>, theirs: &Option<String>) -> bool {
    match theirs.as_deref() {
        Some(text) if text.starts_with("Forbidden") || text.starts_with("Too long") => ours == theirs,
        _ => ours.is_some() == theirs.is_some(),
    }
}

fn ask(version: KubernetesVersion, requests: &[Request]) -> Vec<Answer> {
    let mut child = Command::new(tessera_oracle::program::path(version))
        .arg("-cel")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle starts");
    let mut input = child.stdin.take().expect("piped");
    let lines: String =
        requests.iter().enumerate().map(|(id, request)| format!("{}\n", request.json(id))).collect();
    let writer = std::thread::spawn(move || {
        // The oracle may end early; the missing answers then show it.
        let _ = input.write_all(lines.as_bytes());
    });
    let output = child.wait_with_output().expect("the oracle ends");
    writer.join().expect("the writer ends");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let answers: Vec<Answer> = text.lines().map(theirs).collect();
    assert_eq!(
        answers.len(),
        requests.len(),
        "the oracle stopped after {} answers: {}",
        answers.len(),
        output.status
    );
    answers
}

/// Removes details that need not agree: which of several bad attributes Go's map order finds first, and the details of
/// Go's parser of addresses.
fn without_details(text: &Option<String>) -> Option<String> {
    let text = text.as_deref()?;
    if text.ends_with("unsupported attribute value") {
        return Some("unsupported attribute value".to_owned());
    }
    let end = text.find("ParseAddr(").unwrap_or(text.len());
    Some(text[..end].to_owned())
}

/// Asserts that both sides agree in verdict, answer, cost, estimated cost and the text of runtime errors. Texts of
/// compile errors may differ: those about syntax come from upstream's parser generator.
///
/// Returns the overloads of what both sides evaluated alike, and whether any of those evaluations ended in an answer.
pub fn compare_all(version: KubernetesVersion, requests: &[Request]) -> BTreeMap<String, bool> {
    compare(version, requests, true)
}

/// As [`compare_all`], but for the costs of evaluations.
pub fn compare_without_costs(version: KubernetesVersion, requests: &[Request]) {
    compare(version, requests, false);
}

fn compare(version: KubernetesVersion, requests: &[Request], costs: bool) -> BTreeMap<String, bool> {
    let mut called = BTreeMap::new();
    let answers = ask(version, requests);
    let mut disagreements: Vec<String> = Vec::new();
    let mut shown: std::collections::HashSet<&str> = std::collections::HashSet::new();
    let mut count = 0;
    let (mut refused, mut failed, mut answered, mut texts, mut forbidden) = (0, 0, 0, 0, 0);
    for (request, theirs) in requests.iter().zip(&answers) {
        let ours = ours(version, request);
        let agree = ours.matches == theirs.matches
            && ours.compile_error.is_some() == theirs.compile_error.is_some()
            && without_details(&ours.match_error) == without_details(&theirs.match_error)
            && (!costs || ours.cost == theirs.cost)
            && ours.max_cost == theirs.max_cost
            && same_admission(&ours.admission_error, &theirs.admission_error);
        if agree && theirs.compile_error.is_none() {
            for overload in &theirs.overloads {
                *called.entry(overload.clone()).or_insert(false) |= theirs.matches.is_some();
            }
        }
        forbidden += u32::from(theirs.compile_error.is_none() && theirs.admission_error.is_some());
        match (&theirs.compile_error, &theirs.match_error) {
            (Some(_), _) => refused += 1,
            (_, Some(_)) => failed += 1,
            _ => answered += 1,
        }
        if without_details(&ours.match_error) != without_details(&theirs.match_error) {
            texts += 1;
            if std::env::var_os("TESSERA_ORACLE_TEXTS").is_some() {
                eprintln!(
                    "TEXT {}\n  ours   {:?}\n  theirs {:?}",
                    request.expression, ours.match_error, theirs.match_error
                );
            }
        }
        if std::env::var_os("TESSERA_ORACLE_COMPILE_TEXTS").is_some()
            && ours.compile_error != theirs.compile_error
            && !theirs.compile_error.as_deref().unwrap_or("").contains("Syntax error")
        {
            eprintln!(
                "COMPILE {}\n  ours   {:?}\n  theirs {:?}",
                request.expression, ours.compile_error, theirs.compile_error
            );
        }
        count += u32::from(!agree);
        if !agree && shown.insert(&request.expression) {
            disagreements.push(format!("{}\n  ours   {ours:?}\n  theirs {theirs:?}", request.expression));
        }
    }
    eprintln!(
        "{version}: {} cases, {refused} refused, {forbidden} more when new, {failed} failed ({texts} with another text), {answered} answered, {count} disagreements",
        requests.len()
    );
    assert!(
        disagreements.is_empty(),
        "{version}: {count} of {} disagree, the first of them:\n{}",
        requests.len(),
        disagreements.iter().take(40).cloned().collect::<Vec<_>>().join("\n")
    );
    called
}

/// The declarations of a release's environment as the oracle prints them.
pub fn declarations(version: KubernetesVersion) -> String {
    let output = Command::new(tessera_oracle::program::path(version))
        .arg("-declarations")
        .output()
        .expect("the oracle starts");
    assert!(output.status.success(), "the oracle prints the declarations");
    String::from_utf8(output.stdout).expect("names are UTF-8")
}

/// Devices of every kind, and whether list attributes are on.
pub fn devices() -> Vec<(DeviceSpec, bool)> {
    let text = |value: &str| PublishedAttribute::String(value.to_owned());
    let attributes = |pairs: &[(&str, PublishedAttribute)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    let capacity = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>()
    };
    let full = DeviceSpec {
        driver: "gpu.tessera.dev",
        allow_multiple_allocations: Some(true),
        attributes: attributes(&[
            ("type", text("gpu")),
            ("productName", text("NVIDIA H100 80GB HBM3")),
            ("index", PublishedAttribute::Int(3)),
            ("memoryMiB", PublishedAttribute::Int(81_559)),
            ("ecc", PublishedAttribute::Bool(true)),
            ("driverVersion", PublishedAttribute::Version("580.95.5".to_owned())),
            ("resource.kubernetes.io/numaNode", PublishedAttribute::Int(0)),
            ("resource.kubernetes.io/pciBusID", text("0000:3b:00.0")),
            ("odd.example.com/empty", text("")),
            ("odd.example.com/unicode", text("Grüße, 世界")),
            ("odd.example.com/negative", PublishedAttribute::Int(-9_223_372_036_854_775_808)),
        ]),
        capacity: capacity(&[
            ("memory", "80Gi"),
            ("half", "500m"),
            ("odd.example.com/big", "1e30"),
            ("odd.example.com/zero", "0"),
        ]),
    };
    let small = DeviceSpec {
        driver: "gpu.tessera.dev",
        allow_multiple_allocations: None,
        attributes: attributes(&[
            ("type", text("mig")),
            ("index", PublishedAttribute::Int(0)),
            ("ecc", PublishedAttribute::Bool(false)),
            ("driverVersion", PublishedAttribute::Version("1.2.3-rc.1+build".to_owned())),
        ]),
        capacity: capacity(&[("memory", "9856Mi")]),
    };
    let other = DeviceSpec { driver: "nic.example.com", ..DeviceSpec::default() };
    let lists = DeviceSpec {
        driver: "gpu.tessera.dev",
        allow_multiple_allocations: Some(false),
        attributes: attributes(&[
            ("type", PublishedAttribute::Strings(vec!["gpu".to_owned(), "mig".to_owned()])),
            ("index", PublishedAttribute::Ints(vec![1, 2, 3])),
            ("ecc", PublishedAttribute::Bools(vec![true, false])),
            ("driverVersion", PublishedAttribute::Versions(vec!["1.0.0".to_owned(), "2.0.0".to_owned()])),
            ("productName", text("x")),
        ]),
        capacity: capacity(&[("memory", "1Gi")]),
    };
    let broken = DeviceSpec {
        driver: "gpu.tessera.dev",
        attributes: attributes(&[("driverVersion", PublishedAttribute::Version("1.2".to_owned()))]),
        ..DeviceSpec::default()
    };
    vec![
        (full.clone(), false),
        (small, false),
        (other, false),
        (full, true),
        (lists.clone(), true),
        (lists, false),
        (broken, false),
    ]
}
