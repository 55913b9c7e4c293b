//! Cgroups of a cluster: one group in each hierarchy, with a child group for each machine as the root visible to the
//! machine. Works with version 1, version 2, and both at the same time.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, umount2};

use crate::{mounts::mount_one, supervise::cluster_name};

/// Timeout for the processes of a killed cluster to leave their groups.
const PATIENCE: Duration = Duration::from_secs(5);

/// One mounted hierarchy.
struct Hierarchy {
    mount_point: PathBuf,
    /// Mount options naming the hierarchy; none for version 2.
    controllers: Option<String>,
}

/// Makes the cluster's group in each hierarchy.
pub fn create(state: &Path) -> Result<()> {
    for hierarchy in hierarchies()? {
        let group = hierarchy.mount_point.join(cluster_name(state));
        if hierarchy.controllers.is_none() {
            delegate(&hierarchy.mount_point);
        }
        make(&group)?;
        if hierarchy.controllers.is_none() {
            delegate(&group);
        }
    }
    Ok(())
}

/// Makes a machine's group and moves this process there.
pub fn join(state: &Path, machine: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let group = hierarchy.mount_point.join(cluster_name(state)).join(machine);
        // A restarted machine finds its old groups. They have leaves and therefore accept no process.
        remove_patiently(&group);
        make(&group)?;
        fs::write(group.join("cgroup.procs"), "0")
            .with_context(|| format!("cannot move to {}", group.display()))?;
    }
    Ok(())
}

/// Mounts the hierarchies again, in a fresh cgroup namespace, with the machine's own group as their root.
pub fn mount_own() -> Result<()> {
    let all = hierarchies()?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let root = Path::new("/sys/fs/cgroup");
    if all.iter().any(|hierarchy| hierarchy.mount_point == root) {
        // The kernel does not mount a file system on itself.
        umount2(root, MntFlags::MNT_DETACH).context("cannot unmount the machine's cgroups")?;
    } else {
        mount_one(Some("tmpfs"), root, Some("tmpfs"), flags, Some("mode=755"))?;
    }
    for hierarchy in &all {
        let place = &hierarchy.mount_point;
        fs::create_dir_all(place)?;
        match &hierarchy.controllers {
            Some(controllers) => mount_one(Some("cgroup"), place, Some("cgroup"), flags, Some(controllers))?,
            None => {
                mount_one(Some("cgroup2"), place, Some("cgroup2"), flags, None)?;
                // A group with processes cannot delegate controllers: only leaves may have processes.
                let leaf = place.join("host");
                make(&leaf)?;
                fs::write(leaf.join("cgroup.procs"), "0").context("cannot move to the leaf group")?;
                delegate(place);
            }
        }
    }
    Ok(())
}

/// Removes the cluster's groups from all hierarchies.
pub fn remove(state: &Path) {
    let Ok(all) = hierarchies() else { return };
    for hierarchy in all {
        remove_patiently(&hierarchy.mount_point.join(cluster_name(state)));
    }
}

/// Retries, because killed processes leave their groups slightly after they die.
fn remove_patiently(group: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while group.exists() && !remove_tree(group) {
        if Instant::now() > deadline {
            let group = group.display();
            eprintln!("cluster-host: cannot remove the cgroup {group}: it still has processes");
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn remove_tree(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    match fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn make(group: &Path) -> Result<()> {
    if group.exists() {
        return Ok(());
    }
    fs::create_dir(group).with_context(|| format!("cannot create the cgroup {}", group.display()))?;
    // A cpuset without processors and memory accepts no process.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let Some(parent) = group.parent() else { continue };
        let effective = parent.join(file.replace("cpuset.", "cpuset.effective_"));
        let unified = group.join("cgroup.controllers").exists();
        if !unified && group.join(file).exists() {
            let inherited =
                fs::read_to_string(effective).or_else(|_| fs::read_to_string(parent.join(file)))?;
            fs::write(group.join(file), inherited.trim())?;
        }
    }
    Ok(())
}

/// Delegates all controllers of a version 2 group to its children, as far as the kernel allows.
fn delegate(group: &Path) {
    let controllers = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

fn hierarchies() -> Result<Vec<Hierarchy>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let mut all: Vec<Hierarchy> = Vec::new();
    for line in text.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let kind: Vec<&str> = kind.split(' ').collect();
        let (Some(mount_point), Some(options)) = (place.split(' ').nth(4), kind.get(2)) else { continue };
        let controllers = match kind.first() {
            Some(&"cgroup2") => None,
            Some(&"cgroup") => Some(naming_options(options)),
            _ => continue,
        };
        // If the same hierarchy is mounted twice, the last mount hides the earlier one.
        let mount_point = PathBuf::from(mount_point);
        all.retain(|known| known.mount_point != mount_point && known.controllers != controllers);
        all.push(Hierarchy { mount_point, controllers });
    }
    Ok(all)
}

/// The mount options identifying a version 1 hierarchy.
fn naming_options(options: &str) -> String {
    let others = ["rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode"];
    let names: Vec<&str> = options
        .split(',')
        .filter(|option| !others.contains(option) && !option.starts_with("release_agent="))
        .collect();
    if names.iter().all(|name| name.starts_with("name=")) {
        format!("none,{}", names.join(","))
    } else {
        names.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::naming_options;

    #[test]
    fn hierarchies_are_named_by_their_controllers() {
        assert_eq!(naming_options("rw,cpu,cpuacct"), "cpu,cpuacct");
        assert_eq!(naming_options("rw,xattr,release_agent=/lib/agent,name=systemd"), "none,name=systemd");
        assert_eq!(naming_options("rw,devices"), "devices");
    }
}
