//! The stream of device health for the kubelet, shown in the pods' status.
//!
//! A repeated report must still be true: a card not checked for `TIMEOUT` is reported as unknown.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::{Stream, StreamExt, stream};
use tessera_proto::dra_health::{v1, v1alpha1};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// Interval at which an unchanged report is sent again: the kubelet takes silence for unknown health.
const REPEAT: Duration = Duration::from_secs(20);

/// Silence after which the kubelet is to take the health for unknown.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Longest message not truncated by the kubelet, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Message for a device found healthy at its card's last check, too long ago.
const NOT_LOOKED_AT: &str = "the plugin has not been able to look at the card lately; see its log";

/// Health of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthStatus {
    /// The driver did not say.
    Unknown,
    /// The card answers, without known errors.
    Healthy,
    /// The card is lost, or unusable after an error.
    Unhealthy,
}

/// Health of one published device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    /// The device's pool.
    pub pool_name: Arc<str>,
    /// The device's name in the pool.
    pub device_name: Arc<str>,
    /// Its health.
    pub status: HealthStatus,
    /// The reason; shown to users. Empty when healthy.
    pub message: Arc<str>,
    /// When the driver last answered for its card.
    pub checked_at: SystemTime,
}

/// All devices of this node; `None` until the hardware was first read.
pub type HealthReport = watch::Receiver<Option<Arc<[DeviceHealth]>>>;

/// Answers health calls on the DRA socket.
#[derive(Clone, Debug)]
pub struct DeviceHealthService {
    report: HealthReport,
    repeat: Duration,
    shutdown: CancellationToken,
}

type HealthStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl DeviceHealthService {
    /// A service streaming `report` until `shutdown`.
    pub fn new(report: HealthReport, shutdown: CancellationToken) -> Self {
        Self { report, repeat: REPEAT, shutdown }
    }

    /// The current report: now, at every change, and every [`REPEAT`].
    fn reports(&self) -> impl Stream<Item = Arc<[DeviceHealth]>> + Send + use<> {
        let (mut report, repeat) = (self.report.clone(), self.repeat);
        report.mark_changed();
        let reports = stream::unfold(report, move |mut report| async move {
            loop {
                tokio::select! {
                    changed = report.changed() => changed.ok()?,
                    () = tokio::time::sleep(repeat) => {}
                }
                let now = report.borrow_and_update().clone();
                if let Some(devices) = now {
                    return Some((devices, report));
                }
            }
        });
        reports.take_until(self.shutdown.clone().cancelled_owned())
    }
}

#[tonic::async_trait]
impl v1::dra_resource_health_server::DraResourceHealth for DeviceHealthService {
    type NodeWatchResourcesStream = HealthStream<v1::NodeWatchResourcesResponse>;

    async fn node_watch_resources(
        &self,
        _: Request<v1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let responses = self.reports().map(|devices| {
            let devices = devices.iter().map(device_health).collect();
            Ok(v1::NodeWatchResourcesResponse { devices })
        });
        Ok(Response::new(responses.boxed()))
    }
}

#[tonic::async_trait]
impl v1alpha1::dra_resource_health_server::DraResourceHealth for DeviceHealthService {
    type NodeWatchResourcesStream = HealthStream<v1alpha1::NodeWatchResourcesResponse>;

    async fn node_watch_resources(
        &self,
        _: Request<v1alpha1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let responses = self.reports().map(|devices| {
            let devices = devices.iter().map(device_health).map(v1alpha1_device_health).collect();
            Ok(v1alpha1::NodeWatchResourcesResponse { devices })
        });
        Ok(Response::new(responses.boxed()))
    }
}

fn device_health(device: &DeviceHealth) -> v1::DeviceHealth {
    let is_old = SystemTime::now().duration_since(device.checked_at).is_ok_and(|age| age > TIMEOUT);
    let (status, message) = match device.status {
        HealthStatus::Healthy if is_old => (HealthStatus::Unknown, NOT_LOOKED_AT),
        status => (status, &*device.message),
    };
    let health = match status {
        HealthStatus::Unknown => v1::HealthStatus::Unknown,
        HealthStatus::Healthy => v1::HealthStatus::Healthy,
        HealthStatus::Unhealthy => v1::HealthStatus::Unhealthy,
    };
    let seconds = device.checked_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    v1::DeviceHealth {
        device: Some(v1::DeviceIdentifier {
            pool_name: device.pool_name.to_string(),
            device_name: device.device_name.to_string(),
        }),
        health: health.into(),
        last_updated_time: i64::try_from(seconds).unwrap_or(i64::MAX),
        health_check_timeout_seconds: TIMEOUT.as_secs() as i64,
        message: message.chars().take(MAX_MESSAGE).collect(),
    }
}

/// The two versions have the same fields with the same numbers.
fn v1alpha1_device_health(device: v1::DeviceHealth) -> v1alpha1::DeviceHealth {
    v1alpha1::DeviceHealth {
        device: device.device.map(|v1::DeviceIdentifier { pool_name, device_name }| {
            v1alpha1::DeviceIdentifier { pool_name, device_name }
        }),
        health: device.health,
        last_updated_time: device.last_updated_time,
        health_check_timeout_seconds: device.health_check_timeout_seconds,
        message: device.message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(status: HealthStatus) -> Option<Arc<[DeviceHealth]>> {
        let device = DeviceHealth {
            pool_name: "gpu.tessera.dev/node".into(),
            device_name: "gpu-3b-00".into(),
            status,
            message: "".into(),
            checked_at: SystemTime::now(),
        };
        Some(Arc::from([device]))
    }

    fn service(report: HealthReport, repeat_millis: u64) -> (DeviceHealthService, CancellationToken) {
        let shutdown = CancellationToken::new();
        let repeat = Duration::from_millis(repeat_millis);
        (DeviceHealthService { report, repeat, shutdown: shutdown.clone() }, shutdown)
    }

    #[tokio::test]
    async fn says_what_is_known_what_changes_and_ends_at_shutdown() {
        let (sender, report) = watch::channel(devices(HealthStatus::Healthy));
        let (service, shutdown) = service(report, 3_600_000);
        let mut reports = Box::pin(service.reports());
        assert_eq!(reports.next().await.unwrap()[0].status, HealthStatus::Healthy);
        sender.send_replace(devices(HealthStatus::Unhealthy));
        assert_eq!(reports.next().await.unwrap()[0].status, HealthStatus::Unhealthy);
        shutdown.cancel();
        assert!(reports.next().await.is_none());
    }

    #[tokio::test]
    async fn says_nothing_before_the_hardware_was_read_and_repeats_after() {
        let (sender, report) = watch::channel(None);
        let (service, _shutdown) = service(report, 10);
        let mut reports = Box::pin(service.reports());
        let nothing = tokio::time::timeout(Duration::from_millis(100), reports.next()).await;
        assert!(nothing.is_err());
        sender.send_replace(devices(HealthStatus::Healthy));
        for _ in 0..3 {
            assert_eq!(reports.next().await.unwrap()[0].status, HealthStatus::Healthy);
        }
    }

    #[test]
    fn what_is_old_is_not_said_again_as_if_it_were_fresh() {
        let of = |status, age| {
            let device = devices(status).unwrap()[0].clone();
            device_health(&DeviceHealth { checked_at: SystemTime::now() - age, ..device }).health()
        };
        let (fresh, old) = (TIMEOUT / 2, TIMEOUT + Duration::from_secs(1));
        assert_eq!(of(HealthStatus::Healthy, fresh), v1::HealthStatus::Healthy);
        assert_eq!(of(HealthStatus::Healthy, old), v1::HealthStatus::Unknown);
        assert_eq!(
            of(HealthStatus::Unhealthy, old),
            v1::HealthStatus::Unhealthy,
            "nobody said that it is well again"
        );
    }

    #[test]
    fn both_versions_have_the_same_numbers() {
        for status in [v1::HealthStatus::Unknown, v1::HealthStatus::Healthy, v1::HealthStatus::Unhealthy] {
            let same = v1alpha1::HealthStatus::try_from(i32::from(status)).unwrap();
            assert_eq!(same.as_str_name(), status.as_str_name());
        }
    }
}
