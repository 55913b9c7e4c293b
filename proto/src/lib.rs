//! gRPC between the kubelet and its plugins, generated from upstream's protocol files (`proto/README.md`).
//!
//! ```text
//! kubelet ── registration ──> <kubelet directory>/plugins_registry/<driver>-<pod uid>-reg.sock
//!         ── dra, dra_health ──> <kubelet directory>/plugins/<driver>/dra-<pod uid>.sock
//! ```
#![forbid(unsafe_code)]
// Upstream documents most messages, not all.
#![allow(missing_docs)]

/// `pluginregistration`: how a plugin makes itself known.
pub mod registration {
    /// The value of [`v1::PluginInfo`]'s `type` for a DRA driver (`pluginregistration/v1/constants.go`).
    pub const DRA_PLUGIN: &str = "DRAPlugin";

    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/pluginregistration/v1/pluginregistration.rs"));
    }
}

/// `dra`: preparing and unpreparing claims.
pub mod dra {
    pub mod v1 {
        /// How the service is named in `supported_versions` (`dra/v1/types.go`).
        pub const SERVICE: &str = "v1.DRAPlugin";
        include!(concat!(env!("OUT_DIR"), "/dra/v1/k8s.io.kubelet.pkg.apis.dra.v1.rs"));
    }

    pub mod v1beta1 {
        /// How the service is named in `supported_versions` (`dra/v1beta1/types.go`).
        pub const SERVICE: &str = "v1beta1.DRAPlugin";
        include!(concat!(env!("OUT_DIR"), "/dra/v1beta1/k8s.io.kubelet.pkg.apis.dra.v1beta1.rs"));
    }
}

/// `podresources`: which devices the kubelet has given to containers, for monitoring.
pub mod podresources {
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/podresources/v1/v1.rs"));
    }
}

/// `grpc-health`: gRPC's own health service.
pub mod grpc_health {
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/grpc-health/v1/grpc.health.v1.rs"));
    }
}

/// `dra-health`: a stream of the devices' health. The kubelet up to 1.36 knows [`dra_health::v1alpha1`] only.
pub mod dra_health {
    pub mod v1alpha1 {
        /// How the service is named in `supported_versions`.
        pub const SERVICE: &str = "v1alpha1.DRAResourceHealth";
        include!(concat!(env!("OUT_DIR"), "/dra-health/v1alpha1/v1alpha1.rs"));
    }

    pub mod v1 {
        /// How the service is named in `supported_versions`.
        pub const SERVICE: &str = "v1.DRAResourceHealth";
        include!(concat!(env!("OUT_DIR"), "/dra-health/v1/v1.rs"));
    }
}
