//! Prevents undoing a claim under its running pods.
//!
//! The kernel decides whether a pod runs. In the API a pod runs until after its claims were undone: the kubelet changes the pod's
//! status only then.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::resource::v1::ResourceClaim;
use tessera_mps_host::pod_uid;

use super::steps::Attempt;
use crate::prepare::claim::{Found, api};
use crate::prepare::{Phase, PrepareError, blocking};

/// The node's cgroups, below the root of its driver if equal to the node's own root.
const CGROUPS: &str = "sys/fs/cgroup";

/// Pods' cgroups are at most this deep: `kubelet.slice/kubelet-kubepods.slice/…-burstable.slice/…-burstable-pod….slice`.
const DEPTH: usize = 4;

impl Attempt<'_> {
    /// Fails while pods in the claim's `reservedFor` run. Unknown counts as ended: no pod's end may hang for lack of knowledge.
    pub async fn refuse_running_pods(&self) -> Result<(), PrepareError> {
        let options = &self.worker.options;
        let cgroups = options.roots.driver.join(CGROUPS);
        if !has_version_2(&cgroups) {
            return Ok(());
        }
        let found = api::get(&self.worker.client, self.claim, options.short_patience);
        let found = match self.timed(Phase::Claim, self.call.unless_ended(found)).await {
            Ok(Found::Claim(found)) => found,
            Ok(Found::Gone | Found::Other(_)) => return Ok(()),
            Err(error) => {
                tracing::debug!(%error, "cannot tell which pods the claim is reserved for");
                return Ok(());
            }
        };
        let reserved = pods(&found);
        let uids: BTreeSet<String> = reserved.iter().map(|(uid, _)| uid.clone()).collect();
        let running = blocking::run(move || running(&cgroups, &uids)).await?;
        let pods: Vec<&str> =
            reserved.iter().filter(|(uid, _)| running.contains(uid)).map(|(_, name)| &**name).collect();
        if pods.is_empty() {
            return Ok(());
        }
        Err(PrepareError::PodsRun { claim: self.claim.to_string(), pods: pods.join(", ") })
    }
}

/// UIDs and names of the pods the claim is reserved for.
fn pods(claim: &ResourceClaim) -> Vec<(String, String)> {
    let reserved = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let pods = reserved.filter(|consumer| consumer.resource == "pods");
    pods.map(|pod| (pod.uid.clone(), pod.name.clone())).collect()
}

/// Whether this is the root of cgroups of version 2. Version 1 does not show a group's processes in another PID namespace.
fn has_version_2(root: &Path) -> bool {
    root.join("cgroup.controllers").exists()
}

/// The subset of these pods with processes in their cgroups. Blocks for file reads.
fn running(root: &Path, uids: &BTreeSet<String>) -> BTreeSet<String> {
    let mut running = BTreeSet::new();
    let mut level = vec![root.to_owned()];
    for _ in 0..DEPTH {
        let below: Vec<PathBuf> = level.iter().flat_map(|group| groups(group)).collect();
        level.clear();
        for group in below {
            let name = group.file_name().unwrap_or_default().to_string_lossy();
            match pod_uid(&name) {
                Some(uid) if uids.contains(&uid) && has_processes(&group) => {
                    running.insert(uid);
                }
                None if name.starts_with("kube") => level.push(group),
                _ => {}
            }
        }
    }
    running
}

/// The cgroups in a cgroup.
fn groups(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Whether there are processes in a cgroup or below (`cgroup.events`, Documentation/admin-guide/cgroup-v2.rst).
fn has_processes(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_runs_while_its_cgroup_has_processes() {
        let root = tempfile::tempdir().unwrap();
        let uid = |last: u8| format!("0b4e5c1a-0d4f-4a6b-8c7d-9e0f1a2b3c{last:02x}");
        assert!(!has_version_2(root.path()));
        fs::write(
            root.path().join("cgroup.controllers"),
            "cpu
",
        )
        .unwrap();
        assert!(has_version_2(root.path()));
        let systemd = format!("kubepods-burstable-pod{}.slice", uid(1).replace('-', "_"));
        for (group, populated) in [
            (format!("kubepods.slice/kubepods-burstable.slice/{systemd}"), 1),
            (format!("kubepods/pod{}", uid(2)), 1),
            (format!("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice", uid(3)), 1),
            (format!("kubepods/besteffort/pod{}", uid(4)), 0),
            (format!("system.slice/pod{}", uid(5)), 1),
            (format!("kubepods/pod{}", uid(6)), 1),
        ] {
            let group = root.path().join(group);
            fs::create_dir_all(group.join("container")).unwrap();
            fs::write(
                group.join("cgroup.events"),
                format!(
                    "populated {populated}
frozen 0
"
                ),
            )
            .unwrap();
        }
        let asked = (1..=5).map(uid).collect();
        assert_eq!(running(root.path(), &asked), (1..=3).map(uid).collect());
    }
}
