//! Command line of the controller. Each option can also be set by the environment variable that `--help` names.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use tessera_api::DEFAULT_DRIVER_NAME;
use tessera_api::gang::MAX_PARTIAL_TIMEOUT;
use tessera_decide::ReclaimTo;
use tessera_kube_util::arguments::{absolute, driver_name, object_name};
use tessera_kube_util::logging::{LogFormat, log_filter, log_level};

/// A day, in seconds.
const LONGEST_GATHER_AFTER: u64 = 86_400;

/// A year, in hours.
const LONGEST_HALF_LIFE: u64 = 8760;

const OTHER_PROGRAM: &str = "controller probe asks a running controller whether it is well; see its --help.";

/// Proposes a node for each GPU pod that opted in, and writes the status of GpuPools.
///
/// Runs in a Deployment that Tessera's chart installs, usually twice: one replica leads, the other takes over when it is
/// gone. Nothing depends on it but pods with the gate gpu.tessera.dev/steering.
#[derive(Clone, Debug, Parser)]
#[command(name = "controller", version, max_term_width = 100, after_help = OTHER_PROGRAM)]
pub struct Options {
    /// What to do; without a command, to run.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Name of the DRA driver.
    #[arg(long, env = "DRIVER_NAME", value_name = "NAME", default_value = DEFAULT_DRIVER_NAME, value_parser = driver_name, global = true)]
    pub driver_name: String,

    /// Kubeconfig file with access to the API server.
    ///
    /// Without it the service account of the pod is used.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the Lease by which replicas agree on who leads.
    #[arg(long, env = "NAMESPACE", value_name = "NAME", default_value = "default", value_parser = object_name)]
    pub namespace: String,

    /// Name of that Lease.
    #[arg(long, env = "LEASE_NAME", value_name = "NAME", default_value = "tessera-controller", value_parser = object_name)]
    pub lease_name: String,

    /// Name of this replica in the Lease; in a pod, its name from the downward API.
    #[arg(long, env = "POD_NAME", value_name = "NAME", value_parser = object_name)]
    pub pod_name: Option<String>,

    /// Where to serve metrics and probes.
    #[arg(long, env = "HTTP_ADDRESS", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub http_address: SocketAddr,

    /// Unix socket for the same answers, for the kubelet's probes. [default: none]
    ///
    /// Used by `controller probe`. Others on the pod's network can keep the port busy, but not this socket.
    #[arg(long, env = "PROBE_SOCKET", value_name = "FILE", value_parser = absolute)]
    pub probe_socket: Option<PathBuf>,

    /// Where to serve the fleet page and its JSON.
    ///
    /// On a loopback address whoever may forward a port to the pod reaches it. On any other a bearer token of the cluster is
    /// needed, of somebody who may get the nonResourceURL /fleet.json.
    #[arg(long, env = "FLEET_ADDRESS", value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub fleet_address: SocketAddr,

    /// Labels of the kubelet plugins' pods in this namespace, to ask them what their cards do.
    ///
    /// Without it the fleet page knows what is allocated, not what is used.
    #[arg(long, env = "PLUGINS", value_name = "SELECTOR")]
    pub plugins: Option<String>,

    /// A file with prices of cards, for the fleet page and the order of teams: {"currency": "USD", "perCardHour": {"NVIDIA H100 80GB HBM3": 2.5}}
    #[arg(long, env = "PRICES", value_name = "FILE")]
    pub prices: Option<PathBuf>,

    /// A ConfigMap of this namespace in which the leader keeps the fleet's last day, so that it outlives the replicas.
    ///
    /// It must exist. Without it the day is in the memory of each replica, and begins with it.
    #[arg(long, env = "HISTORY", value_name = "NAME", value_parser = object_name)]
    pub history: Option<String>,

    /// How long a card must have been in a managed pool before this controller allocates it.
    ///
    /// kube-scheduler may still write an allocation that it decided on before it saw that the card is managed.
    #[arg(long, env = "HANDOVER", value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub handover: Duration,

    /// How long the devices of a claim must have failed to be prepared before their cards are left alone, and its pods evicted
    /// where a controller makes new ones.
    #[arg(long, env = "HEAL_AFTER", value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub heal_after: Duration,

    /// How long a new leader lets no pods move (GpuPools' placement.gather), for it does not know who moved before; and for 24 times as long
    /// none of owners with a pod younger than a day.
    #[arg(long, env = "GATHER_AFTER", value_name = "SECONDS", default_value = "3600", value_parser = gather_after)]
    pub gather_after: Duration,

    /// Whether GpuQuotas count for this controller. Of several installations in a cluster one should count: each would write its own hours.
    #[arg(long, env = "QUOTAS", value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub quotas: bool,

    /// How long no devices are taken back for a team after a GpuQuota or its namespaces changed: a mistake evicts nobody at once.
    #[arg(long, env = "QUOTA_GRACE", value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub quota_grace: Duration,

    /// Half-life of the use by which teams take turns: an hour of use counts half as much as one a half-life later. 0: the use of now.
    #[arg(long, env = "QUOTA_HALF_LIFE", value_name = "HOURS", default_value = "168", value_parser = half_life)]
    pub quota_half_life: Duration,

    /// PriorityClasses of pods that GpuQuotas charge for and never refuse.
    ///
    /// They go before all teams, and may preempt pods of lower priority of any team, within guarantees too.
    #[arg(long, env = "QUOTA_EXEMPT", value_name = "NAMES", value_delimiter = ',', value_parser = object_name)]
    pub quota_exempt: Vec<String>,

    /// How much devices are taken back for a team from others that borrow: what is guaranteed to it (Guarantee), or its part of all managed
    /// cards by weight, too (FairShare).
    #[arg(long, env = "QUOTA_RECLAIM_TO", value_name = "SHARE", default_value = "Guarantee", value_parser = reclaim_to)]
    pub quota_reclaim_to: ReclaimTo,

    /// How long some pods of a gang may run while the others find no room, where neither the pods nor their owner say so.
    ///
    /// By then one that is not bound gets devices on another node; where there are none the gang is given up.
    #[arg(long, env = "GANG_PARTIAL_TIMEOUT", value_name = "SECONDS", default_value = "120", value_parser = partial_timeout)]
    pub gang_partial_timeout: Duration,

    /// Labels of nodes that say how far apart they are, the narrowest first: pods of a gang are kept together by the first of
    /// them within which they fit.
    #[arg(
        long,
        env = "TOPOLOGY_KEYS",
        value_name = "LABELS",
        value_delimiter = ',',
        default_value = "topology.kubernetes.io/rack,topology.kubernetes.io/zone"
    )]
    pub topology_keys: Vec<String>,

    /// Schedulers whose pods get devices of managed cards, by their schedulerName.
    ///
    /// They must say what becomes of a pod as kube-scheduler does: devices would stay with pods that nobody places.
    #[arg(
        long,
        env = "SCHEDULERS",
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "default-scheduler",
        value_parser = object_name
    )]
    pub schedulers: Vec<String>,

    /// Make the ResourceClaimTemplates of pods whose extended resources an admission policy turned into claims.
    ///
    /// The policy is the chart's, with managed.convertExtendedResources.
    #[arg(long, env = "CONVERT_EXTENDED_RESOURCES")]
    pub convert_extended_resources: bool,

    /// Directives for log lines: error, warn, info, debug, trace, or as tracing's EnvFilter takes them.
    #[arg(long, env = "LOG_LEVEL", value_name = "LEVEL", default_value = "info", value_parser = log_level, global = true)]
    pub log_level: String,

    /// Format of log lines.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text", global = true)]
    pub log_format: LogFormat,

    /// How long the end may take.
    #[arg(long, env = "SHUTDOWN_TIMEOUT", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub shutdown_timeout: Duration,
}

/// A command other than to run.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Lift the steering gate from all pods, before the controller is uninstalled.
    Ungate(Ungate),
}

/// Options of `ungate`.
#[derive(Clone, Debug, Args)]
pub struct Ungate {
    /// Name of a MutatingAdmissionPolicyBinding to delete first, so that no new pod gets the gate; repeat for several.
    #[arg(long = "binding", value_name = "NAME", value_parser = object_name)]
    pub bindings: Vec<String>,
}

impl Options {
    /// The filter directives for log lines.
    #[must_use]
    pub fn log_filter(&self) -> String {
        log_filter(&self.log_level)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    seconds_up_to(text, 600)
}

fn partial_timeout(text: &str) -> Result<Duration, String> {
    seconds_up_to(text, MAX_PARTIAL_TIMEOUT.into())
}

fn gather_after(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) if seconds <= LONGEST_GATHER_AFTER => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("not a number of seconds from 0 to {LONGEST_GATHER_AFTER}")),
    }
}

fn half_life(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(hours) if hours <= LONGEST_HALF_LIFE => Ok(Duration::from_secs(hours * 3600)),
        _ => Err(format!("not a number of hours from 0 to {LONGEST_HALF_LIFE}")),
    }
}

fn reclaim_to(text: &str) -> Result<ReclaimTo, String> {
    match text {
        "Guarantee" => Ok(ReclaimTo::Guarantee),
        "FairShare" => Ok(ReclaimTo::FairShare),
        _ => Err("neither Guarantee nor FairShare".to_owned()),
    }
}

fn seconds_up_to(text: &str, most: u64) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) if (1..=most).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("not a number of seconds from 1 to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// As the chart's schema says.
    #[test]
    fn a_gang_may_run_in_part_for_a_week() {
        assert_eq!(partial_timeout("604800"), Ok(Duration::from_secs(604_800)));
        assert_eq!(partial_timeout("604801").unwrap_err(), "not a number of seconds from 1 to 604800");
        assert!(partial_timeout("0").is_err() && seconds("601").is_err());
    }

    #[test]
    fn the_definition_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (option, value) in [
            ("--driver-name", "GPU.example.com"),
            ("--driver-name", ""),
            ("--namespace", "Bad_Name"),
            ("--namespace", ""),
            ("--lease-name", "a/b"),
            ("--pod-name", ""),
            ("--history", "a/b"),
            ("--http-address", "8080"),
            ("--fleet-address", "localhost"),
            ("--probe-socket", "probe.sock"),
            ("--log-level", "loud=everything=yes"),
            ("--log-format", "xml"),
            ("--shutdown-timeout", "0"),
            ("--heal-after", "0"),
            ("--gather-after", "86401"),
            ("--quota-half-life", "8761"),
            ("--quota-exempt", "incident,Not_One"),
            ("--quota-reclaim-to", "fair"),
            ("--gang-partial-timeout", "0"),
            ("--handover", "an hour"),
            ("--schedulers", "default-scheduler,Not_One"),
        ] {
            let error = Options::try_parse_from(["controller", &format!("{option}={value}")]).unwrap_err();
            assert!(error.to_string().contains(option), "{option} {value}: {error}");
        }
        // An empty name would be a request to delete all bindings.
        let error = Options::try_parse_from(["controller", "ungate", "--binding="]).unwrap_err();
        assert!(error.to_string().contains("--binding"), "{error}");
    }
}
