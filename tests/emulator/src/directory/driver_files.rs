//! `DIR/lib` and `DIR/bin`: the driver's libraries and programs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::elf;
use super::error::{CreateError, at};
use super::files::link;
use super::functions;
use crate::machine::Machine;

/// Name of the NVML library as cargo builds it.
const LIBRARY: &str = "libtessera_emulator.so";

/// Libraries of a driver installation beside NVML, with the name used by programs to load them (the lists of
/// libnvidia-container and of the driver's manifest). They are empty: nothing here computes.
const LIBRARIES: &[(&str, &str)] = &[
    ("libcuda", "libcuda.so.1"),
    ("libcudadebugger", "libcudadebugger.so.1"),
    ("libnvidia-cfg", "libnvidia-cfg.so.1"),
    ("libnvidia-nvvm", "libnvidia-nvvm.so.4"),
    ("libnvidia-opencl", "libnvidia-opencl.so.1"),
    ("libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1"),
];

/// Firmware files of the open kernel modules: Turing, and Ampere and newer.
const FIRMWARE: &[&str] = &["gsp_tu10x.bin", "gsp_ga10x.bin"];

/// Stub tools of the driver, and a program using a card.
const PROGRAMS: &[&str] = &["nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "cuda-sample"];

/// Makes them. `programs` is the folder of `gpu-emulator`; `without` names functions to leave out of the library,
/// besides those missing in its driver version.
///
/// # Errors
/// A file built with `gpu-emulator` is missing, a function is unknown, or a file cannot be made.
pub fn create(
    root: &Path,
    machine: &Machine,
    programs: &Path,
    without: &[String],
) -> Result<(), CreateError> {
    let version = &machine.driver.version;
    let lib = root.join("lib");
    fs::create_dir_all(&lib).map_err(at(&lib))?;
    // For programs searching 64-bit directories only.
    link(&root.join("lib64"), "lib")?;
    nvml(&lib, version, programs, without)?;
    empty_libraries(&lib, version)?;
    let firmware = lib.join("firmware/nvidia").join(version);
    fs::create_dir_all(&firmware).map_err(at(&firmware))?;
    for name in FIRMWARE {
        let path = firmware.join(name);
        fs::write(&path, b"firmware of an emulated card\n").map_err(at(&path))?;
    }
    let bin = root.join("bin");
    fs::create_dir_all(&bin).map_err(at(&bin))?;
    for name in PROGRAMS {
        copy(&find(programs, name)?, &bin.join(name))?;
    }
    Ok(())
}

/// Adds the libraries of another version, found by programs from now on.
///
/// # Errors
/// A file built with `gpu-emulator` is missing, or a file cannot be made.
pub fn library(root: &Path, version: &str, programs: &Path) -> Result<(), CreateError> {
    nvml(&root.join("lib"), version, programs, &[])?;
    empty_libraries(&root.join("lib"), version)
}

fn empty_libraries(lib: &Path, version: &str) -> Result<(), CreateError> {
    for (name, soname) in LIBRARIES {
        let path = lib.join(format!("{name}.so.{version}"));
        fs::write(&path, elf::empty_library(soname)).map_err(at(&path))?;
        link(&lib.join(soname), &format!("{name}.so.{version}"))?;
    }
    Ok(())
}

fn nvml(lib: &Path, version: &str, programs: &Path, without: &[String]) -> Result<(), CreateError> {
    let source = find(programs, LIBRARY)?;
    let mut bytes = fs::read(&source).map_err(at(&source))?;
    let mut removed: BTreeSet<&str> = functions::lacked_by(version);
    removed.extend(without.iter().map(String::as_str));
    let missing = elf::remove_functions(&mut bytes, &removed)
        .map_err(|problem| CreateError::Library { path: source, problem })?;
    if let Some(name) = missing.into_iter().next() {
        return Err(CreateError::UnknownFunction(name));
    }
    let path = lib.join(format!("libnvidia-ml.so.{version}"));
    fs::write(&path, bytes).map_err(at(&path))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(at(&path))?;
    link(&lib.join("libnvidia-ml.so.1"), &format!("libnvidia-ml.so.{version}"))
}

/// Finds a file built together with `gpu-emulator`: beside it, or in `deps`, where cargo leaves the newer one after
/// `cargo test`.
fn find(programs: &Path, name: &str) -> Result<PathBuf, CreateError> {
    let beside = programs.join(name);
    let modified = |path: &PathBuf| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    [beside.clone(), programs.join("deps").join(name)]
        .into_iter()
        .filter(|path| path.is_file())
        .max_by_key(modified)
        .ok_or(CreateError::Missing { path: beside })
}

fn copy(source: &Path, target: &Path) -> Result<(), CreateError> {
    // Not fs::copy: a running program cannot be overwritten, and a new file has its own permissions.
    let bytes = fs::read(source).map_err(at(source))?;
    fs::write(target, bytes).map_err(at(target))?;
    fs::set_permissions(target, fs::Permissions::from_mode(0o755)).map_err(at(target))
}
