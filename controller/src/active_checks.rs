//! Marks Kueue's AdmissionChecks of this controller as active: Kueue reserves no quota with others.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::kueue::CHECK_CONTROLLER;
use tokio_util::sync::CancellationToken;

use crate::carry_out::MayWrite;
use crate::failure_log::FailureLog;
use crate::watches::{KUEUE, KUEUES_VERSIONS};

/// Pause between two looks: a new check stops its ClusterQueues for as long.
const PAUSE: Duration = Duration::from_secs(5);

/// Pause without Kueue.
const NOT_SERVED: Duration = Duration::from_secs(60);

/// The task writing the condition.
pub struct ActiveChecks {
    /// The API server.
    pub client: Client,
    /// Whether this replica is the leader.
    pub may_write: MayWrite,
}

impl ActiveChecks {
    /// Writes until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut failures = FailureLog::new("write the condition of AdmissionChecks");
        loop {
            let mut pause = PAUSE;
            if (self.may_write)() {
                let is_served = self.write_all().await;
                failures.record(&is_served);
                if let Ok(false) = is_served {
                    pause = NOT_SERVED;
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns whether the kind is served.
    async fn write_all(&self) -> Result<bool, kube::Error> {
        for version in KUEUES_VERSIONS {
            let kind = GroupVersionKind::gvk(KUEUE, version, "AdmissionCheck");
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
            match api.list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                checks => return self.write(&api, checks?.items).await.map(|()| true),
            }
        }
        Ok(false)
    }

    async fn write(&self, api: &Api<DynamicObject>, checks: Vec<DynamicObject>) -> Result<(), kube::Error> {
        for check in checks.iter().filter(|check| check.data["spec"]["controllerName"] == CHECK_CONTROLLER) {
            let Some(conditions) = with_active(check, Timestamp::now()).filter(|_| (self.may_write)()) else {
                continue;
            };
            let patch = json!({ "metadata": { "resourceVersion": check.resource_version() },
                "status": { "conditions": conditions } });
            match api.patch_status(&check.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
                // Changed or deleted in between: looked at again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                written => drop(written?),
            }
        }
        Ok(())
    }
}

/// The conditions with `Active` added; `None` if they have it.
fn with_active(check: &DynamicObject, now: Timestamp) -> Option<Vec<Value>> {
    let mut conditions = check.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is_active = |one: &Value| one["type"] == "Active" && one["status"] == "True";
    if conditions.iter().any(is_active) {
        return None;
    }
    conditions.retain(|one| one["type"] != "Active");
    conditions.push(json!({ "type": "Active", "status": "True", "reason": "Active",
        "message": "Tessera's controller plans the Workload's pods", "observedGeneration": check.metadata.generation,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() }));
    Some(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_check_that_is_not_active_is_written_and_others_conditions_stay() {
        let with = |conditions: Value| -> DynamicObject {
            serde_json::from_value(json!({ "metadata": { "name": "plan", "generation": 1 },
                "spec": { "controllerName": CHECK_CONTROLLER }, "status": { "conditions": conditions } }))
            .unwrap()
        };
        let now = Timestamp::UNIX_EPOCH;
        let other = json!({ "type": "Other", "status": "True" });
        let written =
            with_active(&with(json!([other, { "type": "Active", "status": "False" }])), now).unwrap();
        assert_eq!((written.len(), &written[0], &written[1]["status"]), (2, &other, &json!("True")));
        assert_eq!(written[1]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(with_active(&with(json!(written)), now), None);
    }
}
