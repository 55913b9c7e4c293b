//! Writes the status of GpuPools and GpuQuotas: at most one write per object in ten seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Object;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_api::gpu_pool::condition::Condition;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::carry_out::MayWrite;
use crate::decide_loop::Summaries;
use crate::failure_log::FailureLog;

/// Pause between two writes of the same status.
const PAUSE: Duration = Duration::from_secs(10);

/// The same where the API server keeps another status than was written: an older definition of the kind lacks fields.
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// Longest message of a condition, in characters. The API server allows 32,768 bytes.
const LONGEST_MESSAGE: usize = 1024;

/// Writes the status of all objects of a kind.
pub struct StatusWriter<S, T>
where
    T: Clone,
{
    /// The objects, each with an arbitrary spec. A spec of a later version of Tessera still gets a status, and must not block the status
    /// of other objects.
    pub objects: Api<Object<Value, T>>,
    /// The kind, in the plural, for logs.
    pub kind: &'static str,
    /// The summaries of the kind.
    pub summaries: fn(&Summaries) -> &BTreeMap<String, S>,
    /// The status for an object of this generation after the status before. The time becomes that of changed conditions.
    pub status: fn(Option<i64>, Option<&T>, &S, Timestamp) -> T,
}

impl<S, T> StatusWriter<S, T>
where
    S: Default,
    T: Clone + Default + PartialEq + Serialize + DeserializeOwned + std::fmt::Debug,
{
    /// Writes until `shutdown`.
    pub async fn run(
        self,
        mut summaries: watch::Receiver<Option<Summaries>>,
        may_write: MayWrite,
        shutdown: CancellationToken,
    ) {
        let mut failures = FailureLog::new(format!("write the status of {}", self.kind));
        let mut paused = BTreeMap::new();
        loop {
            let known = summaries.borrow_and_update().clone();
            if let Some(known) = known.filter(|_| may_write()) {
                failures.record(&self.write_all((self.summaries)(&known), &may_write, &mut paused).await);
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                // Also without news: an object may be new, or the leader may have changed.
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// `paused`: by object, until when nothing is written.
    async fn write_all(
        &self,
        known: &BTreeMap<String, S>,
        may_write: &MayWrite,
        paused: &mut BTreeMap<String, Instant>,
    ) -> Result<(), kube::Error> {
        let none = S::default();
        paused.retain(|_, until| Instant::now() < *until);
        let objects = match self.objects.list(&ListParams::default()).await {
            // The kind is not installed.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            objects => objects?,
        };
        for object in objects {
            let name = object.name_any();
            let summary = known.get(&name).unwrap_or(&none);
            let before = object.status.as_ref();
            let wanted = (self.status)(object.metadata.generation, before, summary, Timestamp::now());
            let is_paused = paused.contains_key(&name);
            if before.is_some_and(|before| *before == wanted) || is_paused || !may_write() {
                continue;
            }
            // With the base version, so that a former leader overwrites nothing.
            let patch = json!({
                "metadata": { "resourceVersion": object.resource_version() },
                "status": with_nulls(before, &wanted),
            });
            match self.objects.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(object) => {
                    if object.status.as_ref() != Some(&wanted) {
                        paused.insert(name, Instant::now() + LONG_PAUSE);
                    }
                }
                // Changed or deleted in between: retried next time.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The wanted status, and null for each field to be removed: a merge patch keeps fields not named.
fn with_nulls<T: Serialize>(before: Option<&T>, wanted: &T) -> Value {
    let fields = |status: &T| serde_json::to_value(status).unwrap_or_default();
    let mut wanted = fields(wanted);
    add_nulls(before.map(fields).unwrap_or_default(), &mut wanted);
    wanted
}

fn add_nulls(before: Value, wanted: &mut Value) {
    if let (Value::Object(before), Value::Object(wanted)) = (before, wanted) {
        for (field, before) in before {
            add_nulls(before, wanted.entry(field).or_insert(Value::Null));
        }
    }
}

/// A condition after those `before`: its time is that of the last change. `verdict`: whether it is true, and the reason.
pub(crate) fn condition(
    r#type: &str,
    (is_true, reason): (bool, &str),
    message: &str,
    before: &[Condition],
    now: Timestamp,
) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let same = before.iter().find(|condition| condition.r#type == r#type && condition.status == status);
    Condition {
        r#type: r#type.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(LONGEST_MESSAGE).collect(),
        last_transition_time: match same {
            Some(same) => same.last_transition_time.clone(),
            None => now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Request, Response};
    use kube::Client;
    use kube::api::ApiResource;
    use kube::client::Body;
    use tessera_api::gpu_quota::{GpuQuota, GpuQuotaStatus, HoursStatus};
    use tessera_decide::QuotaSummary;

    use super::*;

    /// An API server whose definition of the kind has no hours.
    #[tokio::test]
    async fn what_is_not_kept_is_written_once_a_minute() {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = writes.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let quota = json!({ "metadata": { "name": "vision", "resourceVersion": "1" }, "spec": {}, "status": { "waiting": 0 } });
            let answer = match *request.method() {
                Method::GET => json!({ "metadata": {}, "items": [quota] }),
                _ => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    quota
                }
            };
            async move { Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes()))) }
        });
        let writer = StatusWriter {
            objects: Api::all_with(Client::new(service, "default"), &ApiResource::erase::<GpuQuota>(&())),
            kind: "GpuQuotas",
            summaries: |known| &known.quotas,
            status: |_, _, _: &QuotaSummary, now| GpuQuotaStatus {
                hours: Some(HoursStatus { as_of: now.to_string(), ..HoursStatus::default() }),
                ..GpuQuotaStatus::default()
            },
        };
        let may_write: MayWrite = Arc::new(|| true);
        let mut paused = BTreeMap::new();
        for _ in 0..3 {
            writer.write_all(&BTreeMap::new(), &may_write, &mut paused).await.unwrap();
        }
        assert_eq!(writes.load(Ordering::SeqCst), 1);
        paused.values_mut().for_each(|until| *until -= LONG_PAUSE);
        writer.write_all(&BTreeMap::new(), &may_write, &mut paused).await.unwrap();
        assert_eq!(writes.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn fields_that_end_are_removed() {
        let before = json!({ "unmetDemand": [1], "nodes": 1, "hours": { "models": { "L4": 1, "H100": 1 } } });
        assert_eq!(
            with_nulls(Some(&before), &json!({ "nodes": 2, "hours": { "models": { "L4": 2 } } })),
            json!({ "nodes": 2, "unmetDemand": null, "hours": { "models": { "L4": 2, "H100": null } } })
        );
        assert_eq!(with_nulls(None, &json!({ "nodes": 2 })), json!({ "nodes": 2 }));
    }
}
