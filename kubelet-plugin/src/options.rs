//! Command line of the plugin. Each option can also be set by the environment variable that `--help` names.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{cdi::OtherDriver, nvidia_smi::NvidiaSmi};
use clap::Parser;
use tessera_api::DEFAULT_DRIVER_NAME;
use tessera_api::health::HealthPolicy;
use tessera_kube_util::arguments::{absolute, below_root, driver_name, object_name};
use tessera_kube_util::logging::{LogFormat, log_filter, log_level};
use tessera_nvml::DriverRoot;

use tessera_dra_kubelet::socket_paths::plugin_directory;
use tessera_mps_host::{DEFAULT_DIRECTORY, options::mps_directory};

/// Hint in the help text about the other command of this program.
const OTHER_PROGRAM: &str = "kubelet-plugin probe asks a running plugin whether it is well; see its --help.";

/// Publishes the GPUs of this node to Kubernetes and prepares the claims that pods make on them.
///
/// Runs on each node with GPUs, as root, usually in a pod of the DaemonSet that Tessera's chart installs. It needs the
/// NVIDIA driver on the node, the kubelet's directory, the directory for CDI specs, and a Kubernetes client.
///
/// SIGTERM and SIGINT end it in order: it withdraws its sockets, lets running work end and leaves the node's
/// ResourceSlices and prepared claims as they are. A second signal ends it at once; nothing is lost by that either.
#[derive(Clone, Debug, Parser)]
#[command(name = "kubelet-plugin", version, max_term_width = 100, after_help = OTHER_PROGRAM)]
pub struct Options {
    /// Name of the DRA driver.
    ///
    /// A DNS subdomain in lower case of at most 63 characters. DeviceClasses, claims and the names of published
    /// attributes refer to it: choose it once for a cluster.
    #[arg(long, env = "DRIVER_NAME", value_name = "NAME", default_value = DEFAULT_DRIVER_NAME, value_parser = driver_name)]
    pub driver_name: String,

    /// Name of this node's Node object.
    ///
    /// In a pod, take it from the downward API (`spec.nodeName`).
    #[arg(long, env = "NODE_NAME", value_name = "NAME", value_parser = object_name)]
    pub node_name: String,

    /// UID of the pod this instance runs in.
    ///
    /// It becomes part of the names of the sockets, so that two instances can serve side by side during a rolling
    /// upgrade (the kubelet supports that since 1.33). In a pod, take it from the downward API (`metadata.uid`).
    /// Without it only one instance can run at a time; another one waits for it to end.
    #[arg(long, env = "POD_UID", value_name = "UID", value_parser = pod_uid)]
    pub pod_uid: Option<String>,

    /// Kubeconfig file with access to the API server.
    ///
    /// Without it the service account of the pod is used.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The kubelet's directory (its `--root-dir`).
    ///
    /// The plugin's sockets and its journal are below it, in `plugins_registry/` and `plugins/<driver name>/`. The
    /// kubelet connects to the sockets by this path: it must be the same in the pod as on the node. The kubelet's own
    /// `dra_manager_state` in it tells which claims may still be in use.
    #[arg(
        long,
        env = "KUBELET_DIRECTORY",
        value_name = "DIRECTORY",
        default_value = "/var/lib/kubelet",
        value_parser = absolute
    )]
    pub kubelet_directory: PathBuf,

    /// Directory for CDI specs, which the container runtime reads.
    #[arg(
        long,
        env = "CDI_DIRECTORY",
        value_name = "DIRECTORY",
        default_value = "/var/run/cdi",
        value_parser = absolute
    )]
    pub cdi_directory: PathBuf,

    /// Where the NVIDIA driver is installed, as this process sees it.
    ///
    /// Its library `libnvidia-ml.so.1` is searched in the usual library directories below. `/` for a driver installed
    /// on the node and run without a container; `/driver-root` where the chart mounts it; the GPU Operator's driver is
    /// in `/run/nvidia/driver` on the node.
    #[arg(long, env = "DRIVER_ROOT", value_name = "DIRECTORY", default_value = "/", value_parser = absolute)]
    pub driver_root: PathBuf,

    /// Directories below --driver-root that are searched before the usual ones: of the driver's libraries, and of its programs.
    #[arg(long, env = "DRIVER_PATHS", value_name = "DIRECTORIES", value_delimiter = ',', value_parser = below_root)]
    pub driver_paths: Vec<PathBuf>,

    /// The same directory as the node, and so the container runtime, sees it. [default: --driver-root]
    ///
    /// CDI specs tell the container runtime to mount the driver's files from there.
    #[arg(long, env = "HOST_DRIVER_ROOT", value_name = "DIRECTORY", value_parser = absolute)]
    host_driver_root: Option<PathBuf>,

    /// Where the NVIDIA device nodes are: `<directory>/dev/nvidia0` and so on. [default: --driver-root]
    #[arg(long, env = "DEV_ROOT", value_name = "DIRECTORY", value_parser = absolute)]
    dev_root: Option<PathBuf>,

    /// Directory of mps-host, which runs the daemons of cards that are shared by MPS.
    ///
    /// The same in the pod as on the node.
    #[arg(
        long,
        env = "MPS_DIRECTORY",
        value_name = "DIRECTORY",
        default_value = DEFAULT_DIRECTORY,
        value_parser = mps_directory
    )]
    pub mps_directory: PathBuf,

    /// Where sysfs is mounted; used to find the place of cards in the machine.
    #[arg(long, env = "SYSFS_ROOT", value_name = "DIRECTORY", default_value = "/sys", value_parser = absolute)]
    pub sysfs_root: PathBuf,

    /// Where procfs is mounted; used to read the boot id and the driver's device numbers.
    #[arg(long, env = "PROC_ROOT", value_name = "DIRECTORY", default_value = "/proc", value_parser = absolute)]
    pub proc_root: PathBuf,

    /// File of MIG layouts, in the format of NVIDIA's `mig-parted`.
    ///
    /// With it, cards are partitioned as one of its configurations says, which their GpuPool names, while no claim and no
    /// program uses them. It is read again every half minute.
    #[arg(long, env = "MIG_LAYOUT_FILE", value_name = "FILE", value_parser = absolute)]
    pub mig_layout_file: Option<PathBuf>,

    /// What faults of cards mean for their devices, where that is not the default. [default: {}]
    ///
    /// JSON: `{"classes":{"nvlink-down":"Informational"},"xids":{"79":"NoExecute"}}`. Effects are `Off`, `Informational`
    /// (Events and the status of pods), `NoSchedule` (no new claims) and `NoExecute` (Kubernetes evicts pods, too). A
    /// single XID wins over the class `xid`, NVIDIA's catalog and the driver's recommendation. With `"recovery":"Reset"` cards
    /// that a reset helps are reset when no claim holds them.
    #[arg(long, env = "HEALTH_POLICY", value_name = "JSON", default_value = "{}", hide_default_value = true)]
    pub health_policy: HealthPolicy,

    /// How long the devices of a card keep their taint when its pool is managed no longer, in seconds.
    ///
    /// The controller may still write an allocation that it decided on before it saw the change. It should be the
    /// controller's `--handover`.
    #[arg(
        long,
        env = "MANAGED_HANDOVER",
        value_name = "SECONDS",
        default_value = "60",
        value_parser = seconds
    )]
    pub managed_handover: Duration,

    /// How often to look at what cards do, in seconds.
    ///
    /// All metrics of cards, partitions and claims, and `/usage`, are of the last look.
    #[arg(long, env = "USAGE_INTERVAL", value_name = "SECONDS", default_value = "15", value_parser = pause)]
    pub usage_interval: Duration,

    /// Address for metrics and probes: `/metrics`, `/usage`, `/healthz`, `/readyz`. Port 0 takes a free one; the log names it.
    #[arg(long, env = "HTTP_ADDRESS", value_name = "IP:PORT", default_value = "0.0.0.0:9475")]
    pub http_address: SocketAddr,

    /// Unix socket for the same answers, for the kubelet's probes. [default: none]
    ///
    /// Used by `kubelet-plugin probe`. Others on the pod's network can keep the port busy, but not this socket.
    #[arg(long, env = "PROBE_SOCKET", value_name = "FILE", value_parser = absolute)]
    pub probe_socket: Option<PathBuf>,

    /// Address for gRPC's health service, `grpc.health.v1.Health`, for probes that speak it. [default: none]
    ///
    /// It says what `/healthz` says, of the services "" and "liveness".
    #[arg(long, env = "GRPC_HEALTH_ADDRESS", value_name = "IP:PORT")]
    pub grpc_health_address: Option<SocketAddr>,

    /// NVIDIA's program for CDI hooks, for nodes without `nvidia-ctk`. [default: `nvidia-cdi-hook` beside this program, if
    /// it is there]
    ///
    /// It is copied to --hook-directory on the node, where the container runtime runs it.
    #[arg(long, env = "NVIDIA_CDI_HOOK", value_name = "FILE", value_parser = absolute)]
    pub nvidia_cdi_hook: Option<PathBuf>,

    /// Where that program is installed on the node, in a directory named after the driver. [default: the driver's own directory
    /// below --kubelet-directory]
    ///
    /// The same in the pod as on the node. The container runtime runs it as the user of the container's user namespace
    /// (`hostUsers: false`), who may not pass the kubelet's directory: choose one that all may pass, on a file system from which
    /// programs may be run.
    #[arg(long, env = "HOOK_DIRECTORY", value_name = "DIRECTORY", value_parser = absolute)]
    hook_directory: Option<PathBuf>,

    /// Drivers beside NVIDIA's, of whose devices every container with a card gets all that the node has.
    #[arg(long, env = "OTHER_DRIVERS", value_name = "NAMES", value_delimiter = ',')]
    pub other_drivers: Vec<OtherDriver>,

    /// Hooks that no container gets, by their names: `update-ldcache,enable-cuda-compat`.
    ///
    /// What is left out is not done: without `update-ldcache`, for example, programs that ask `ldconfig` find no library of the
    /// driver. For hooks that fail on a node.
    #[arg(long, env = "DISABLE_HOOKS", value_name = "NAMES", value_delimiter = ',', value_parser = hook_name)]
    pub disable_hooks: Vec<String>,

    /// How long running work may take to end after SIGTERM, in seconds.
    ///
    /// Keep it below the pod's `terminationGracePeriodSeconds`. What is not done then is done by the next instance.
    #[arg(long, env = "SHUTDOWN_TIMEOUT", value_name = "SECONDS", default_value = "25", value_parser = seconds)]
    pub shutdown_timeout: Duration,

    /// What to log: a level (`error`, `warn`, `info`, `debug`, `trace`), or levels by part of the program.
    ///
    /// `debug` and `trace` alone are those of Tessera's own parts. With parts, as in
    /// `info,tessera_publish=debug` or `debug,h2=info`, libraries are included.
    #[arg(long, env = "LOG_LEVEL", value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    pub log_level: String,

    /// How to log: lines for people, or one JSON object per line.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

impl Options {
    /// Root of the driver's installation on the node.
    #[must_use]
    pub fn host_driver_root(&self) -> &Path {
        self.host_driver_root.as_deref().unwrap_or(&self.driver_root)
    }

    /// The driver's installation, with paths for this process.
    #[must_use]
    pub fn installed(&self) -> DriverRoot {
        DriverRoot { path: self.driver_root.clone(), first: self.driver_paths.clone() }
    }

    /// The directory whose `dev` has the NVIDIA device nodes.
    #[must_use]
    pub fn dev_root(&self) -> &Path {
        self.dev_root.as_deref().unwrap_or(&self.driver_root)
    }

    /// The driver's own directory on the node: sockets, journal, locks.
    #[must_use]
    pub fn plugin_directory(&self) -> PathBuf {
        plugin_directory(&self.kubelet_directory, &self.driver_name)
    }

    /// NVIDIA's program for CDI hooks, if there is one.
    #[must_use]
    pub fn cdi_hook(&self) -> Option<PathBuf> {
        let beside = || std::env::current_exe().ok().map(|program| program.with_file_name("nvidia-cdi-hook"));
        self.nvidia_cdi_hook.clone().or_else(beside).filter(|path| path.is_file())
    }

    /// Command prefix for running a program of the driver in the driver's root: this program, unless their roots are the same.
    #[must_use]
    pub fn in_driver_root(&self) -> Option<[OsString; 3]> {
        let program = std::env::current_exe().ok().filter(|_| self.driver_root != Path::new("/"))?;
        Some([program.into(), crate::root_command::SUBCOMMAND.into(), self.driver_root.clone().into()])
    }

    /// The driver's own tool, run in the driver's root.
    #[must_use]
    pub fn nvidia_smi(&self) -> NvidiaSmi {
        NvidiaSmi::new(self.installed()).in_its_root(self.in_driver_root())
    }

    /// Where the program for CDI hooks is installed.
    #[must_use]
    pub fn hook_directory(&self) -> PathBuf {
        match &self.hook_directory {
            Some(directory) => directory.join(&self.driver_name),
            None => self.plugin_directory(),
        }
    }

    /// The directives for log levels.
    #[must_use]
    pub fn log_filter(&self) -> String {
        log_filter(&self.log_level)
    }
}

fn pod_uid(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if text.is_empty() || text.len() > 64 || !text.chars().all(allowed) {
        return Err("not the UID of a pod: 1 to 64 letters, digits and '-'".to_owned());
    }
    Ok(text.to_owned())
}

fn hook_name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || !text.chars().all(allowed) {
        return Err("not the name of a hook, as update-ldcache is".to_owned());
    }
    Ok(text.to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) if seconds <= 3600 => Ok(Duration::from_secs(seconds)),
        _ => Err("not a number of seconds from 0 to 3600".to_owned()),
    }
}

fn pause(text: &str) -> Result<Duration, String> {
    match seconds(text) {
        Ok(Duration::ZERO) | Err(_) => Err("not a number of seconds from 1 to 3600".to_owned()),
        pause => pause,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["kubelet-plugin", "--node-name", "node-a"], arguments].concat())
    }

    #[test]
    fn the_definition_is_consistent_and_every_option_is_explained() {
        Options::command().debug_assert();
        for argument in Options::command().get_arguments() {
            assert!(argument.get_help().is_some(), "{}", argument.get_id());
        }
    }

    #[test]
    fn roots_default_to_the_driver_root() {
        let options = parse(&["--driver-root", "/driver-root"]).unwrap();
        assert_eq!(options.host_driver_root(), Path::new("/driver-root"));
        assert_eq!(options.dev_root(), Path::new("/driver-root"));
        let options = parse(&["--driver-root", "/driver-root", "--host-driver-root", "/"]).unwrap();
        assert_eq!(options.host_driver_root(), Path::new("/"));
        assert_eq!(options.plugin_directory(), Path::new("/var/lib/kubelet/plugins/gpu.tessera.dev"));
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let long = "a".repeat(64);
        for (option, value) in [
            ("--driver-name", "GPU.example.com"),
            ("--driver-name", "gpu_example"),
            ("--driver-name", "gpu..com"),
            ("--driver-name", &long),
            ("--driver-name", ""),
            ("--pod-uid", "a/../b"),
            ("--pod-uid", ""),
            ("--kubelet-directory", "var/lib/kubelet"),
            ("--cdi-directory", "/var/run/../cdi"),
            ("--mig-layout-file", "layouts.yaml"),
            ("--managed-handover", "1m"),
            ("--usage-interval", "0"),
            ("--usage-interval", "15s"),
            ("--health-policy", r#"{"classes":{"xyz":"Off"}}"#),
            ("--health-policy", r#"{"xids":{"79":"Evict"}}"#),
            ("--http-address", "9475"),
            ("--probe-socket", "probe.sock"),
            ("--hook-directory", "var/lib/tessera"),
            ("--disable-hooks", "update-ldcache,,enable-cuda-compat"),
            ("--disable-hooks", "Update_LDCache"),
            ("--other-drivers", "gdrcopy,fuse"),
            ("--shutdown-timeout", "-1"),
            ("--log-level", "loud=everything=yes"),
            ("--log-format", "xml"),
        ] {
            let error = parse(&[&format!("{option}={value}")]).unwrap_err().to_string();
            assert!(error.contains(option), "{option} {value}: {error}");
        }
    }
}
