//! A machine's view of the file system.

use std::{
    fs::{self, File},
    io::Write,
    os::fd::AsRawFd,
    path::Path,
};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use tessera_harness::host::MachineConfiguration;

use crate::cgroups;

/// Kernel parameters written by the kubelet unless they have its wanted values. They belong to the whole machine, so
/// the kubelet gets files with the wanted values instead, and changes nothing.
/// Source: kubernetes pkg/kubelet/cm/container_manager_linux.go, `setupKernelTunables`.
const KERNEL_PARAMETERS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// The machine's own folders, from its directory.
const OWN_FOLDERS: [(&str, &str); 3] = [("run", "/run"), ("var-lib", "/var/lib"), ("var-log", "/var/log")];

pub fn set_up(configuration: &MachineConfiguration) -> Result<()> {
    mount_one(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
    mount_one(
        Some("proc"),
        Path::new("/proc"),
        Some("proc"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        None,
    )?;
    if !configuration.node {
        return Ok(());
    }
    let kept = configuration
        .visible
        .iter()
        .map(|path| {
            File::open(path)
                .map(|file| (path, file))
                .with_context(|| format!("cannot open {}", path.display()))
        })
        .collect::<Result<Vec<_>>>()?;
    for (own, place) in OWN_FOLDERS {
        let own = configuration.directory.join(own);
        fs::create_dir_all(&own)?;
        bind(&own, Path::new(place))?;
    }
    for (path, file) in kept {
        // Hidden by one of the folders above.
        if !path.exists() {
            fs::create_dir_all(path)?;
            bind(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())), path)?;
        }
    }
    let parameters = configuration.directory.join("parameters");
    fs::create_dir_all(&parameters)?;
    for (name, value) in KERNEL_PARAMETERS {
        show(&parameters, &format!("/proc/sys/{name}"), value)?;
    }
    show(&parameters, "/proc/sys/kernel/random/boot_id", &boot_id()?)?;
    cgroups::mount_own()?;
    // Like systemd on a real node: pods may request mounts made later (`mountPropagation`).
    mount_one(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_SHARED, None)
}

/// Mounts a file with this content over a file of `/proc/sys`.
fn show(parameters: &Path, path: &str, value: &str) -> Result<()> {
    if !Path::new(path).exists() {
        return Ok(());
    }
    let file = parameters.join(path.trim_start_matches('/').replace('/', "."));
    File::create(&file)?.write_all(format!("{value}\n").as_bytes())?;
    bind(&file, Path::new(path))
}

/// A new boot id: starting a machine again is a boot.
fn boot_id() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")
        .context("cannot read a random UUID")?
        .trim()
        .to_owned())
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    mount_one(from.to_str(), to, None, MsFlags::MS_BIND | MsFlags::MS_REC, None)
}

/// mount(2), with the mount named in errors.
pub fn mount_one(
    from: Option<&str>,
    to: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<()> {
    mount(from, to, kind, flags, options)
        .with_context(|| format!("cannot mount {} on {}", from.unwrap_or("(nothing)"), to.display()))
}
