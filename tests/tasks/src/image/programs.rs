use clap::ValueEnum;

/// The programs that run in a cluster, each in an image of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Program {
    KubeletPlugin,
    MpsHost,
    Controller,
    GpuRun,
    GpuEmulator,
}

impl Program {
    /// Name of the program, and last part of its image's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KubeletPlugin => "kubelet-plugin",
            Self::MpsHost => "mps-host",
            Self::Controller => "controller",
            Self::GpuRun => "gpu-run",
            Self::GpuEmulator => "gpu-emulator",
        }
    }

    /// The program's package.
    pub(super) fn package(self) -> &'static str {
        match self {
            Self::KubeletPlugin => "tessera-kubelet-plugin",
            Self::MpsHost => "tessera-mps-host",
            Self::Controller => "tessera-controller",
            Self::GpuRun => "tessera-gpu-run",
            Self::GpuEmulator => "tessera-emulator",
        }
    }

    /// Whether it is linked without shared libraries: it runs in images of other people.
    pub(super) fn is_static(self) -> bool {
        self == Self::GpuRun
    }

    /// One line for registries.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::KubeletPlugin => "Tessera on a node: publishes the node's GPUs and prepares claims",
            Self::MpsHost => "Tessera on a node: runs the MPS daemons of shared GPUs",
            Self::Controller => "Tessera in a cluster: proposes nodes for GPU pods, says how GPU pools are",
            Self::GpuRun => "Tessera in a pod: starts the steps of a job in all its pods, by Slurm's words",
            Self::GpuEmulator => {
                "Tries Tessera without a GPU: makes a node into a machine with emulated ones"
            }
        }
    }
}
