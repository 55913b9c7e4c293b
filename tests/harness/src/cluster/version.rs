use super::ExtraFlags;
use crate::tools::Module;

/// A supported minor version of Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubernetesVersion {
    /// 1.35.
    V1_35,
    /// 1.36.
    V1_36,
    /// 1.37.
    #[default]
    V1_37,
}

/// Feature gates on by default, but forbidden while another gate is off: the components exit at once. With the other gate,
/// and the first version with both. Source: `defaultKubernetesFeatureGateDependencies` in `pkg/features/kube_features.go`.
const DEPENDENTS: [(&str, &str, KubernetesVersion); 2] = [
    ("DRADeviceTaints", "DRADeviceTaintRules", KubernetesVersion::V1_37),
    ("DRAConsumableCapacity", "DRAFractionalCapacityRange", KubernetesVersion::V1_37),
];

impl KubernetesVersion {
    /// The version of test clusters: `TESSERA_KUBERNETES`, as `1.36`, else the default.
    ///
    /// # Panics
    ///
    /// If the variable names an unknown version: tests of another one would say nothing.
    pub fn of_tests() -> Self {
        match std::env::var("TESSERA_KUBERNETES") {
            Ok(text) => text.parse().unwrap_or_else(|error| panic!("TESSERA_KUBERNETES={text}: {error}")),
            Err(_) => Self::default(),
        }
    }

    /// Flags to switch these feature gates off in the control plane, together with their dependents.
    pub fn without(self, gates: &[&str]) -> ExtraFlags {
        let dependents = DEPENDENTS.iter().filter(|(gate, _, since)| gates.contains(gate) && self >= *since);
        let all = gates.iter().copied().chain(dependents.map(|(_, dependent, _)| *dependent));
        ExtraFlags {
            feature_gates: all.map(|gate| (gate.to_owned(), false)).collect(),
            ..ExtraFlags::default()
        }
    }

    /// Flags for PodGroups in 1.36 and newer, scheduled together by kube-scheduler, and for DeviceTaintRules.
    pub fn with_all_kinds(self) -> ExtraFlags {
        // In 1.37 one gate does both for PodGroups, and DeviceTaintRules are there by default.
        let gates: &[&str] = match self {
            Self::V1_35 | Self::V1_36 => &["GenericWorkload", "GangScheduling", "DRADeviceTaintRules"],
            Self::V1_37 => &["GenericWorkload"],
        };
        let served = [self.pod_groups(), self.taint_rules()].map(|version| format!("{version}=true"));
        ExtraFlags {
            feature_gates: gates.iter().map(|gate| ((*gate).to_owned(), true)).collect(),
            api_server: vec![format!("--runtime-config={}", served.join(","))],
            ..ExtraFlags::default()
        }
    }

    /// The `apiVersion` of PodGroups, where they are switched on.
    pub fn pod_groups(self) -> &'static str {
        match self {
            Self::V1_35 | Self::V1_36 => "scheduling.k8s.io/v1alpha2",
            Self::V1_37 => "scheduling.k8s.io/v1beta1",
        }
    }

    /// The `apiVersion` of DeviceTaintRules; up to 1.36 they have to be switched on.
    pub fn taint_rules(self) -> &'static str {
        match self {
            Self::V1_35 | Self::V1_36 => "resource.k8s.io/v1beta2",
            Self::V1_37 => "resource.k8s.io/v1",
        }
    }

    pub(super) fn module(self) -> Module {
        match self {
            Self::V1_37 => Module::Kubernetes137,
            Self::V1_36 => Module::Kubernetes,
            Self::V1_35 => Module::Kubernetes135,
        }
    }
}

impl std::fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V1_37 => "1.37",
            Self::V1_36 => "1.36",
            Self::V1_35 => "1.35",
        })
    }
}

impl std::str::FromStr for KubernetesVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::V1_37, Self::V1_36, Self::V1_35]
            .into_iter()
            .find(|version| version.to_string() == text)
            .ok_or_else(|| "1.37, 1.36 and 1.35 can be built".to_owned())
    }
}
