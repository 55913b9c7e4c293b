//! `DIR/dev`: the driver's device nodes.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::error::{CreateError, at};
use super::files::remove;
use crate::machine::Machine;

/// Major number of `nvidia0`, …, `nvidiactl` and `nvidia-modeset` (Linux `Documentation/admin-guide/devices.txt`).
pub const MAJOR_NVIDIA: u32 = 195;
/// Minor number of `nvidia-modeset` (`nv-modeset` of the open kernel modules).
const MINOR_MODESET: u32 = 254;
/// Minor number of `nvidiactl`.
const MINOR_CONTROL: u32 = 255;
/// Major number of `nvidia-uvm` here. The kernel assigns one from the dynamic range at load.
pub const MAJOR_UVM: u32 = 234;
/// Major number of `nvidia-caps` here, likewise.
pub const MAJOR_CAPABILITIES: u32 = 237;

/// Whether the nodes became character devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Character devices, as the driver has.
    CharacterDevices,
    /// Plain files: making devices was not permitted.
    PlainFiles,
}

/// Every node with its numbers.
fn nodes(machine: &Machine) -> Vec<(String, u32, u32)> {
    let mut nodes = vec![
        ("nvidiactl".to_owned(), MAJOR_NVIDIA, MINOR_CONTROL),
        ("nvidia-modeset".to_owned(), MAJOR_NVIDIA, MINOR_MODESET),
        ("nvidia-uvm".to_owned(), MAJOR_UVM, 0),
        ("nvidia-uvm-tools".to_owned(), MAJOR_UVM, 1),
    ];
    nodes
        .extend(machine.cards.iter().map(|card| (format!("nvidia{}", card.minor), MAJOR_NVIDIA, card.minor)));
    nodes
}

/// Makes the nodes: as devices where permitted, else as empty files.
///
/// # Errors
/// When neither can be made.
pub fn create(root: &Path, machine: &Machine) -> Result<Nodes, CreateError> {
    let directory = root.join("dev");
    fs::create_dir_all(&directory).map_err(at(&directory))?;
    let mut outcome = Nodes::CharacterDevices;
    for (name, major, minor) in nodes(machine) {
        if node(&directory.join(name), major, minor, 0o666)? == Nodes::PlainFiles {
            outcome = Nodes::PlainFiles;
        }
    }
    Ok(outcome)
}

/// Makes one node in place of whatever is there.
pub(super) fn node(path: &Path, major: u32, minor: u32, mode: u32) -> Result<Nodes, CreateError> {
    remove(path)?;
    let mode = Mode::from_raw_mode(mode);
    match mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor)) {
        Ok(()) => {
            // mknod applies the umask; the driver's nodes have their full modes.
            rustix::fs::chmod(path, mode).map_err(|error| at(path)(error.into()))?;
            Ok(Nodes::CharacterDevices)
        }
        Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => {
            fs::write(path, []).map_err(at(path))?;
            Ok(Nodes::PlainFiles)
        }
        Err(error) => Err(at(path)(error.into())),
    }
}
