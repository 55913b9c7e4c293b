//! One running instance of the sockets.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tessera_dra_kubelet::{Answers, ClaimReference, KubeletMetrics, PreparedDevice};
use tessera_dra_kubelet::{
    claims::ClaimPreparer,
    device_health::{DeviceHealth, HealthStatus},
    registration::{RegistrationService, RegistrationState},
    server::{Instance, KubeletServer, ServeError},
    socket_paths::SocketPaths,
};
use tessera_proto::{
    dra::{
        v1::{self, dra_plugin_client::DraPluginClient},
        v1beta1::dra_plugin_client::DraPluginClient as DraPluginV1beta1Client,
    },
    dra_health::{
        v1::dra_resource_health_client::DraResourceHealthClient as HealthV1Client,
        v1alpha1::dra_resource_health_client::DraResourceHealthClient as HealthV1alpha1Client,
    },
    registration::v1::{registration_client::RegistrationClient, registration_server::RegistrationServer},
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Server, server::Router};

/// What the stand-in for the claim preparer does. By UID: `bad` fails, `forgotten` gets no answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Behaviour {
    pub delay: Duration,
}

#[derive(Clone)]
struct Preparing {
    behaviour: Behaviour,
    calls: Arc<AtomicUsize>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot prepare")]
pub struct Failed(#[source] std::io::Error);

pub struct Running {
    pub directory: Arc<TempDir>,
    pub paths: SocketPaths,
    pub registration: watch::Receiver<RegistrationState>,
    pub metrics: KubeletMetrics,
    pub calls: Arc<AtomicUsize>,
    health: watch::Sender<Option<Arc<[DeviceHealth]>>>,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl ClaimPreparer for Preparing {
    type Error = Failed;

    async fn prepare(&self, claims: Vec<ClaimReference>) -> Answers<Vec<PreparedDevice>, Failed> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(self.behaviour.delay).await;
        let device = |uid: &str| PreparedDevice {
            request_names: vec!["gpu".to_owned()],
            pool_name: "gpu.tessera.dev/node".to_owned(),
            device_name: "gpu-3b-00".to_owned(),
            cdi_device_ids: vec![format!("example.com/claim={uid}")],
            share_id: Some("share".to_owned()),
        };
        let answer = |claim: ClaimReference| match claim.uid.as_str() {
            "forgotten" => None,
            "bad" => Some((claim.uid, Err(Failed(std::io::Error::other("the card is lost"))))),
            _ => Some((claim.uid.clone(), Ok(vec![device(&claim.uid)]))),
        };
        claims.into_iter().filter_map(answer).collect()
    }

    async fn unprepare(&self, claims: Vec<ClaimReference>) -> Answers<(), Failed> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        claims.into_iter().map(|claim| (claim.uid, Ok(()))).collect()
    }
}

/// A short path, because the sockets' paths are limited.
pub fn directory() -> Arc<TempDir> {
    Arc::new(tempfile::Builder::new().prefix("k").rand_bytes(5).tempdir_in("/tmp").unwrap())
}

impl Running {
    pub async fn start(pod_uid: Option<&str>, behaviour: Behaviour) -> Self {
        Self::start_in(directory(), pod_uid.map(str::to_owned).as_deref(), behaviour).await
    }

    pub fn start_in(
        directory: Arc<TempDir>,
        pod_uid: Option<&str>,
        behaviour: Behaviour,
    ) -> impl Future<Output = Self> + Send + use<> {
        let instance = Instance {
            driver_name: "gpu.tessera.dev".to_owned(),
            kubelet_directory: directory.path().to_owned(),
            pod_uid: pod_uid.map(str::to_owned),
        };
        async move {
            let calls = Arc::new(AtomicUsize::new(0));
            let preparing = Preparing { behaviour, calls: Arc::clone(&calls) };
            let metrics = KubeletMetrics::register(&mut Registry::default());
            let (health, report) = watch::channel(None);
            let (state, registration) = watch::channel(RegistrationState::Waiting);
            let server =
                KubeletServer::listen(instance, preparing, report, state, metrics.clone()).await.unwrap();
            let paths = server.paths();
            let shutdown = CancellationToken::new();
            let serving = tokio::spawn(server.serve(shutdown.clone()));
            Self { directory, paths, registration, metrics, calls, health, shutdown, serving }
        }
    }

    pub async fn stop(self) {
        self.shutdown.cancel();
        self.serving.await.unwrap().unwrap();
        assert!(!self.paths.registration.exists() && !self.paths.dra.exists());
    }

    pub fn report(&self, device: &str, problem: &str) {
        let health = DeviceHealth {
            pool_name: "gpu.tessera.dev/node".into(),
            device_name: device.into(),
            status: HealthStatus::Unhealthy,
            message: problem.into(),
            checked_at: SystemTime::now(),
        };
        self.health.send_replace(Some(Arc::from([health])));
    }

    pub async fn no_connections_within(&self, limit: Duration) {
        let since = Instant::now();
        while self.metrics.connections.get() > 0 {
            assert!(since.elapsed() < limit, "{} connections are left", self.metrics.connections.get());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn registration_client(&self) -> RegistrationClient<Channel> {
        RegistrationClient::new(channel(&self.paths.registration).await)
    }

    pub async fn dra_client(&self) -> DraPluginClient<Channel> {
        DraPluginClient::new(channel(&self.paths.dra).await).max_encoding_message_size(16 << 20)
    }

    pub async fn dra_v1beta1_client(&self) -> DraPluginV1beta1Client<Channel> {
        DraPluginV1beta1Client::new(channel(&self.paths.dra).await)
    }

    pub async fn health_v1_client(&self) -> HealthV1Client<Channel> {
        HealthV1Client::new(channel(&self.paths.dra).await)
    }

    pub async fn health_v1alpha1_client(&self) -> HealthV1alpha1Client<Channel> {
        HealthV1alpha1Client::new(channel(&self.paths.dra).await)
    }
}

pub fn claim(uid: &str) -> v1::Claim {
    v1::Claim { namespace: "ns".to_owned(), name: "claim".to_owned(), uid: uid.to_owned() }
}

/// The registration service without the adapter in front of it.
pub fn plain_registration_server() -> Router {
    let state = watch::Sender::new(RegistrationState::Waiting);
    let service = RegistrationService::new(
        "gpu.tessera.dev",
        Path::new("/dra.sock"),
        state,
        KubeletMetrics::register(&mut Registry::default()),
    );
    Server::builder().add_service(RegistrationServer::new(service))
}

async fn channel(socket: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    // As the kubelet's own: what it accepts before it reads.
    endpoint.initial_stream_window_size(64 << 10).connect().await.unwrap()
}
