//! `gpu-run install`: puts the program where the containers of a pod find it.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use anyhow::{Context as _, Result, bail};

pub fn main(arguments: &[OsString]) -> Result<u8> {
    let [directory] = arguments else { bail!("one directory is needed: gpu-run install DIR") };
    install(Path::new(directory)).with_context(|| format!("cannot install into {}", directory.display()))?;
    Ok(0)
}

fn install(directory: &Path) -> std::io::Result<()> {
    let programs = directory.join("bin");
    fs::create_dir_all(&programs)?;
    let program = programs.join("gpu-run");
    // After a restart of the container the program may be in use, and can only be replaced.
    let new = programs.join(".gpu-run");
    fs::copy("/proc/self/exe", &new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(&new, &program)?;
    for name in ["srun", "scontrol", "module"] {
        match symlink("gpu-run", programs.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
