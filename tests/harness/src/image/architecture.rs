use std::{env::consts::ARCH, fmt};

use object::elf::{EM_AARCH64, EM_X86_64};

/// Architectures of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// AArch64.
    Arm64,
}

impl Architecture {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// This machine's architecture; `None` if images do not support it.
    #[must_use]
    pub fn native() -> Option<Self> {
        match ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// Its name in the OCI image specification, `GOARCH`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Rust's target triple, with glibc.
    #[must_use]
    pub fn rust_target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Name of the cross compiler linking for this architecture, in Debian, Ubuntu and Fedora.
    #[must_use]
    pub fn cross_compiler(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu-gcc",
            Self::Arm64 => "aarch64-linux-gnu-gcc",
        }
    }

    /// By the ELF header's `e_machine`.
    pub(super) fn of_machine(machine: u16) -> Option<Self> {
        match machine {
            EM_X86_64 => Some(Self::Amd64),
            EM_AARCH64 => Some(Self::Arm64),
            _ => None,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
