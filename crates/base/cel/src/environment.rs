//! Kubernetes' treatment of an expression depends on its release, on a gate, and on whether the expression is new.

use tessera_api::kubernetes::KubernetesVersion;

/// Whose verdicts, values, errors and costs an expression gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Environment {
    /// The release of Kubernetes; its patches do not differ here.
    pub version: KubernetesVersion,
    /// The alpha gate DRAListTypeAttributes: attributes may be lists, so their static type is `dyn` instead of `any`,
    /// and the macros work on them. From 1.37 on only new expressions need the gate.
    pub list_type_attributes: bool,
}

/// Whether the API server stores an expression or the scheduler reads a stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    New,
    Stored,
}

impl From<KubernetesVersion> for Environment {
    /// With the gates at their defaults.
    fn from(version: KubernetesVersion) -> Self {
        Environment { version, list_type_attributes: false }
    }
}

impl Environment {
    /// Whether list attributes can be read. If not, every selector fails on a device with one.
    #[must_use]
    pub fn reads_lists(self) -> bool {
        self.list_type_attributes || is_1_37(self.version)
    }

    /// Whether the static type of an attribute is `dyn` instead of `any`.
    pub(crate) fn attributes_are_dyn(self, origin: Origin) -> bool {
        self.list_type_attributes || (is_1_37(self.version) && origin == Origin::Stored)
    }

    /// Whether the function `includes` is declared.
    pub(crate) fn has_includes(self, origin: Origin) -> bool {
        self.list_type_attributes || origin == Origin::Stored
    }
}

/// Whether expressions follow Kubernetes 1.37 (cel-go 0.29) instead of 1.36 (cel-go 0.26).
pub(crate) fn is_1_37(version: KubernetesVersion) -> bool {
    version >= KubernetesVersion::V1_37
}
