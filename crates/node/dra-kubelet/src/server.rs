//! Both sockets of one instance, from creation to removal.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tessera_proto::{
    dra::{v1, v1beta1},
    dra_health,
    registration::v1::registration_server::RegistrationServer,
};
use tokio::{net::UnixListener, sync::watch};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Server, server::Router};

use super::{
    claims::{ClaimPreparer, ClaimService},
    connections::accept,
    device_health::{DeviceHealthService, HealthReport},
    listening_socket::{ListenError, ListeningSocket, SocketName},
    registration::{RegistrationService, RegistrationState},
    socket_paths::{SocketPathTooLong, SocketPaths, plugin_directory},
    stale_sockets,
};
use crate::KubeletMetrics;

/// Largest accepted request, in bytes. A pod's claims take about 300 bytes each.
const MAX_REQUEST: usize = 1 << 20;

/// Flow control windows in bytes, per call and per connection: a client's limit of unread data.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// Concurrent calls on a connection; more wait.
const MAX_CALLS: u32 = 100;

/// Longest request headers, in bytes.
const MAX_HEADER_LIST: u32 = 16 << 10;

/// How long a call may take, from its headers to the headers of its answer. Longer than the kubelet waits (45 s), so
/// only a request without end is cut off. A stream may go on afterwards.
const CALL_TIME: Duration = Duration::from_secs(60);

/// A connection whose client does not answer a ping is closed.
const PING_INTERVAL: Duration = Duration::from_secs(60);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How often to try again while another process uses a socket of the same name.
const RETRY: Duration = Duration::from_secs(1);

/// Identifies an instance of a driver.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The driver's name.
    pub driver_name: String,
    /// The kubelet's directory on this node.
    pub kubelet_directory: PathBuf,
    /// The UID of the pod this instance runs in.
    pub pod_uid: Option<String>,
}

/// Why the sockets could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No socket path is short enough.
    #[error(transparent)]
    Path(#[from] SocketPathTooLong),
    /// A socket could not be created.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A server ended by itself.
    #[error("the server of the socket {path} ended")]
    Ended {
        /// The socket.
        path: PathBuf,
        /// The error.
        #[source]
        source: Option<tonic::transport::Error>,
    },
}

/// Both sockets, listening.
#[derive(Debug)]
pub struct KubeletServer<P> {
    dra: (UnixListener, SocketName),
    registration: (UnixListener, SocketName),
    instance: Instance,
    claims: ClaimService<P>,
    health: HealthReport,
    state: watch::Sender<RegistrationState>,
    metrics: KubeletMetrics,
}

impl<P: ClaimPreparer> KubeletServer<P> {
    /// Removes the sockets of dead instances and creates this one's: first the DRA socket, then the registration
    /// socket, found and used by the kubelet at once. The kubelet's answer goes to `state`. Waits while another process
    /// serves a socket of the same name.
    ///
    /// # Errors
    /// When a path is too long or a socket can't be created.
    pub async fn listen(
        instance: Instance,
        preparer: P,
        health: HealthReport,
        state: watch::Sender<RegistrationState>,
        metrics: KubeletMetrics,
    ) -> Result<Self, ServeError> {
        let Instance { driver_name, kubelet_directory, pod_uid } = &instance;
        let paths = SocketPaths::new(kubelet_directory, driver_name, pod_uid.as_deref())?;
        stale_sockets::remove(kubelet_directory, driver_name).await;
        let staging = plugin_directory(kubelet_directory, driver_name);
        let dra = bind(&paths.dra, &staging).await?;
        let registration = match bind(&paths.registration, &staging).await {
            Ok(registration) => registration,
            Err(error) => {
                remove(&dra.1);
                return Err(error.into());
            }
        };
        let claims = ClaimService::new(preparer, metrics.clone());
        Ok(Self { dra, registration, instance, claims, health, state, metrics })
    }

    /// The sockets' paths: registration and DRA.
    pub fn paths(&self) -> SocketPaths {
        SocketPaths { registration: self.registration.1.path().to_owned(), dra: self.dra.1.path().to_owned() }
    }

    /// Answers until `shutdown`, then removes both sockets, lets running calls finish and returns. The caller decides
    /// on a time limit: dropping the future ends the calls.
    ///
    /// # Errors
    /// [`ServeError::Ended`] when a server ends before `shutdown`.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let Self { dra, registration, instance, claims, health, state, metrics } = self;
        let ((dra, dra_name), (registration, registration_name)) = (dra, registration);
        let names = Names { registration: registration_name, dra: dra_name };
        tracing::info!(
            registration = %names.registration.path().display(),
            dra = %names.dra.path().display(),
            "waiting for the kubelet"
        );
        let service =
            RegistrationService::new(&instance.driver_name, names.dra.path(), state, metrics.clone());
        let registration_router = server(CALL_TIME)
            .add_service(RegistrationServer::new(service).max_decoding_message_size(MAX_REQUEST));
        let health = DeviceHealthService::new(health, shutdown.clone());
        let dra_router = dra_router(server(CALL_TIME), claims, health);

        let registration_path = names.registration.path().to_owned();
        let dra_path = names.dra.path().to_owned();
        let stop = CancellationToken::new();
        let serving = futures::future::try_join(
            run(registration_router, registration, registration_path, metrics.clone(), stop.clone()),
            run(dra_router, dra, dra_path, metrics, stop.clone()),
        );
        tokio::pin!(serving);
        tokio::select! {
            ended = &mut serving => { ended?; }
            () = shutdown.cancelled() => {
                // Remove the names first: the kubelet then stops calling this instance and turns to its successor.
                drop(names);
                stop.cancel();
                serving.await?;
            }
        }
        Ok(())
    }
}

/// Removes the sockets when dropped, the registration socket first.
struct Names {
    registration: SocketName,
    dra: SocketName,
}

impl Drop for Names {
    fn drop(&mut self) {
        remove(&self.registration);
        remove(&self.dra);
    }
}

fn remove(name: &SocketName) {
    if let Err(error) = name.remove() {
        tracing::warn!(socket = %name.path().display(), %error, "cannot remove the socket");
    }
}

async fn bind(path: &Path, staging: &Path) -> Result<(UnixListener, SocketName), ListenError> {
    let mut told = false;
    loop {
        match ListeningSocket::bind(path, staging).await {
            Err(error @ ListenError::InUse { .. }) => {
                if !told {
                    tracing::warn!("{error}");
                    told = true;
                }
                tokio::time::sleep(RETRY).await;
            }
            result => return result.map(ListeningSocket::into_parts),
        }
    }
}

pub(crate) fn server(call_time: Duration) -> Server {
    Server::builder()
        .timeout(call_time)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_CALLS)
        .http2_max_header_list_size(MAX_HEADER_LIST)
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
}

fn dra_router<P: ClaimPreparer>(
    mut server: Server,
    claims: ClaimService<P>,
    health: DeviceHealthService,
) -> Router {
    use dra_health::{
        v1::dra_resource_health_server::DraResourceHealthServer as HealthV1,
        v1alpha1::dra_resource_health_server::DraResourceHealthServer as HealthV1alpha1,
    };
    let v1 = v1::dra_plugin_server::DraPluginServer::new(claims.clone());
    let v1beta1 = v1beta1::dra_plugin_server::DraPluginServer::new(claims);
    server
        .add_service(v1.max_decoding_message_size(MAX_REQUEST))
        .add_service(v1beta1.max_decoding_message_size(MAX_REQUEST))
        .add_service(HealthV1::new(health.clone()).max_decoding_message_size(MAX_REQUEST))
        .add_service(HealthV1alpha1::new(health).max_decoding_message_size(MAX_REQUEST))
}

async fn run(
    router: Router,
    listener: UnixListener,
    path: PathBuf,
    metrics: KubeletMetrics,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let stopped = stop.clone();
    let incoming = accept(UnixListenerStream::new(listener), Some(metrics));
    match router.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()).await {
        Ok(()) if stopped.is_cancelled() => Ok(()),
        result => Err(ServeError::Ended { path, source: result.err() }),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::{StreamExt as _, stream};
    use tonic::{body::Body, transport::Endpoint};
    use tower::{Service as _, ServiceExt as _};

    use super::*;
    use crate::{Answers, ClaimReference, PreparedDevice};

    #[derive(Clone)]
    struct Nobody;

    impl ClaimPreparer for Nobody {
        type Error = Infallible;

        async fn prepare(&self, _: Vec<ClaimReference>) -> Answers<Vec<PreparedDevice>, Infallible> {
            Answers::default()
        }

        async fn unprepare(&self, _: Vec<ClaimReference>) -> Answers<(), Infallible> {
            Answers::default()
        }
    }

    #[tokio::test]
    async fn a_call_whose_request_never_ends_is_given_up_and_a_stream_is_not() {
        const TIME: Duration = Duration::from_millis(300);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let stop = CancellationToken::new();
        let metrics = KubeletMetrics::register(&mut Default::default());
        let (_sender, health) = watch::channel(None);
        let health = DeviceHealthService::new(health, stop.clone());
        let router = dra_router(server(TIME), ClaimService::new(Nobody, metrics.clone()), health);
        let listener = UnixListener::bind(&path).unwrap();
        let serving = tokio::spawn(run(router, listener, path.clone(), metrics, stop.clone()));

        let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
        let mut channel = endpoint.connect().await.unwrap();
        let mut call = async |method: &str, start: Bytes| {
            let body = stream::iter([Ok::<_, Infallible>(start)]).chain(stream::pending());
            let request = http::Request::post(format!("http://localhost/{method}"))
                .header("content-type", "application/grpc")
                .body(Body::new(axum::body::Body::from_stream(body)))
                .unwrap();
            let answer = channel.ready().await.unwrap().call(request);
            tokio::time::timeout(20 * TIME, answer).await
        };
        // The first byte of a ten-byte message.
        let unfinished = Bytes::from_static(&[0, 0, 0, 0, 10, 1]);
        let method = format!("{}/NodePrepareResources", v1::dra_plugin_server::SERVICE_NAME);
        let answer = call(&method, unfinished).await.expect("answered").unwrap();
        let status = tonic::Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.message(), "Timeout expired", "{status}");

        let mut watching =
            dra_health::v1::dra_resource_health_client::DraResourceHealthClient::new(channel.clone());
        let mut watched = watching.node_watch_resources(dra_health::v1::NodeWatchResourcesRequest {}).await;
        let next = watched.as_mut().unwrap().get_mut().message();
        assert!(
            tokio::time::timeout(3 * TIME, next).await.is_err(),
            "still waiting for what there is to say"
        );
        stop.cancel();
        drop((watched, watching, channel));
        serving.await.unwrap().unwrap();
    }
}
