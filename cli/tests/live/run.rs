//! `run` and `cancel`: objects that the API server takes, and that go with their Job.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tessera_harness::shared;

use crate::{LIMIT, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_made_and_cancelled() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let namespace = "cli-run";
    cluster.create_namespace(namespace).await.unwrap();
    let defaults = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "gpu-run", "namespace": namespace },
        "data": { "image": "registry.example.com/base:7" },
    });
    cluster.apply(&defaults.to_string()).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let script = tempfile::Builder::new().suffix(".sh").tempfile().unwrap();
    std::fs::write(script.path(), "#!/bin/sh\n#SBATCH -J train -N2 --gres=gpu:h100:8 -t 60\nsrun true\n")
        .unwrap();
    // Options come before the script, and the connection is one of them.
    let submit = async |more: &[&str]| {
        let kubeconfig = kubeconfig.to_str().unwrap();
        let options = ["run", "-A", namespace, "--kubeconfig", kubeconfig, "--detach"];
        let words = [&options[..], more].concat();
        let output =
            tokio::process::Command::new(env!("CARGO_BIN_EXE_kubectl-gpu")).args(words).output().await;
        let output = output.unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), said)
    };
    let file = script.path().to_str().unwrap();
    assert_eq!(submit(&[file]).await, (0, "job cli-run/train is submitted\n".to_owned()));
    // The same once more, and an array, are jobs of their own.
    assert_eq!(submit(&[file]).await, (0, "job cli-run/train-2 is submitted\n".to_owned()));
    let (code, said) = submit(&["-a", "0-9%2", "--no-requeue", "--gres=shard:1", "--wrap=true"]).await;
    assert_eq!((code, said.as_str()), (0, "job cli-run/wrap is submitted\n"));

    let client = cluster.client().await.unwrap();
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let uid = jobs.get("train-2").await.unwrap().uid().unwrap();
    let owners = [
        Api::<Service>::namespaced(client.clone(), namespace).get("train-2").await.unwrap().metadata,
        Api::<ConfigMap>::namespaced(client.clone(), namespace).get("train-2").await.unwrap().metadata,
        Api::<ResourceClaimTemplate>::namespaced(client.clone(), namespace)
            .get("train-2")
            .await
            .unwrap()
            .metadata,
    ];
    for metadata in owners {
        assert_eq!(metadata.owner_references.unwrap()[0].uid, uid);
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let key = async |name: &str| secrets.get(name).await.unwrap().data.unwrap().remove("key").unwrap().0;
    assert!(key("train").await.len() >= 32);
    assert_ne!(key("train").await, key("train-2").await);

    // What is refused leaves nothing.
    let taken = json!({ "apiVersion": "v1", "kind": "Service", "spec": { "ports": [{ "port": 1 }] },
        "metadata": { "name": "other", "namespace": namespace } });
    cluster.apply(&taken.to_string()).await.unwrap();
    let (_, said) = submit(&["-N2", "-J", "other", "--wrap=true"]).await;
    assert_eq!(said, "job cli-run/other-2 is submitted\n", "a Service of somebody else has the first name");
    let (code, said) = submit(&["--driver=NO_DRIVER", "--gres=gpu:1", "-J", "bad", "--wrap=true"]).await;
    assert_eq!(code, 2, "{said}");
    assert!(jobs.get_opt("bad").await.unwrap().is_none(), "{said}");

    let (code, said, _) = run(&kubeconfig, &["cancel", "train", "gone", "-n", namespace]).await;
    assert_eq!((code, said.as_str()), (1, "job cli-run/train: cancelled\njob cli-run/gone: there is none\n"));
    let foreign = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "foreign", "namespace": namespace },
        "spec": { "suspend": true, "template": { "spec": { "restartPolicy": "Never",
            "containers": [{ "name": "c", "image": "none" }] } } } });
    cluster.apply(&foreign.to_string()).await.unwrap();
    let (code, said, _) = run(&kubeconfig, &["cancel", "foreign", "-n", namespace]).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("is not of `kubectl gpu run`"), "{said}");
}

/// A job that waits, runs and fails: there is no kubelet, so the pod's status is written here.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_followed_to_its_exit_code() {
    let cluster = shared::scheduler_tier().await.unwrap();
    let namespace = "cli-follow";
    cluster.create_namespace(namespace).await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_kubectl-gpu"));
    command.args([
        "run",
        "--follow",
        "-A",
        namespace,
        "--image=none",
        "--gres=gpu:1",
        "--wrap=exit 3",
        "--kubeconfig",
    ]);
    let child = command.arg(&kubeconfig).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let client = cluster.client().await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let of_job = ListParams::default().labels("batch.kubernetes.io/job-name=wrap");
    let name = tokio::time::timeout(LIMIT, async {
        loop {
            if let Some(pod) = pods.list(&of_job).await.unwrap().items.first() {
                return pod.name_any();
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
    let name = name.await.unwrap();
    // Long enough for one look of it.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let status = json!({ "status": { "phase": "Failed", "containerStatuses": [{ "name": "main", "image": "none",
        "imageID": "", "ready": false, "restartCount": 0, "state": { "terminated": { "exitCode": 3 } } }] } });
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    for part in
        ["wrap: is submitted; `kubectl gpu cancel wrap -n cli-follow` ends it", "wrap: waits", "exit code 3"]
    {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
}
