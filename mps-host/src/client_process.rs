//! Describes a client process for people: its program and its pod.

use std::fmt;
use std::fs::File;
use std::io::Read as _;

use super::protocol::ClientProcess;

/// How much of a file below `/proc` is read, bytes.
const LONGEST: u64 = 4096;

/// Longest name of a program in Linux (`TASK_COMM_LEN` without the final zero).
const LONGEST_NAME: usize = 15;

/// Length of a UID: `0b4e5c1a-0d4f-4a6b-8c7d-9e0f1a2b3c4d`.
const UID: usize = 36;

impl ClientProcess {
    /// Looks up a process. One already ended, or in another process namespace, has only its id.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let program =
            read(pid, "comm").map(|name| name.chars().filter(|c| !c.is_control()).collect::<String>());
        let program = program.map(|name| name.chars().take(LONGEST_NAME).collect::<String>());
        let pod_uid = read(pid, "cgroup").and_then(|text| pod_uid(&text));
        Self { pid, program: program.filter(|name| !name.is_empty()), pod_uid }
    }
}

/// `process 4711 (python3, of the pod with uid 0b4e…)`
impl fmt::Display for ClientProcess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {}", self.pid)?;
        match (&self.program, &self.pod_uid) {
            (None, None) => Ok(()),
            (Some(program), None) => write!(formatter, " ({program})"),
            (None, Some(uid)) => write!(formatter, " (of the pod with uid {uid})"),
            (Some(program), Some(uid)) => write!(formatter, " ({program}, of the pod with uid {uid})"),
        }
    }
}

/// Processes for a message; only the first few by name.
pub(super) fn list(pids: &[u32]) -> String {
    const MOST: usize = 8;
    let mut texts: Vec<String> =
        pids.iter().take(MOST).map(|pid| ClientProcess::of(*pid).to_string()).collect();
    if pids.len() > MOST {
        texts.push(format!("{} more", pids.len() - MOST));
    }
    texts.join(", ")
}

fn read(pid: u32, name: &str) -> Option<String> {
    let file = File::open(format!("/proc/{pid}/{name}")).ok()?;
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The pod UID in the text of `/proc/<pid>/cgroup`. The kubelet names a pod's cgroup `pod<uid>`, with `_` in place of
/// `-` if systemd creates it (`kubepods-burstable-pod<uid>.slice`).
#[must_use]
pub fn pod_uid(cgroups: &str) -> Option<String> {
    cgroups.match_indices("pod").find_map(|(at, pod)| {
        let uid = cgroups.get(at + pod.len()..at + pod.len() + UID)?.replace('_', "-");
        let groups: Vec<&str> = uid.split('-').collect();
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
        (lengths == [8, 4, 4, 4, 12] && groups.iter().all(is_hex)).then_some(uid)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_is_in_the_name_of_the_cgroup() {
        let uid = "0b4e5c1a-0d4f-4a6b-8c7d-9e0f1a2b3c4d";
        let of_systemd = uid.replace('-', "_");
        for text in [
            format!("0::/kubelet/kubepods/burstable/pod{uid}/3f9a\n"),
            format!("12:devices:/kubepods/pod{uid}/3f9a\n11:cpu:/kubepods/pod{uid}/3f9a\n"),
            format!(
                "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{of_systemd}.slice/cri-3f.scope\n"
            ),
            format!("0::/../../pod{uid}/3f9a\n"),
        ] {
            assert_eq!(pod_uid(&text).as_deref(), Some(uid), "{text}");
        }
        for text in
            ["", "0::/", "0::/kubepods/pod", "0::/user.slice/podman-1.scope", "pod\u{fc}\u{fc}", "podpodpod"]
        {
            assert_eq!(pod_uid(text), None, "{text}");
        }
    }

    #[test]
    fn this_process_has_a_name_and_one_that_is_gone_an_id() {
        let own = ClientProcess::of(std::process::id());
        assert!(own.program.is_some());
        let gone = ClientProcess::of(u32::MAX);
        assert_eq!(gone.to_string(), format!("process {}", u32::MAX));
        let both = ClientProcess { pid: 7, program: Some("python3".into()), pod_uid: Some("u".into()) };
        assert_eq!(both.to_string(), "process 7 (python3, of the pod with uid u)");
    }
}
