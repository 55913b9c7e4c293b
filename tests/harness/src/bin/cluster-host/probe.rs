//! `probe DIRECTORY`: tries the needs of the node tier, and reports missing ones. Leaves nothing behind: everything is
//! made in namespaces of the probe's own lifetime.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, Result, bail};
use nix::{
    mount::MsFlags,
    sched::{CloneFlags, unshare},
    unistd::geteuid,
};

use crate::{mounts::mount_one, network};

pub fn main(directory: &str) -> Result<ExitCode> {
    match try_all(Path::new(directory)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            println!("{error:#}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn try_all(directory: &Path) -> Result<()> {
    if !geteuid().is_root() {
        bail!("it needs root, for namespaces, mounts and containers");
    }
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWCGROUP
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS,
    )
    .context("the kernel does not let us make namespaces (CAP_SYS_ADMIN, user.max_*_namespaces)")?;
    mount_one(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)
        .context("mounts are not allowed")?;
    try_overlay(directory).context("overlayfs does not work here, which containerd needs")?;
    try_links()
}

fn try_overlay(directory: &Path) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("probe-").tempdir_in(directory)?;
    let path = |name: &str| folder.path().join(name);
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(path(name))?;
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        path("lower").display(),
        path("upper").display(),
        path("work").display()
    );
    mount_one(Some("overlay"), &path("merged"), Some("overlay"), MsFlags::empty(), Some(&options))?;
    fs::write(path("merged").join("file"), "x")?;
    nix::mount::umount(&path("merged"))?;
    Ok(())
}

fn try_links() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let handle = network::connect()?;
        handle
            .link()
            .add(rtnetlink::LinkVeth::new("probe0", "probe1").build())
            .execute()
            .await
            .context("the kernel has no veth links (module veth)")?;
        Ok(())
    })
}
