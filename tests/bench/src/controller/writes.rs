//! The controller's writes for a pod, by the API server's audit log.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::TempDir;
use tessera_harness::Cluster;

/// The controller's service account.
const ACCOUNT: &str = "bench-controller";

/// All writes, when they are answered.
const POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{ "level": "Metadata", "verbs": ["create", "update", "patch", "delete"] }, { "level": "None" }]
}"#;

/// The audit log of a cluster, and the controller's user name there.
pub struct Audit {
    folder: TempDir,
}

/// The controller's writes for a pod: of the pod, of its claims, of Events about it. Means over several pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Writes {
    /// Answered before kube-scheduler's binding of the pod came in, by verb and resource.
    pub before_binding: BTreeMap<String, f64>,
    /// Before or after; Events are sent behind, by a task of their own.
    pub all: f64,
}

/// The needed fields of an entry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    user: User,
    object_ref: Option<ObjectRef>,
    request_received_timestamp: String,
    response_status: Option<Status>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl Audit {
    /// Before the cluster starts.
    pub fn prepare() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("policy.json"), POLICY)?;
        Ok(Self { folder })
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }

    /// The flags for the API server.
    pub fn flags(&self) -> Vec<String> {
        let policy = self.folder.path().join("policy.json");
        vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", self.log().display()),
        ]
    }

    /// Makes the controller's account, with all rights, and its kubeconfig.
    pub async fn kubeconfig(&self, cluster: &Cluster) -> Result<PathBuf> {
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": ACCOUNT, "namespace": "default" } });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": ACCOUNT },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default" }],
        });
        cluster.apply(&format!("{account}\n---\n{binding}")).await?;
        let config = cluster.service_account_config("default", ACCOUNT, None).await?;
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(&path, serde_json::to_string(&config)?)?;
        Ok(path)
    }

    /// The writes for each of these pods. A pod's claim and Events have its name in front of theirs.
    pub fn writes(&self, pods: &[&str]) -> Result<BTreeMap<String, Writes>> {
        let path = self.log();
        let file = std::fs::File::open(&path).with_context(|| format!("read {}", path.display()))?;
        let mut entries = Vec::new();
        for line in BufReader::new(file).lines() {
            entries.push(serde_json::from_str(&line?).context("an entry of the audit log")?);
        }
        Ok(of_pods(&entries, pods))
    }
}

fn of_pods(entries: &[Entry], pods: &[&str]) -> BTreeMap<String, Writes> {
    let controller = format!("system:serviceaccount:default:{ACCOUNT}");
    let is_done =
        |entry: &Entry| entry.response_status.as_ref().is_none_or(|status| (200..300).contains(&status.code));
    let mut bound: HashMap<&str, &str> = HashMap::new();
    for entry in entries.iter().filter(|entry| is_done(entry)) {
        if let Some(object) = entry.object_ref.as_ref().filter(|object| object.subresource == "binding") {
            bound.insert(&object.name, &entry.request_received_timestamp);
        }
    }
    let mut all: BTreeMap<String, Writes> =
        pods.iter().map(|pod| ((*pod).to_owned(), Writes::default())).collect();
    // Writes refused by the API server count, too: they are its work as well.
    for entry in entries.iter().filter(|entry| entry.user.username == controller) {
        let Some(object) = &entry.object_ref else { continue };
        let Some(pod) = pods.iter().find(|pod| is_about(object, pod)) else { continue };
        let Some(writes) = all.get_mut(*pod) else { continue };
        writes.all += 1.0;
        // All times have the same form, so the order of the texts is the order of the times.
        if bound.get(pod).is_none_or(|bound| entry.request_received_timestamp.as_str() < *bound) {
            let of = [object.resource.as_str(), object.subresource.as_str()];
            let of: Vec<&str> = of.into_iter().filter(|part| !part.is_empty()).collect();
            *writes.before_binding.entry(format!("{} {}", entry.verb, of.join("/"))).or_default() += 1.0;
        }
    }
    all
}

fn is_about(object: &ObjectRef, pod: &str) -> bool {
    let rest = object.name.strip_prefix(pod);
    match object.resource.as_str() {
        "pods" => rest == Some(""),
        "resourceclaims" => rest.is_some_and(|rest| rest.starts_with("-gpu-")),
        "events" => rest.is_some_and(|rest| rest.starts_with('.')),
        _ => false,
    }
}

impl Writes {
    /// Of one pod on average.
    pub fn mean(of: Vec<Writes>) -> Writes {
        let count = of.len().max(1) as f64;
        let mut mean = Writes::default();
        for writes in of {
            mean.all += writes.all / count;
            for (what, number) in writes.before_binding {
                *mean.before_binding.entry(what).or_default() += number / count;
            }
        }
        mean
    }

    /// All before the binding, without Events.
    pub fn of_objects(&self) -> f64 {
        let objects = self.before_binding.iter().filter(|(what, _)| !what.ends_with(" events"));
        objects.map(|(_, number)| number).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(user: &str, verb: &str, resource: &str, name: &str, second: u32) -> Entry {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        serde_json::from_value(json!({
            "verb": verb, "user": { "username": user },
            "objectRef": { "resource": resource, "subresource": subresource, "name": name },
            "requestReceivedTimestamp": format!("2026-11-23T04:00:{second:02}.000000Z"),
            "responseStatus": { "code": 200 },
        }))
        .unwrap()
    }

    #[test]
    fn what_counts_for_a_pod() {
        let ours = format!("system:serviceaccount:default:{ACCOUNT}");
        let entries = [
            entry(&ours, "patch", "resourceclaims", "p-1-gpu-x7k2p", 1),
            entry(&ours, "patch", "resourceclaims/status", "p-1-gpu-x7k2p", 2),
            entry("kube-scheduler", "patch", "resourceclaims/status", "p-1-gpu-x7k2p", 3),
            entry(&ours, "patch", "pods", "p-10", 3),
            entry(&ours, "create", "events", "p-1.0a1b2c", 4),
            entry("kube-scheduler", "create", "pods/binding", "p-1", 5),
            entry(&ours, "patch", "pods", "p-1", 6),
            entry(&ours, "update", "leases", "tessera-controller", 6),
        ];
        let writes = of_pods(&entries, &["p-1", "p-2"]);
        let first = &writes["p-1"];
        assert_eq!((first.all, first.of_objects(), first.before_binding.len()), (4.0, 2.0, 3));
        assert_eq!(writes["p-2"], Writes::default());
        let mean = Writes::mean(writes.into_values().collect());
        assert_eq!((mean.all, mean.of_objects()), (2.0, 1.0));
    }
}
