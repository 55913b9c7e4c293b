use std::path::PathBuf;

use nvml_wrapper_sys::bindings as sys;

use crate::driver_root::DriverRoot;
use crate::driver_version::{DriverVersion, MINIMUM_DRIVER_VERSION};
use crate::error::NvmlError;

/// An unusable library of the driver. Each message names a remedy. Each condition may pass by itself (a driver
/// being installed, a module not yet loaded), so callers should retry from time to time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No library in any of the usual places.
    #[error(
        "no {} below {}: install the NVIDIA driver on this node, or point --driver-root at the driver's \
         installation (with the GPU Operator: /run/nvidia/driver), or name the directory of its libraries with --driver-paths; \
         searched {}",
        crate::LIBRARY_NAME, root.path.display(), searched(root)
    )]
    NotFound {
        /// The searched places.
        root: DriverRoot,
    },
    /// There are libraries, but for other processors.
    #[error(
        "{} is no library for this processor ({}): install the NVIDIA driver for this architecture",
        path.display(), std::env::consts::ARCH
    )]
    OtherProcessor {
        /// The first one found.
        path: PathBuf,
    },
    /// The end of the file is missing; loading the file would kill this process.
    #[error(
        "{} lacks its end: if the NVIDIA driver is being installed just now this passes, else look for a full disk and \
         install the driver again", path.display()
    )]
    CutShort {
        /// The library.
        path: PathBuf,
    },
    /// The dynamic loader refused the library.
    #[error("can't load {}: {source}; install the NVIDIA driver again or repair it", path.display())]
    NotLoadable {
        /// The library.
        path: PathBuf,
        /// The loader's message.
        source: libloading::Error,
    },
    /// The library loads, but refuses to start.
    #[error("{} does not start: {error}; {}", path.display(), advice(error))]
    NotStarted {
        /// The library.
        path: PathBuf,
        /// The answer.
        error: NvmlError,
    },
    /// The library runs, but knows no card of this machine.
    #[error(
        "{}: the driver sees no card; if this node should have one, look at lspci -d 10de: and the kernel's log \
         (NVRM), and whether the card is bound to another driver such as vfio-pci", path.display()
    )]
    NoCards {
        /// The library.
        path: PathBuf,
    },
    /// The library runs, but is too old for Tessera.
    #[error(
        "{}: driver {found} is too old: Tessera needs {MINIMUM_DRIVER_VERSION} or newer, upgrade it", path.display()
    )]
    TooOld {
        /// The library.
        path: PathBuf,
        /// Its version.
        found: DriverVersion,
    },
}

fn searched(root: &DriverRoot) -> String {
    root.library_directories().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn advice(error: &NvmlError) -> &'static str {
    let NvmlError::Call { code, .. } = error else {
        return "this is no NVML library of a driver that Tessera works with: upgrade the NVIDIA driver";
    };
    match *code {
        sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED => {
            "load the NVIDIA kernel module (modprobe nvidia) and see the kernel's log for why it isn't; in a container, \
             mount /dev/nvidiactl"
        }
        sys::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH => {
            "the library and the loaded kernel module are of different driver versions, as after an upgrade: reboot the \
             node or load the module anew"
        }
        sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => {
            "run as root, or give this user access to /dev/nvidiactl and /dev/nvidia*"
        }
        sys::nvmlReturn_enum_NVML_ERROR_IRQ_ISSUE => {
            "the kernel gets no interrupts of a card: see the kernel's log"
        }
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_POWER => {
            "a card's power cable is not connected properly"
        }
        sys::nvmlReturn_enum_NVML_ERROR_OPERATING_SYSTEM => {
            "the operating system blocks the driver: see whether a cgroup forbids the device nodes /dev/nvidia*"
        }
        sys::nvmlReturn_enum_NVML_ERROR_MEMORY => "not enough memory",
        sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST | sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED => {
            "a card fell off the bus or needs a reset: see the kernel's log, reset it (nvidia-smi --gpu-reset) or reboot"
        }
        sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT => "the driver hangs: see the kernel's log, reboot the node",
        _ => "see what nvidia-smi says on the node, and the kernel's log (NVRM)",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn not_started(code: u32) -> String {
        let error = NvmlError::Call { function: "nvmlInit_v2", code, text: "Text".into() };
        OpenError::NotStarted { path: "/lib/libnvidia-ml.so.1".into(), error }.to_string()
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        for (code, advice) in [(4, "root"), (9, "modprobe nvidia"), (18, "reboot"), (999, "nvidia-smi")] {
            let message = not_started(code);
            assert!(message.contains(advice) && message.contains("nvmlInit_v2"), "{message}");
        }
    }

    #[test]
    fn a_missing_library_names_the_option() {
        let message =
            OpenError::NotFound { root: DriverRoot::from(Path::new("/run/nvidia/driver")) }.to_string();
        assert!(message.contains("--driver-root") && message.contains("usr/lib64"), "{message}");
    }
}
