use clap::ValueEnum;

/// The programs that run in a cluster, each in an image of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Program {
    KubeletPlugin,
}

impl Program {
    /// Of the program, and the last part of its image's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KubeletPlugin => "kubelet-plugin",
        }
    }

    /// The package it is built from.
    pub(super) fn package(self) -> &'static str {
        match self {
            Self::KubeletPlugin => "tessera-kubelet-plugin",
        }
    }

    /// One line for registries.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::KubeletPlugin => "Tessera on a node: publishes the node's GPUs and prepares claims",
        }
    }
}
