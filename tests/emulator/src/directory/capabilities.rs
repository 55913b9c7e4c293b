//! Files showing partitions outside NVML: `DIR/proc/driver/nvidia/capabilities`,
//! `DIR/proc/driver/nvidia-caps/mig-minors` and `DIR/dev/nvidia-caps`. NVIDIA's MIG User Guide describes them
//! ("Device Nodes and Capabilities").

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::dev::{self, MAJOR_CAPABILITIES, Nodes};
use super::error::{CreateError, at};
use crate::machine::{Card, Machine};
use crate::state::mig::Mig;

/// Number of cards in the list of minor numbers; the list has all possible ones.
const CARDS: u32 = 32;
/// Number of possible ids of a GPU instance.
const GPU_INSTANCES: u32 = 15;
/// Number of possible ids of a compute instance.
const COMPUTE_INSTANCES: u32 = 8;
/// Minor number of the capability to configure partitions.
const CONFIG: u32 = 1;
/// Minor number of the capability to watch partitions.
const MONITOR: u32 = 2;
/// Mode of the node of the capability to configure: `r--------`.
const CONFIG_MODE: u32 = 0o400;
/// Mode of the other nodes: `r--r--r--`.
const MODE: u32 = 0o444;

/// Minor number of the capability to use a GPU instance, or a compute instance of the GPU instance. Every possible
/// instance has its own.
pub fn minor(card: u32, gpu_instance: u32, compute_instance: Option<u32>) -> u32 {
    let of_gpu_instance = MONITOR + 1 + (card * GPU_INSTANCES + gpu_instance) * (1 + COMPUTE_INSTANCES);
    of_gpu_instance + compute_instance.map_or(0, |id| 1 + id)
}

/// Creates the files of a machine without partitions.
///
/// # Errors
/// When a file cannot be made.
pub fn create(root: &Path, machine: &Machine) -> Result<Nodes, CreateError> {
    let mig = root.join("proc/driver/nvidia/capabilities/mig");
    write(&mig.join("config"), &access(CONFIG, CONFIG_MODE))?;
    write(&mig.join("monitor"), &access(MONITOR, MODE))?;
    let mut minors = format!("config {CONFIG}\nmonitor {MONITOR}\n");
    for card in 0..CARDS.max(machine.cards.len() as u32) {
        for gpu in 0..GPU_INSTANCES {
            minors.push_str(&format!("gpu{card}/gi{gpu}/access {}\n", minor(card, gpu, None)));
            for compute in 0..COMPUTE_INSTANCES {
                let number = minor(card, gpu, Some(compute));
                minors.push_str(&format!("gpu{card}/gi{gpu}/ci{compute}/access {number}\n"));
            }
        }
    }
    write(&root.join("proc/driver/nvidia-caps/mig-minors"), &minors)?;
    for card in machine.cards.iter().filter(|card| card.mig.is_some()) {
        let directory = of_card(root, card);
        fs::create_dir_all(&directory).map_err(at(&directory))?;
    }
    let config = node(root, CONFIG, CONFIG_MODE)?;
    let monitor = node(root, MONITOR, MODE)?;
    Ok(if config == monitor { config } else { Nodes::PlainFiles })
}

/// Makes the files of a card's partitions agree with its state, whatever they were.
///
/// # Errors
/// When a file cannot be made or removed.
pub fn show(root: &Path, card: &Card, mig: &Mig) -> Result<(), CreateError> {
    let directory = of_card(root, card);
    let mut wanted = BTreeSet::new();
    for gpu in &mig.instances {
        let of_gpu = directory.join(format!("gi{}", gpu.id));
        let mut one = |path: PathBuf, number: u32| -> Result<(), CreateError> {
            if !path.exists() {
                node(root, number, MODE)?;
                write(&path, &access(number, MODE))?;
            }
            wanted.insert(path);
            Ok(())
        };
        one(of_gpu.join("access"), minor(card.minor, gpu.id, None))?;
        for compute in &gpu.compute_instances {
            let path = of_gpu.join(format!("ci{}/access", compute.id));
            one(path, minor(card.minor, gpu.id, Some(compute.id)))?;
        }
    }
    for gpu in 0..GPU_INSTANCES {
        let of_gpu = directory.join(format!("gi{gpu}"));
        if !of_gpu.exists() {
            continue;
        }
        for compute in 0..COMPUTE_INSTANCES {
            let of_compute = of_gpu.join(format!("ci{compute}"));
            if of_compute.exists() && !wanted.contains(&of_compute.join("access")) {
                remove(root, &of_compute, minor(card.minor, gpu, Some(compute)))?;
            }
        }
        if !wanted.contains(&of_gpu.join("access")) {
            remove(root, &of_gpu, minor(card.minor, gpu, None))?;
        }
    }
    Ok(())
}

fn of_card(root: &Path, card: &Card) -> PathBuf {
    root.join(format!("proc/driver/nvidia/capabilities/gpu{}/mig", card.minor))
}

fn access(minor: u32, mode: u32) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")
}

fn node(root: &Path, minor: u32, mode: u32) -> Result<Nodes, CreateError> {
    let directory = root.join("dev/nvidia-caps");
    fs::create_dir_all(&directory).map_err(at(&directory))?;
    dev::node(&directory.join(format!("nvidia-cap{minor}")), MAJOR_CAPABILITIES, minor, mode)
}

fn write(path: &Path, text: &str) -> Result<(), CreateError> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory).map_err(at(directory))?;
    fs::write(path, text).map_err(at(path))
}

/// Removes the directory of an instance and its device node.
fn remove(root: &Path, directory: &Path, minor: u32) -> Result<(), CreateError> {
    let node = root.join(format!("dev/nvidia-caps/nvidia-cap{minor}"));
    for (path, outcome) in [(directory, fs::remove_dir_all(directory)), (&node, fs::remove_file(&node))] {
        match outcome {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(path)(error)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Options, build};
    use crate::state::mig::{ComputeInstance, GpuInstance};

    #[test]
    fn minor_numbers_are_those_of_the_drivers_list() {
        // As printed in NVIDIA's MIG User Guide and in comments of its DRA driver.
        assert_eq!(minor(0, 0, None), 3);
        assert_eq!(minor(0, 0, Some(2)), 6);
        assert_eq!(minor(3, 3, Some(3)), 439);
        assert_eq!(minor(6, 11, Some(7)), 920);
        assert_eq!(minor(31, 14, Some(7)), 4322);
    }

    #[test]
    fn files_follow_the_state() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let machine = build::build(&Options { hardware: "hgx-h100-80gb".into(), ..Options::default() });
        let machine = machine.expect("an H100 machine");
        create(root.path(), &machine).expect("the files");
        let compute = |id| ComputeInstance { serial: 2, id, profile: 0, start: id, size: 1 };
        let gpu = |id, compute_instances| GpuInstance {
            serial: 1,
            id,
            profile: 9,
            start: 0,
            size: 4,
            compute_instances,
        };
        let mut mig =
            Mig { enabled: true, instances: vec![gpu(1, vec![compute(0), compute(1)])], ..Mig::default() };
        let card = &machine.cards[2];
        let path = |name: &str| {
            root.path().join(format!("proc/driver/nvidia/capabilities/gpu{}/mig/{name}", card.minor))
        };
        let nodes = || fs::read_dir(root.path().join("dev/nvidia-caps")).expect("nodes").count();
        show(root.path(), card, &mig).expect("shown");
        let number = minor(card.minor, 1, Some(1));
        let text = fs::read_to_string(path("gi1/ci1/access")).expect("the file");
        assert_eq!(text, format!("DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"));
        assert_eq!(nodes(), 2 + 3);
        mig.instances[0].compute_instances.remove(0);
        mig.instances.push(gpu(2, vec![]));
        show(root.path(), card, &mig).expect("shown");
        assert!(!path("gi1/ci0").exists() && path("gi1/ci1/access").exists() && path("gi2/access").exists());
        mig.instances.clear();
        show(root.path(), card, &mig).expect("shown");
        assert_eq!(fs::read_dir(path("")).expect("it stays").count(), 0);
        assert_eq!(nodes(), 2);
    }
}
