//! gRPC's health service on a port, for gRPC probes: whether the plugin's own sockets answer.
//!
//! The same as `livenessProbe: {grpc: …}` asks of other DRA drivers. The port is open to everybody in the pod's
//! network, so anybody there can keep the port busy.

use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use tessera_proto::grpc_health::v1::{
    HealthCheckRequest, HealthCheckResponse,
    health_check_response::ServingStatus,
    health_server::{Health, HealthServer},
};
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::{connections::accept, probe::probe, server::server, socket_paths::SocketPaths};

/// The services with a known status: the plugin as a whole, under both names known to NVIDIA's DRA driver and to Kubernetes'
/// example driver (`cmd/gpu-kubelet-plugin/health.go`).
const SERVICES: [&str; 2] = ["", "liveness"];

/// Longest time for an answer.
const CALL_TIME: Duration = Duration::from_secs(5);

/// Answers for one instance of the plugin.
#[derive(Debug)]
pub struct GrpcHealth {
    /// The sockets to probe.
    pub sockets: SocketPaths,
    /// Whether they listen. As long as they don't, the plugin is starting, and well.
    pub listening: watch::Receiver<bool>,
}

impl GrpcHealth {
    /// Answers until `shutdown`.
    ///
    /// # Errors
    /// When the server ends before.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> Result<(), tonic::transport::Error> {
        let incoming = accept(Box::pin(TcpListenerStream::new(listener)), None);
        let router = server(CALL_TIME).add_service(HealthServer::new(self));
        router.serve_with_incoming_shutdown(incoming, shutdown.cancelled_owned()).await
    }
}

#[tonic::async_trait]
impl Health for GrpcHealth {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !SERVICES.contains(&service.as_str()) {
            return Err(Status::not_found("unknown service"));
        }
        let is_listening = *self.listening.borrow();
        let status = if !is_listening || probe(&self.sockets).await.is_ok() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("health is only told when it is asked for: Check"))
    }
}

#[cfg(test)]
mod tests {
    use tessera_proto::grpc_health::v1::health_client::HealthClient;

    use super::*;

    #[tokio::test]
    async fn it_says_whether_the_sockets_answer() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let sockets = SocketPaths { registration: path("reg.sock"), dra: path("dra.sock") };
        let (listening, receiver) = watch::channel(false);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let health = GrpcHealth { sockets, listening: receiver };
        let serving = tokio::spawn(health.serve(listener, shutdown.clone()));

        let mut client = HealthClient::connect(format!("http://{address}")).await.unwrap();
        let mut check = async |service: &str| {
            let request = HealthCheckRequest { service: service.to_owned() };
            client.check(request).await.map(|answer| answer.into_inner().status())
        };
        for service in SERVICES {
            assert_eq!(check(service).await.unwrap(), ServingStatus::Serving, "it is starting");
        }
        listening.send_replace(true);
        assert_eq!(check("").await.unwrap(), ServingStatus::NotServing, "nobody is at the sockets");
        assert_eq!(check("readiness").await.unwrap_err().code(), tonic::Code::NotFound);
        shutdown.cancel();
        drop(client);
        serving.await.unwrap().unwrap();
    }
}
