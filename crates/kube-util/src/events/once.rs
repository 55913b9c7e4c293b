//! Events that several instances of a program see: the first sends it, and the others find it sent.

use std::collections::BTreeMap;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{LONGEST_NAME, Message, Sender};
use crate::error_text::shorten;

/// Attempts at a change when another instance changes the Event at the same time.
const ATTEMPTS: usize = 3;

/// The API server's code for an object that exists, or has changed meanwhile.
const CONFLICT: u16 = 409;

impl Sender {
    /// Creates an Event whose name is derived from its content. If one of that name exists, counts it up, unless this
    /// very occurrence is already counted.
    pub(super) async fn send_once(
        &self,
        events: &Api<Event>,
        message: &Message,
        occurrence: &str,
    ) -> Result<(), kube::Error> {
        let (key, name) = (format!("{}/occurrence", self.controller), name(message));
        let mut event = self.event(message);
        event.metadata.name = Some(name.clone());
        event.metadata.annotations = Some(BTreeMap::from([(key.clone(), occurrence.to_owned())]));
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            created => return created.map(drop),
        }
        for _ in 0..ATTEMPTS {
            let name = &*name;
            let patch = |patch| async move {
                events.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
            };
            // An empty patch returns the object: the plugin may change Events, and needs no right to read those of
            // others.
            let known = patch(json!({})).await?;
            let annotations = known.metadata.annotations.unwrap_or_default();
            if annotations.get(&key).is_some_and(|told| told == occurrence) {
                return Ok(());
            }
            let count = known.series.map_or(1, |series| series.count).saturating_add(1);
            let changed = patch(json!({
                "metadata": {
                    "resourceVersion": known.metadata.resource_version, "annotations": {&*key: occurrence},
                },
                "series": {"count": count, "lastObservedTime": MicroTime(Timestamp::now())},
            }));
            match changed.await {
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
                changed => return changed.map(drop),
            }
        }
        Ok(())
    }
}

/// The same for every instance that reports the same.
fn name(message: &Message) -> String {
    let object = &message.object;
    let mut hash = Sha256::new();
    for part in [&*object.kind, &*object.uid, message.action, message.reason, &*message.note] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let end: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}.{end}", shorten(&object.name, LONGEST_NAME - 1 - end.len()))
}
