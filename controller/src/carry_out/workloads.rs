//! Writes to Kueue's Workloads.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::json;
use tessera_api::kueue::ROOM_ANNOTATION;
use tessera_decide::Intent;

use super::{WriteError, Writer};
use crate::watches::{KUEUE, KUEUES_VERSIONS};

impl Writer {
    /// Writes the room, then the checks: a leader that comes between finds room for a check without an answer, and plans it anew.
    pub(super) async fn answer(&self, intent: &Intent) -> Result<(), WriteError> {
        let Intent::Answer { workload, checks, room } = intent else { return Ok(()) };
        let version = workload.api_version.rsplit('/').next().filter(|version| !version.is_empty());
        let kind = GroupVersionKind::gvk(KUEUE, version.unwrap_or(KUEUES_VERSIONS[0]), "Workload");
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &workload.key.namespace, &ApiResource::from_gvk(&kind));
        let (name, params) = (&workload.key.name, PatchParams::default());
        let mut metadata = json!({ "uid": workload.uid, "resourceVersion": workload.resource_version });
        if let Some(room) = room {
            let mut patch = json!({ "metadata": metadata });
            patch["metadata"]["annotations"] = json!({ ROOM_ANNOTATION: room });
            let Some(written) = self.once(api.patch(name, &params, &Patch::Merge(&patch))).await? else {
                return Ok(());
            };
            metadata["resourceVersion"] = json!(written.metadata.resource_version);
        }
        let patch = json!({ "metadata": metadata, "status": { "admissionChecks": checks } });
        self.once(api.patch_status(name, &params, &Patch::Merge(&patch))).await.map(drop)
    }
}
