//! A task's own GPUs among those of its pod.

use std::{
    collections::BTreeMap,
    env,
    io::Read as _,
    process::Stdio,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::process::{self, Reaper};

/// How many steps use each of the pod's devices.
#[derive(Default)]
pub struct InUse(Mutex<BTreeMap<String, usize>>);

/// Devices of a step, given back when it ends.
pub struct Taken<'a> {
    pub devices: Vec<String>,
    of: &'a InUse,
}

impl InUse {
    /// Of these devices as many as a step wants, the least used first.
    pub fn take(&self, devices: &[String], count: usize) -> Taken<'_> {
        let mut uses = self.lock();
        let mut places: Vec<usize> = (0..devices.len()).collect();
        places.sort_by_key(|place| uses.get(&devices[*place]).copied());
        places.truncate(count);
        places.sort_unstable();
        let devices: Vec<String> = places.into_iter().map(|place| devices[place].clone()).collect();
        for device in &devices {
            *uses.entry(device.clone()).or_default() += 1;
        }
        Taken { devices, of: self }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut uses = self.of.lock();
        for device in &self.devices {
            match uses.get_mut(device) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(uses.remove(device)),
            }
        }
    }
}

/// The pod's devices, as CUDA_VISIBLE_DEVICES names them: as set in the pod; the UUIDs of MIG devices, for want of
/// numbers; otherwise numbers.
pub fn devices(reaper: &Reaper, most: u32) -> Vec<String> {
    let set = env::var("CUDA_VISIBLE_DEVICES").ok().filter(|set| !set.is_empty());
    if let Some(set) = set {
        return set.split(',').map(|device| device.trim().to_owned()).collect();
    }
    let partitions = partitions(&listed(reaper).unwrap_or_default());
    if partitions.is_empty() { (0..most).map(|number| number.to_string()).collect() } else { partitions }
}

/// The output of `nvidia-smi -L`, if the pod has it.
fn listed(reaper: &Reaper) -> Option<String> {
    let mut command = process::command("nvidia-smi".as_ref());
    command.arg("-L").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut listing = reaper.start(&mut command).ok()?;
    let mut text = String::new();
    listing.child.stdout.take()?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// UUIDs of the MIG devices in `nvidia-smi -L`'s lines, such as
/// `  MIG 1g.10gb Device 0: (UUID: MIG-0f38…)`.
fn partitions(listed: &str) -> Vec<String> {
    let uuids = listed.lines().filter_map(|line| line.split_once("(UUID: ")?.1.strip_suffix(')'));
    uuids.filter(|uuid| uuid.starts_with("MIG-")).map(str::to_owned).collect()
}

/// A value for CUDA_VISIBLE_DEVICES: `count` devices from `first` on; empty if there are not so many.
pub fn share(devices: &[String], first: u32, count: u32) -> String {
    let (first, count) = (first as usize, count as usize);
    first.checked_add(count).and_then(|end| devices.get(first..end)).unwrap_or_default().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mig_devices_have_uuids() {
        let listed = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11)\n  MIG 1g.10gb     Device  0: (UUID: MIG-21)\n  \
                      MIG 1g.10gb     Device  1: (UUID: MIG-22)\n";
        assert_eq!(partitions(listed), ["MIG-21", "MIG-22"]);
        assert!(partitions("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11)\n").is_empty());
    }

    #[test]
    fn steps_at_once_take_others() {
        let (devices, in_use) = (["0", "1", "2"].map(str::to_owned), InUse::default());
        let first = in_use.take(&devices, 2);
        let second = in_use.take(&devices, 1);
        assert_eq!((first.devices.join(","), second.devices.join(",")), ("0,1".into(), "2".into()));
        drop(first);
        assert_eq!(in_use.take(&devices, 2).devices, ["0", "1"]);
        assert_eq!(in_use.take(&devices, 9).devices.len(), 3);
    }

    #[test]
    fn each_task_has_its_own() {
        let devices = ["0", "1", "2", "3"].map(str::to_owned);
        assert_eq!(share(&devices, 2, 2), "2,3");
        assert_eq!(share(&devices, 3, 2), "");
    }
}
