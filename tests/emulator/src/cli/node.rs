//! `gpu-emulator node`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::create;
use crate::hardware;
use crate::state::Store;

/// NVIDIA's PCI vendor id, as in sysfs.
const NVIDIA: &str = "0x10de";
/// Display controllers, by the first digits of sysfs' `class`.
const DISPLAY: &str = "0x03";

#[derive(clap::Args)]
pub(super) struct Node {
    #[command(flatten)]
    create: create::Arguments,
    /// Where the node's real devices are looked for.
    #[arg(long, default_value = "/sys", value_name = "DIR")]
    sysfs: PathBuf,
    /// Stays until SIGTERM or SIGINT, for a container in which commands are run.
    #[arg(long)]
    stay: bool,
}

pub(super) fn run(arguments: Node) -> anyhow::Result<()> {
    let stay = arguments.stay;
    lay_out(arguments)?;
    if stay {
        wait_for_the_end();
    }
    Ok(())
}

fn lay_out(arguments: Node) -> anyhow::Result<()> {
    let directory = &arguments.create.directory.directory;
    if let Some(card) = real_card(&arguments.sysfs)? {
        bail!(
            "this node has a real NVIDIA card at {card}: emulated ones are for nodes without any. Choose other nodes \
             (kubeletPlugin.nodeSelector), or leave emulated.hardware empty to use the real cards"
        );
    }
    let store = Store::new(directory);
    if store.exists() {
        let there = store.machine()?.hardware;
        let wanted = hardware::machine_name(&arguments.create.hardware)?;
        if there != wanted {
            bail!(
                "this node is an emulated {there} already, in {}, and pods may use its cards. To make it {wanted}, drain the \
                 node, remove what is in that directory, and delete this pod",
                directory.display()
            );
        }
        println!("{}: {there}, as it was", directory.display());
        return Ok(());
    }
    create::run(arguments.create)
}

/// The first process of a container must take its signals itself: there they have no default action.
fn wait_for_the_end() {
    let mut signal = 0;
    // SAFETY: the set is initialised by sigemptyset before it is read; this process has one thread.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::sigwait(&raw const set, &raw mut signal);
    }
}

/// PCI address of a real card of this node.
fn real_card(sysfs: &Path) -> anyhow::Result<Option<String>> {
    let devices = sysfs.join("bus/pci/devices");
    // A machine without PCI has no such directory.
    let Ok(entries) = fs::read_dir(&devices) else { return Ok(None) };
    for entry in entries {
        let entry = entry.with_context(|| devices.display().to_string())?;
        let is = |file: &str, begin: &str| {
            fs::read_to_string(entry.path().join(file)).is_ok_and(|text| text.starts_with(begin))
        };
        if is("vendor", NVIDIA) && is("class", DISPLAY) {
            return Ok(Some(entry.file_name().to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}
