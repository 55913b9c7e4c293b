use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

const KUBERAY: &str = "github.com/ray-project/kuberay/ray-operator";
const KUEUE: &str = "sigs.k8s.io/kueue";
const NVIDIA_DRA_DRIVER: &str = "sigs.k8s.io/dra-driver-nvidia-gpu";

/// A Go module of `tests/tools/`, built as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Module {
    /// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl.
    Kubernetes,
    /// The same of Kubernetes 1.35.
    #[serde(rename = "kubernetes-1.35")]
    Kubernetes135,
    /// The same of Kubernetes 1.37.
    #[serde(rename = "kubernetes-1.37")]
    Kubernetes137,
    /// etcd.
    Etcd,
    /// containerd, containerd-shim-runc-v2, ctr.
    Containerd,
    /// runc, without seccomp filters, to need no C library but libc.
    Runc,
    /// The CNI plugins ptp, loopback and host-local.
    Cni,
    /// helm.
    Helm,
    /// The program of the test image.
    Testimage,
    /// nvidia-ctk.
    NvidiaContainerToolkit,
    /// A program printing all values read by go-nvml.
    StrangersGoNvml,
    /// A program evaluating queries over scrapes, with Prometheus' own code.
    Promql,
    /// The controllers of JobSet, LeaderWorkerSet and KubeRay, with their kinds and webhooks.
    WorkloadControllers,
    /// Kueue, with its kinds and webhooks.
    Kueue,
    /// The programs for compute domains of NVIDIA's DRA driver, with the files of its image.
    NvidiaDraDriver,
}

impl Module {
    /// Modules of the scheduler tier.
    pub const CONTROL_PLANE: &[Self] = &[Self::Kubernetes, Self::Etcd];
    /// Modules of the node tier.
    pub const NODE: &[Self] =
        &[Self::Kubernetes, Self::Etcd, Self::Containerd, Self::Runc, Self::Cni, Self::Testimage];
    /// All modules.
    pub const ALL: &[Self] = &[
        Self::Kubernetes,
        Self::Kubernetes135,
        Self::Kubernetes137,
        Self::Etcd,
        Self::Containerd,
        Self::Runc,
        Self::Cni,
        Self::Helm,
        Self::Testimage,
        Self::NvidiaContainerToolkit,
        Self::StrangersGoNvml,
        Self::Promql,
        Self::WorkloadControllers,
        Self::Kueue,
        Self::NvidiaDraDriver,
    ];

    /// Name of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Kubernetes135 => "kubernetes-1.35",
            Self::Kubernetes137 => "kubernetes-1.37",
            Self::Etcd => "etcd",
            Self::Containerd => "containerd",
            Self::Runc => "runc",
            Self::Cni => "cni",
            Self::Helm => "helm",
            Self::Testimage => "testimage",
            Self::NvidiaContainerToolkit => "nvidia-container-toolkit",
            Self::StrangersGoNvml => "strangers-go-nvml",
            Self::Promql => "promql",
            Self::WorkloadControllers => "workload-controllers",
            Self::Kueue => "kueue",
            Self::NvidiaDraDriver => "nvidia-dra-driver",
        }
    }

    /// The module with the same programs in another version; callers request programs by the returned module.
    pub(super) fn stands_for(self) -> Self {
        match self {
            Self::Kubernetes135 | Self::Kubernetes137 => Self::Kubernetes,
            other => other,
        }
    }

    /// Its folder in the clone.
    pub fn source(self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tools").join(self.name())
    }

    /// The required module whose version is this tool's; `None` for our own.
    pub(super) fn required(self) -> Option<&'static str> {
        match self {
            Self::Kubernetes | Self::Kubernetes135 | Self::Kubernetes137 => Some("k8s.io/kubernetes"),
            Self::Etcd => Some("go.etcd.io/etcd/server/v3"),
            Self::Containerd => Some("github.com/containerd/containerd/v2"),
            Self::Runc => Some("github.com/opencontainers/runc"),
            Self::Cni => Some("github.com/containernetworking/plugins"),
            Self::Helm => Some("helm.sh/helm/v4"),
            Self::Testimage => None,
            Self::NvidiaContainerToolkit => Some("github.com/NVIDIA/nvidia-container-toolkit"),
            Self::StrangersGoNvml => Some("github.com/NVIDIA/go-nvml"),
            Self::Promql => Some("github.com/prometheus/prometheus"),
            Self::WorkloadControllers => Some("sigs.k8s.io/jobset"),
            Self::Kueue => Some(KUEUE),
            Self::NvidiaDraDriver => Some(NVIDIA_DRA_DRIVER),
        }
    }

    /// Packages, each with the name of its program.
    pub(super) fn packages(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Kubernetes | Self::Kubernetes135 | Self::Kubernetes137 => &[
                ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
                ("k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler"),
                ("k8s.io/kubernetes/cmd/kube-controller-manager", "kube-controller-manager"),
                ("k8s.io/kubernetes/cmd/kubelet", "kubelet"),
                ("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
            ],
            Self::Etcd => &[("go.etcd.io/etcd/server/v3", "etcd")],
            Self::Containerd => &[
                ("github.com/containerd/containerd/v2/cmd/containerd", "containerd"),
                (
                    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                    "containerd-shim-runc-v2",
                ),
                ("github.com/containerd/containerd/v2/cmd/ctr", "ctr"),
            ],
            Self::Runc => &[("github.com/opencontainers/runc", "runc")],
            Self::Cni => &[
                ("github.com/containernetworking/plugins/plugins/main/ptp", "ptp"),
                ("github.com/containernetworking/plugins/plugins/main/loopback", "loopback"),
                ("github.com/containernetworking/plugins/plugins/ipam/host-local", "host-local"),
            ],
            Self::Helm => &[("helm.sh/helm/v4/cmd/helm", "helm")],
            Self::Testimage => &[("tessera.dev/tests/tools/testimage", "testimage")],
            Self::NvidiaContainerToolkit => &[
                ("github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk", "nvidia-ctk"),
                ("github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook", "nvidia-cdi-hook"),
            ],
            Self::StrangersGoNvml => &[("tessera.dev/tests/tools/strangers-go-nvml", "strangers-go-nvml")],
            Self::Promql => &[("tessera.dev/tests/tools/promql", "promql")],
            // Go names a program by its folder.
            Self::WorkloadControllers => {
                &[("sigs.k8s.io/jobset", "jobset"), ("sigs.k8s.io/lws/cmd", "cmd"), (KUBERAY, "ray-operator")]
            }
            Self::Kueue => &[("sigs.k8s.io/kueue/cmd/kueue", "kueue")],
            Self::NvidiaDraDriver => &[
                (
                    "sigs.k8s.io/dra-driver-nvidia-gpu/cmd/compute-domain-controller",
                    "compute-domain-controller",
                ),
                ("sigs.k8s.io/dra-driver-nvidia-gpu/cmd/compute-domain-daemon", "compute-domain-daemon"),
                (
                    "sigs.k8s.io/dra-driver-nvidia-gpu/cmd/compute-domain-kubelet-plugin",
                    "compute-domain-kubelet-plugin",
                ),
            ],
        }
    }

    /// Files and folders of required modules for its programs: module, path there, and name beside the programs.
    pub(super) fn files(self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            Self::WorkloadControllers => &[
                (
                    "sigs.k8s.io/jobset",
                    "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
                    "jobset-crd.yaml",
                ),
                ("sigs.k8s.io/jobset", "config/components/webhook/manifests.yaml", "jobset-webhooks.yaml"),
                (
                    "sigs.k8s.io/lws",
                    "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
                    "lws-crd.yaml",
                ),
                ("sigs.k8s.io/lws", "config/webhook/manifests.yaml", "lws-webhooks.yaml"),
                (KUBERAY, "config/crd/bases", "ray-kinds"),
            ],
            Self::Kueue => &[
                (KUEUE, "config/components/crd/bases", "kinds"),
                (KUEUE, "config/components/webhook/manifests.yaml", "webhooks.yaml"),
            ],
            // Files at fixed places of its image beside the programs.
            Self::NvidiaDraDriver => &[
                (NVIDIA_DRA_DRIVER, "hack/kubelet-plugin-prestart.sh", "kubelet-plugin-prestart.sh"),
                (
                    NVIDIA_DRA_DRIVER,
                    "templates/compute-domain-daemon-claim-template.tmpl.yaml",
                    "compute-domain-daemon-claim-template.tmpl.yaml",
                ),
                (
                    NVIDIA_DRA_DRIVER,
                    "templates/compute-domain-daemon-config.tmpl.cfg",
                    "compute-domain-daemon-config.tmpl.cfg",
                ),
                (
                    NVIDIA_DRA_DRIVER,
                    "templates/compute-domain-daemon.tmpl.yaml",
                    "compute-domain-daemon.tmpl.yaml",
                ),
                (
                    NVIDIA_DRA_DRIVER,
                    "templates/compute-domain-workload-claim-template.tmpl.yaml",
                    "compute-domain-workload-claim-template.tmpl.yaml",
                ),
            ],
            _ => &[],
        }
    }

    /// Linker flags. Stripping symbols halves the size and the time to link.
    pub(super) fn linker_flags(self, version: &str) -> String {
        let plain = version.trim_start_matches('v');
        match self {
            // Without a version, Kubernetes reports 0.0 and refuses itself for version skew.
            Self::Kubernetes | Self::Kubernetes135 | Self::Kubernetes137 => {
                let package = "k8s.io/component-base/version";
                let mut numbers = plain.split('.');
                let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
                format!(
                    "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
                )
            }
            Self::Containerd => {
                format!("-s -w -X github.com/containerd/containerd/v2/version.Version={plain}")
            }
            Self::Runc => format!("-s -w -X main.version={plain}"),
            Self::Helm => format!("-s -w -X helm.sh/helm/v4/internal/version.version={version}"),
            Self::NvidiaContainerToolkit => {
                format!("-s -w -X github.com/NVIDIA/nvidia-container-toolkit/internal/info.version={plain}")
            }
            Self::NvidiaDraDriver => {
                format!("-s -w -X sigs.k8s.io/dra-driver-nvidia-gpu/internal/info.version={version}")
            }
            Self::Etcd
            | Self::Cni
            | Self::Testimage
            | Self::StrangersGoNvml
            | Self::Promql
            | Self::WorkloadControllers
            | Self::Kueue => "-s -w".to_owned(),
        }
    }

    /// Build tags, separated by spaces.
    pub(super) fn tags(self) -> &'static str {
        match self {
            // Without snapshotters unused by tests and in need of C libraries.
            Self::Containerd => "no_btrfs no_devmapper no_zfs no_aufs",
            _ => "",
        }
    }

    /// Whether cgo is used. runc needs cgo (entering namespaces before Go's threads start); programs for images must
    /// not use cgo, to be static.
    pub(super) fn uses_c(self) -> bool {
        match self {
            Self::Kubernetes
            | Self::Kubernetes135
            | Self::Kubernetes137
            | Self::Etcd
            | Self::Runc
            | Self::Helm
            | Self::NvidiaContainerToolkit
            | Self::NvidiaDraDriver
            | Self::StrangersGoNvml => true,
            Self::Containerd
            | Self::Cni
            | Self::Testimage
            | Self::Promql
            | Self::WorkloadControllers
            | Self::Kueue => false,
        }
    }

    /// Duration of a full build on two idle processors.
    pub(super) fn expected(self) -> Duration {
        Duration::from_secs(match self {
            Self::Kubernetes | Self::Kubernetes135 | Self::Kubernetes137 => 290,
            Self::Etcd => 25,
            Self::Containerd => 90,
            Self::Runc => 6,
            Self::Cni => 3,
            Self::Helm => 60,
            Self::Testimage => 2,
            Self::NvidiaContainerToolkit => 40,
            Self::StrangersGoNvml => 20,
            Self::Promql => 60,
            Self::WorkloadControllers => 90,
            Self::Kueue => 120,
            Self::NvidiaDraDriver => 130,
        })
    }
}
