//! Whose a process is.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use tessera_mps_host::pod_uid;

/// How much of a process's list of cgroups is read, bytes.
const LONGEST: u64 = 4096;

/// Whose a process is, as far as it can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The pod with this UID.
    Pod(String),
    /// No pod: a program of the node.
    Node,
    /// It has ended, or this process does not see those of the node.
    Unknown,
}

/// Whose process this is. Blocks for a file read.
pub fn owner(proc_root: &Path, pid: u32) -> Owner {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(proc_root.join(format!("{pid}/cgroup")))?.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => pod_uid(&String::from_utf8_lossy(&bytes)).map_or(Owner::Node, Owner::Pod),
        Err(_) => Owner::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_pods_the_nodes_or_unknown() {
        let root = tempfile::tempdir().unwrap();
        let uid = "0b4e5c1a-0d4f-4a6b-8c7d-9e0f1a2b3c4d";
        for (pid, text) in
            [(7, format!("0::/kubepods/burstable/pod{uid}/3f9a\n")), (8, "0::/init\n".to_owned())]
        {
            std::fs::create_dir(root.path().join(pid.to_string())).unwrap();
            std::fs::write(root.path().join(format!("{pid}/cgroup")), text).unwrap();
        }
        assert_eq!(owner(root.path(), 7), Owner::Pod(uid.to_owned()));
        assert_eq!(owner(root.path(), 8), Owner::Node);
        assert_eq!(owner(root.path(), 9), Owner::Unknown);
    }
}
