//! A small stand-in for the kubelet's client side: calls a plugin over its sockets as the kubelet would.
//!
//! For uses with the plugin but without pods: the demo without root, `cargo xtask bench prepare`, tests of the plugin
//! alone. Only sockets and gRPC: no check of reservations, no checkpoints, no containers.
//!
//! ```no_run
//! # async fn example() -> Result<(), tessera_harness::kubelet_stand_in::StandInError> {
//! use std::{path::Path, time::Duration};
//!
//! use tessera_harness::kubelet_stand_in::{Claim, KubeletStandIn};
//!
//! let kubelet = KubeletStandIn::new(Path::new("/tmp/k"));
//! let plugin = kubelet.register("gpu.tessera.dev", Duration::from_secs(10)).await?;
//! let claim = Claim { namespace: "default".into(), name: "claim".into(), uid: "0b4e7d3c".into() };
//! for (uid, devices) in plugin.prepare(&[claim]).await? {
//!     println!("{uid}: {devices:?}");
//! }
//! # Ok(())
//! # }
//! ```

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

pub use tessera_proto::{
    dra::v1::{Claim, Device},
    registration::v1::PluginInfo,
};
use tessera_proto::{
    dra::v1::{
        NodePrepareResourcesRequest, NodeUnprepareResourcesRequest, dra_plugin_client::DraPluginClient,
    },
    dra_health::v1alpha1::{
        NodeWatchResourcesRequest, NodeWatchResourcesResponse,
        dra_resource_health_client::DraResourceHealthClient,
    },
    registration::{
        DRA_PLUGIN,
        v1::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient},
    },
};
use tonic::{
    Request, Status, Streaming,
    transport::{Channel, Endpoint},
};

/// The kubelet's deadlines for `GetInfo`, `NotifyRegistrationStatus`, and for preparing and unpreparing.
const GET_INFO: Duration = Duration::from_secs(1);
const NOTIFY: Duration = Duration::from_secs(5);
const CLAIMS: Duration = Duration::from_secs(45);

/// Interval of looking for new registration sockets.
const POLL: Duration = Duration::from_millis(5);

/// Why the stand-in got no answer.
#[derive(Debug, thiserror::Error)]
pub enum StandInError {
    /// The directory for registration sockets can't be read.
    #[error("cannot look for plugins in {path}")]
    Registry {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No plugin of this name has registered in time.
    #[error("no plugin {driver_name} registered in {path} within {within:?}{last}")]
    NotFound {
        /// The driver's name.
        driver_name: String,
        /// The directory for registration sockets.
        path: PathBuf,
        /// Time limit.
        within: Duration,
        /// The last socket's answer, with a separator in front.
        last: String,
    },
    /// A socket does not accept connections.
    #[error("cannot connect to {path}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The error.
        source: tonic::transport::Error,
    },
    /// The plugin is of another type, or supports no version spoken by the kubelet.
    #[error("the plugin can't be used by the kubelet: {0:?}")]
    Unusable(Box<PluginInfo>),
    /// A call failed as a whole.
    #[error("{call}: {status}")]
    Call {
        /// The method.
        call: &'static str,
        /// gRPC's status.
        #[source]
        status: Box<Status>,
    },
}

/// The kubelet's calls of plugins, with the directory given as its `--root-dir`.
#[derive(Clone, Debug)]
pub struct KubeletStandIn {
    registry: PathBuf,
}

/// A registered plugin. Clones share one connection for concurrent calls.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its registration socket.
    pub registration_socket: PathBuf,
    /// Its answer to `GetInfo`.
    pub info: PluginInfo,
    dra: DraPluginClient<Channel>,
    health: DraResourceHealthClient<Channel>,
}

impl KubeletStandIn {
    /// A stand-in for the kubelet with this directory.
    #[must_use]
    pub fn new(kubelet_directory: &Path) -> Self {
        Self { registry: kubelet_directory.join("plugins_registry") }
    }

    /// The existing registration sockets, newest first.
    ///
    /// # Errors
    /// [`StandInError::Registry`]; a missing directory counts as empty.
    pub fn registration_sockets(&self) -> Result<Vec<PathBuf>, StandInError> {
        let failed = |source| StandInError::Registry { path: self.registry.clone(), source };
        let entries = match fs::read_dir(&self.registry) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut sockets = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            // A socket may be removed after being listed.
            let modified =
                entry.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            if !hidden {
                sockets.push((modified, entry.path()));
            }
        }
        sockets.sort();
        Ok(sockets.into_iter().rev().map(|(_, path)| path).collect())
    }

    /// Waits for a plugin of this name and registers it; of several the newest, as the kubelet does.
    ///
    /// # Errors
    /// [`StandInError::NotFound`] when none appears in time.
    pub async fn register(&self, driver_name: &str, within: Duration) -> Result<Plugin, StandInError> {
        let since = Instant::now();
        let mut last = String::new();
        loop {
            for socket in self.registration_sockets()? {
                match self.register_socket(&socket).await {
                    Ok(plugin) if plugin.info.name == driver_name => return Ok(plugin),
                    Ok(_) => {}
                    Err(error) => last = format!("; {}: {error}", socket.display()),
                }
            }
            if since.elapsed() > within {
                let (driver_name, path) = (driver_name.to_owned(), self.registry.clone());
                return Err(StandInError::NotFound { driver_name, path, within, last });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Registers the plugin behind one registration socket: asks for its name and version, connects to its DRA socket,
    /// and notifies it of the registration.
    ///
    /// # Errors
    /// When the plugin does not answer, or the kubelet could not use it.
    pub async fn register_socket(&self, socket: &Path) -> Result<Plugin, StandInError> {
        let mut registration = RegistrationClient::new(connect(socket).await?);
        let info = registration
            .get_info(within(GET_INFO, InfoRequest {}))
            .await
            .map_err(|status| call("GetInfo", status))?
            .into_inner();
        let supported =
            info.supported_versions.iter().any(|version| version == tessera_proto::dra::v1::SERVICE);
        if info.r#type != DRA_PLUGIN || !supported {
            let status = RegistrationStatus { plugin_registered: false, error: "not usable".to_owned() };
            // A failure is ignored: the plugin could do nothing about one.
            let _ = registration.notify_registration_status(within(NOTIFY, status)).await;
            return Err(StandInError::Unusable(Box::new(info)));
        }
        let channel = connect(Path::new(&info.endpoint)).await?;
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        registration
            .notify_registration_status(within(NOTIFY, status))
            .await
            .map_err(|status| call("NotifyRegistrationStatus", status))?;
        Ok(Plugin {
            registration_socket: socket.to_owned(),
            info,
            dra: DraPluginClient::new(channel.clone()),
            health: DraResourceHealthClient::new(channel),
        })
    }
}

impl Plugin {
    /// `NodePrepareResources`: the devices of each claim by UID, or the reason for its failure.
    ///
    /// # Errors
    /// When the call fails as a whole.
    pub async fn prepare(
        &self,
        claims: &[Claim],
    ) -> Result<HashMap<String, Result<Vec<Device>, String>>, StandInError> {
        let request = NodePrepareResourcesRequest { claims: claims.to_vec() };
        let response = self.dra.clone().node_prepare_resources(within(CLAIMS, request)).await;
        let claims = response.map_err(|status| call("NodePrepareResources", status))?.into_inner().claims;
        Ok(claims.into_iter().map(|(uid, claim)| (uid, result(claim.devices, claim.error))).collect())
    }

    /// `NodeUnprepareResources`: the result for each claim, by UID.
    ///
    /// # Errors
    /// When the call fails as a whole.
    pub async fn unprepare(
        &self,
        claims: &[Claim],
    ) -> Result<HashMap<String, Result<(), String>>, StandInError> {
        let request = NodeUnprepareResourcesRequest { claims: claims.to_vec() };
        let response = self.dra.clone().node_unprepare_resources(within(CLAIMS, request)).await;
        let claims = response.map_err(|status| call("NodeUnprepareResources", status))?.into_inner().claims;
        Ok(claims.into_iter().map(|(uid, claim)| (uid, result((), claim.error))).collect())
    }

    /// `NodeWatchResources`: the devices' health, for as long as the stream is kept.
    ///
    /// # Errors
    /// When the plugin refuses.
    pub async fn watch_health(&self) -> Result<Streaming<NodeWatchResourcesResponse>, StandInError> {
        let stream =
            self.health.clone().node_watch_resources(Request::new(NodeWatchResourcesRequest {})).await;
        Ok(stream.map_err(|status| call("NodeWatchResources", status))?.into_inner())
    }
}

fn result<T>(value: T, error: String) -> Result<T, String> {
    if error.is_empty() { Ok(value) } else { Err(error) }
}

fn call(call: &'static str, status: Status) -> StandInError {
    StandInError::Call { call, status: Box::new(status) }
}

fn within<T>(deadline: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

async fn connect(socket: &Path) -> Result<Channel, StandInError> {
    let failed = |source| StandInError::Connect { path: socket.to_owned(), source };
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(failed)?;
    endpoint.connect_timeout(NOTIFY).connect().await.map_err(failed)
}
