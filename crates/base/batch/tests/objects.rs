//! The objects of jobs, beyond what the golden tests of `kubectl gpu run` show.
#![allow(clippy::unwrap_used, missing_docs)]

use clap::{Args as _, FromArgMatches as _};
use serde_json::{Value, json};
use tessera_batch::{CommandLine, Defaults, Job, Objects, Program, Script};

fn objects_with(words: &[&str], defaults: &Defaults) -> Objects {
    let command = CommandLine::augment_args(clap::Command::new("run").no_binary_name(true));
    let line = CommandLine::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap();
    let (options, _) = line.with(None).unwrap();
    let script = Script::new("train.sh", "#!/bin/sh\necho\n").unwrap();
    let program = Program::Script { script, arguments: vec!["$(A)".to_owned()] };
    Objects::of(&Job::new(&options, Some(program), defaults).unwrap().0)
}

fn objects(words: &[&str]) -> Objects {
    objects_with(words, &Defaults { image: Some("image".to_owned()), ..Defaults::default() })
}

fn job(objects: &Objects) -> Value {
    serde_json::to_value(&objects.job).unwrap()
}

fn expression(words: &[&str]) -> String {
    let template = serde_json::to_value(objects(words).template).unwrap();
    let exactly = &template["spec"]["spec"]["devices"]["requests"][0]["exactly"];
    let class = exactly["deviceClassName"].as_str().unwrap();
    let expression = exactly["selectors"][0]["cel"]["expression"].as_str().unwrap_or_default();
    format!("{class}: {expression}").replace("device.attributes[\"gpu.tessera.dev\"]", "d")
}

#[test]
fn claims_ask_for_class_model_and_pool() {
    let h100 =
        "\"productName\" in d && d.productName.lowerAscii().matches(\"(^|[^a-z0-9])h100([^a-z0-9]|$)\")";
    for (words, said) in [
        (&["--gres=gpu:8"][..], "gpu.tessera.dev: ".to_owned()),
        (&["--gres=gpu:h100:8"], format!("gpu.tessera.dev: {h100}")),
        (&["--gres=gpu:8", "-C", "h100"], format!("gpu.tessera.dev: {h100}")),
        (
            &["--gres=gpu:8", "-C", "h100|a100"],
            format!("gpu.tessera.dev: ({h100} || {})", h100.replace("h100", "a100")),
        ),
        (
            &["--gres=gpu:1g.10gb", "-p", "small"],
            "mig.gpu.tessera.dev: d.?profile.orValue(\"\") == \"1g.10gb\" && d.?gpuPool.orValue(\"\") == \"small\""
                .to_owned(),
        ),
        (&["--gres=shard:1"], "mps.gpu.tessera.dev: !(\"profile\" in d)".to_owned()),
        (
            &["--gres=gpu:1", "-p", "a,b"],
            "gpu.tessera.dev: d.?gpuPool.orValue(\"\") in [\"a\", \"b\"]".to_owned(),
        ),
        (
            &["--gres=gpu:1g.10gb", "--driver=gpu.nvidia.com"],
            "mig.nvidia.com: device.attributes[\"gpu.nvidia.com\"].?profile.orValue(\"\") == \"1g.10gb\""
                .to_owned(),
        ),
    ] {
        assert_eq!(expression(words), said, "{words:?}");
    }
    let all = serde_json::to_value(objects(&["--exclusive"]).template).unwrap();
    assert_eq!(all["spec"]["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"], "All");
    assert_eq!(objects(&[]).template, None);
}

/// Nothing but the script's end decides about a job; an eviction begins it anew, unless the user does not want that.
#[test]
fn jobs_end_with_their_script() {
    let one = job(&objects(&["--gres=gpu:1", "--time=1:00:00"]));
    assert_eq!(one["spec"]["backoffLimit"], 0);
    assert_eq!(one["spec"]["template"]["spec"]["activeDeadlineSeconds"], 3600);
    assert_eq!(one["spec"]["podFailurePolicy"]["rules"][0]["action"], "Ignore");
    assert_eq!(one["spec"]["successPolicy"], Value::Null);
    assert_eq!(one["spec"]["template"]["metadata"]["labels"]["gpu.tessera.dev/gang"], Value::Null);
    let gang = job(&objects(&["-N2", "--no-requeue"]));
    assert_eq!(gang["spec"]["successPolicy"]["rules"][0], json!({ "succeededIndexes": "0" }));
    assert_eq!(gang["spec"]["podFailurePolicy"]["rules"][0]["action"], "FailJob");
    assert_eq!(gang["spec"]["podFailurePolicy"]["rules"][1], Value::Null);
    assert_eq!(gang["spec"]["template"]["metadata"]["labels"]["gpu.tessera.dev/gang"], "enabled");
    let gang = job(&objects(&["-N2"]));
    let rules = &gang["spec"]["podFailurePolicy"]["rules"];
    assert_eq!(rules[0]["onPodConditions"][0]["type"], "DisruptionTarget");
    assert_eq!(
        rules[1],
        json!({
            "action": "Ignore",
            "onExitCodes": { "containerName": "main", "operator": "In", "values": [213] },
        })
    );
    let array = job(&objects(&["-a", "1-9:2%2"]));
    let spec = &array["spec"];
    assert_eq!((&spec["completions"], &spec["parallelism"]), (&json!(5), &json!(2)));
    assert_eq!((&spec["backoffLimit"], &spec["backoffLimitPerIndex"]), (&Value::Null, &json!(0)));
    let environment = spec["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let value = |name: &str| environment.iter().find(|v| v["name"] == name).map(|v| v["value"].clone());
    assert_eq!(value("GPU_RUN_ARRAY_TASKS"), Some(json!("1,3,5,7,9")));
    assert_eq!(value("GPU_RUN_INDEX"), Some(json!("0")));
    assert_eq!(value("GPU_RUN_HOSTS"), None);
}

#[test]
fn pods_of_one_job_find_each_other() {
    let objects = objects(&["-N3", "-J", "train", "--gres=gpu:8", "--gpus-per-task=1", "-A", "vision"]);
    let pod = &job(&objects)["spec"]["template"]["spec"];
    let environment = pod["containers"][0]["env"].as_array().unwrap();
    let hosts = environment.iter().find(|variable| variable["name"] == "GPU_RUN_HOSTS").unwrap();
    assert_eq!(hosts["value"], "train-0.train,train-1.train,train-2.train");
    assert_eq!(pod["subdomain"], "train");
    let service = serde_json::to_value(&objects.service).unwrap();
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["metadata"]["namespace"], "vision");
    let secret = objects.secret("0123").unwrap();
    assert_eq!(secret.data.unwrap()["key"].0, b"0123");
    assert_eq!(self::objects(&[]).secret("0123"), None);
}

/// Kubernetes expands `$(NAME)` in commands.
#[test]
fn arguments_come_as_they_are() {
    let command = &job(&objects(&[]))["spec"]["template"]["spec"]["containers"][0]["command"];
    assert_eq!(command[4], "$$(A)");
}

/// pyxis' paths are those of the site's volumes where there are such.
#[test]
fn mounts_are_of_the_site_a_claim_or_the_node() {
    let data = [
        ("image", "image"),
        ("user", "1000"),
        ("volumes", "[{ name: home, nfs: { server: nas, path: /export } }]"),
        ("volumeMounts", "[{ name: home, mountPath: /home, subPath: users }]"),
    ];
    let data = data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let defaults = Defaults::new(&data).unwrap();
    let objects = objects_with(&["--mount=/home/me/data:/data:ro,set:/set,/opt/x:/x"], &defaults);
    let pod = &job(&objects)["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let at = |path: &str| mounts.iter().find(|mount| mount["mountPath"] == path).unwrap().clone();
    assert_eq!(at("/home")["subPath"], "users");
    assert_eq!(
        at("/data"),
        json!({ "name": "home", "mountPath": "/data", "subPath": "users/me/data", "readOnly": true })
    );
    let volumes = pod["volumes"].as_array().unwrap();
    let named = |name: &Value| volumes.iter().find(|volume| volume["name"] == *name).unwrap().clone();
    assert_eq!(named(&at("/set")["name"])["persistentVolumeClaim"]["claimName"], "set");
    assert_eq!(named(&at("/x")["name"])["hostPath"]["path"], "/opt/x");
    assert_eq!(pod["securityContext"], json!({ "runAsUser": 1000 }));
}
