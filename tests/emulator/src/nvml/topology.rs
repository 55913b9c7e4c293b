//! Topology: the PCIe level between cards, and the CPUs and memory near them.

use super::call::{device, nvml_functions, system};
use super::context::{CardView, Context};
use super::ffi::Out;
use super::handle::Handle;
use crate::failure::Failure;
use crate::machine::{Level, Machine};

/// Bits of one word of an affinity mask (`unsigned long`).
const WORD: u32 = usize::BITS;

/// The levels of `nvmlGpuTopologyLevel_t`.
const LEVELS: [Level; 6] =
    [Level::Internal, Level::Single, Level::Multiple, Level::HostBridge, Level::Node, Level::System];

/// `nvmlAffinityScope_t`: the NUMA node, and the socket, one node on every machine here.
const SCOPES: [u32; 2] = [0, 1];

/// `nvmlGpuP2PStatus_t`
mod p2p {
    pub const OK: u32 = 0;
    pub const NOT_SUPPORTED: u32 = 5;
    pub const UNKNOWN: u32 = 6;
}

/// `nvmlGpuP2PCapsIndex_t`
mod capability {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const NVLINK: u32 = 2;
    pub const ATOMICS: u32 = 3;
    pub const PCI: u32 = 4;
}

/// CPU numbers of a kernel list such as `0-55,112-167`.
pub fn cpus(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last >= 65536 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The numbers as a bit mask of `words` words; higher numbers are left out, as in the real library.
fn mask(numbers: &[u32], words: u32) -> Vec<usize> {
    let mut mask = vec![0_usize; words.min(4096) as usize];
    for number in numbers {
        if let Some(word) = mask.get_mut((number / WORD) as usize) {
            *word |= 1 << (number % WORD);
        }
    }
    mask
}

fn cpu_affinity(view: CardView<'_>, words: u32, set: Out<usize>) -> Result<(), Failure> {
    let list = view.card.cpus.as_deref().ok_or(Failure::NOT_SUPPORTED)?;
    let numbers = cpus(list).ok_or(Failure::UNKNOWN)?;
    set.fill(words, &mask(&numbers, words), 0)
}

nvml_functions! {
    /// `nvmlDeviceGetCpuAffinity`
    fn nvmlDeviceGetCpuAffinity(view: CardView, words: u32, set: Out<usize>) {
        cpu_affinity(view, words, set)
    }

    /// `nvmlDeviceGetCpuAffinityWithinScope`
    fn nvmlDeviceGetCpuAffinityWithinScope(view: CardView, words: u32, set: Out<usize>, scope: u32) {
        if !SCOPES.contains(&scope) {
            return Err(Failure::INVALID_ARGUMENT);
        }
        cpu_affinity(view, words, set)
    }

    /// `nvmlDeviceGetMemoryAffinity`
    fn nvmlDeviceGetMemoryAffinity(view: CardView, words: u32, set: Out<usize>, scope: u32) {
        if !SCOPES.contains(&scope) {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let node = view.card.numa_node.ok_or(Failure::NOT_SUPPORTED)?;
        set.fill(words, &mask(&[node], words), 0)
    }

    /// `nvmlDeviceGetNumaNodeId`: only for cards whose memory is a NUMA node of the host.
    fn nvmlDeviceGetNumaNodeId(view: CardView, node: Out<u32>) {
        node.set(view.card.memory_numa_node.ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetTopologyNearestGpus`
    fn nvmlDeviceGetTopologyNearestGpus(view: CardView, level: u32, count: Out<u32>, devices: Out<Handle>) {
        let level = LEVELS.into_iter().find(|known| known.nvml() == level).ok_or(Failure::INVALID_ARGUMENT)?;
        let machine = view.context.machine();
        let row = machine.levels.get(view.card.index as usize).ok_or(Failure::UNKNOWN)?;
        let near: Vec<Handle> = machine
            .cards
            .iter()
            .zip(row)
            .filter(|(other, meeting)| other.index != view.card.index && **meeting == level)
            .map(|(other, _)| Handle::of(other.index))
            .collect();
        give(&near, count, devices)
    }
}

/// Returns a list like the topology functions: a count of 0 asks for the number; otherwise as many values as fit.
fn give(found: &[Handle], count: Out<u32>, devices: Out<Handle>) -> Result<(), Failure> {
    let room = count.get()? as usize;
    if room == 0 {
        return count.set(found.len() as u32);
    }
    let fitting = &found[..found.len().min(room)];
    count.set(room as u32)?;
    devices.set_list(count, fitting)
}

/// `nvmlDeviceGetTopologyCommonAncestor`
///
/// # Safety
/// Pointers must be null or valid as `nvml.h` requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    one: Handle,
    other: Handle,
    level: Out<u32>,
) -> u32 {
    device("nvmlDeviceGetTopologyCommonAncestor", one, |view| {
        let other = view.context.handle(other)?;
        level.set(view.context.machine().levels[view.card.index as usize][other.card.index as usize].nvml())
    })
}

/// `nvmlDeviceGetP2PStatus`
///
/// # Safety
/// Pointers must be null or valid as `nvml.h` requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetP2PStatus(
    one: Handle,
    other: Handle,
    index: u32,
    status: Out<u32>,
) -> u32 {
    device("nvmlDeviceGetP2PStatus", one, |view| {
        let other = view.context.handle(other)?;
        if other.card.index == view.card.index {
            return Err(Failure::INVALID_ARGUMENT);
        }
        let linked = active_links_between(&view, &other);
        status.set(match index {
            capability::NVLINK if linked => p2p::OK,
            capability::NVLINK => p2p::NOT_SUPPORTED,
            capability::READ | capability::WRITE | capability::ATOMICS if linked => p2p::OK,
            // Whether two cards reach each other over PCIe depends on the machine; captures do not show it.
            capability::READ | capability::WRITE | capability::ATOMICS | capability::PCI => p2p::UNKNOWN,
            _ => return Err(Failure::INVALID_ARGUMENT),
        })
    })
}

/// Whether active NVLinks connect two cards, directly or through switches. MIG mode turns them off.
fn active_links_between(one: &CardView<'_>, other: &CardView<'_>) -> bool {
    let machine: &Machine = one.context.machine();
    let down = |view: &CardView<'_>| view.state.links_down.len() >= view.card.links.len();
    !one.state.mig.enabled
        && !other.state.mig.enabled
        && !down(one)
        && !down(other)
        && machine.links_between(one.card.index as usize, other.card.index as usize) > 0
        && super::nvlink::up_between(one, other)
}

/// `nvmlSystemGetTopologyGpuSet`: the cards near a CPU.
///
/// # Safety
/// Pointers must be null or valid as `nvml.h` requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetTopologyGpuSet(cpu: u32, count: Out<u32>, devices: Out<Handle>) -> u32 {
    system("nvmlSystemGetTopologyGpuSet", |context: &Context| {
        let near: Vec<Handle> = context
            .machine()
            .present()
            .filter(|card| card.cpus.as_deref().and_then(cpus).is_some_and(|cpus| cpus.contains(&cpu)))
            .map(|card| Handle::of(card.index))
            .collect();
        give(&near, count, devices)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpus("0-2,8"), Some(vec![0, 1, 2, 8]));
        for wrong in ["", "a", "3-1", "0-99999999"] {
            assert_eq!(cpus(wrong), None, "{wrong:?}");
        }
        assert_eq!(mask(&[0, 65], 2), [1, 2]);
        assert_eq!(mask(&[0, 65], 1), [1]);
    }
}
