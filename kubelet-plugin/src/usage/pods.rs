//! Owners of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tessera_mps_host::pod_uid;

/// An emulated machine has a procfs of its driver alone: its processes are the kernel's.
const KERNELS: &str = "/proc";

/// How much of a process's list of cgroups is read, bytes.
const LONGEST: u64 = 4096;

/// Owner of a process, as far as known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The pod with this UID.
    Pod(String),
    /// No pod: a program of the node.
    Node,
    /// The process has ended, or the node's process namespace is not visible here.
    Unknown,
}

/// Finds the owners of processes.
#[derive(Debug)]
pub struct Owners {
    proc_root: PathBuf,
    /// The cgroups of this process.
    own: Option<Vec<u8>>,
    known: BTreeMap<u32, Owner>,
}

impl Owners {
    /// Reads procfs at this path. Blocks for a file read, like all methods.
    pub fn new(proc_root: PathBuf) -> Self {
        let own = cgroups(&proc_root, "self").ok();
        Self { proc_root, own, known: BTreeMap::new() }
    }

    /// Owner of this process.
    pub fn of(&mut self, pid: u32) -> Owner {
        let Self { proc_root, own, known } = self;
        known.entry(pid).or_insert_with(|| owner(proc_root, own.as_deref(), pid)).clone()
    }
}

/// UIDs of the pods with a container besides the sandbox's; `None` where no process outside this container is visible, as without
/// `hostPID`. Blocks for a file read for each process of the node.
pub fn started(proc_root: &Path) -> Option<BTreeSet<String>> {
    let directories = [proc_root, Path::new(KERNELS)].map(std::fs::read_dir);
    let entries = directories.into_iter().flatten().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let processes = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let own = cgroups(proc_root, "self").ok();
    started_of(own.as_deref(), processes.filter_map(|process| cgroups(proc_root, &process).ok()))
}

/// The same, by the cgroups of this process and of all visible ones.
fn started_of(own: Option<&[u8]>, processes: impl Iterator<Item = Vec<u8>>) -> Option<BTreeSet<String>> {
    let mut sees_others = false;
    let mut containers = BTreeMap::<String, BTreeSet<String>>::new();
    for bytes in processes {
        sees_others |= own != Some(&*bytes);
        for line in String::from_utf8_lossy(&bytes).lines() {
            let Some(pod) = pod_uid(line) else { continue };
            // The part of the path below the pod's is the container.
            let mut parts = line.split('/').skip_while(|part| pod_uid(part).is_none());
            if let Some(container) = parts.nth(1) {
                containers.entry(pod).or_default().insert(container.to_owned());
            }
        }
    }
    let started = containers.into_iter().filter(|(_, containers)| containers.len() > 1);
    sees_others.then(|| started.map(|(pod, _)| pod).collect())
}

fn owner(proc_root: &Path, own: Option<&[u8]>, pid: u32) -> Owner {
    match cgroups(proc_root, &pid.to_string()) {
        // This process uses no card: in its own process namespace the number means another process.
        Ok(bytes) if own == Some(&*bytes) => Owner::Unknown,
        Ok(bytes) => pod_uid(&String::from_utf8_lossy(&bytes)).map_or(Owner::Node, Owner::Pod),
        Err(_) => Owner::Unknown,
    }
}

fn cgroups(proc_root: &Path, process: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let below = |root: &Path| File::open(root.join(process).join("cgroup"));
    below(proc_root).or_else(|_| below(Path::new(KERNELS)))?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_pods_the_nodes_or_unknown() {
        let root = tempfile::tempdir().unwrap();
        let uid = "0b4e5c1a-0d4f-4a6b-8c7d-9e0f1a2b3c4d";
        for (process, text) in [
            ("7", format!("0::/kubepods/burstable/pod{uid}/3f9a\n")),
            ("8", "0::/init\n".to_owned()),
            ("self", "0::/\n".to_owned()),
            ("1", "0::/\n".to_owned()),
        ] {
            std::fs::create_dir(root.path().join(process)).unwrap();
            std::fs::write(root.path().join(process).join("cgroup"), text).unwrap();
        }
        let mut owners = Owners::new(root.path().to_owned());
        assert_eq!(owners.of(7), Owner::Pod(uid.to_owned()));
        assert_eq!(owners.of(8), Owner::Node);
        assert_eq!(owners.of(u32::MAX), Owner::Unknown);
        assert_eq!(owners.of(1), Owner::Unknown, "it is this one");
    }

    #[test]
    fn a_pod_has_started_with_a_container_beside_its_sandbox() {
        let root = tempfile::tempdir().unwrap();
        let uid = |last: char| format!("0b4e5c1a-0d4f-4a6b-8c7d-9e0f1a2b3c4{last}");
        let (waiting, running) = (uid('0'), uid('1'));
        for (process, text) in [
            ("70", format!("0::/kubepods/pod{waiting}/sandbox\n")),
            (
                "71",
                format!("12:devices:/kubepods/pod{waiting}/sandbox\n11:cpu:/kubepods/pod{waiting}/sandbox\n"),
            ),
            (
                "72",
                format!("0::/kubepods.slice/kubepods-pod{}.slice/cri-1.scope\n", running.replace('-', "_")),
            ),
            (
                "73",
                format!(
                    "0::/kubepods.slice/kubepods-pod{}.slice/cri-2.scope/init\n",
                    running.replace('-', "_")
                ),
            ),
            ("74", "0::/system.slice/some.service\n".to_owned()),
        ] {
            std::fs::create_dir(root.path().join(process)).unwrap();
            std::fs::write(root.path().join(process).join("cgroup"), text).unwrap();
        }
        let started = started(root.path()).unwrap();
        assert!(started.contains(&running) && !started.contains(&waiting), "{started:?}");
    }

    #[test]
    fn nobody_can_tell_who_has_started_without_the_processes_of_others() {
        let own = b"0::/\n";
        let of = |processes: &[&[u8]]| started_of(Some(own), processes.iter().map(|bytes| bytes.to_vec()));
        assert_eq!(of(&[own, own]), None);
        assert_eq!(of(&[own, b"0::/../other\n"]), Some(BTreeSet::new()));
    }
}
