//! Events of what every instance of the plugin sees: whoever comes first tells it, and the others find that it is told.

use std::collections::BTreeMap;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{LONGEST_NAME, News, Sender};
use crate::error_text::shorten;

/// How often a change is tried again that another instance came before.
const ATTEMPTS: usize = 3;

/// The API server's code for an object that is there, or has changed meanwhile.
const CONFLICT: u16 = 409;

impl Sender {
    /// Makes an Event whose name says what it is about, or, where there is one of that name, counts it up unless this very
    /// happening is counted already.
    pub(super) async fn send_once(
        &self,
        events: &Api<Event>,
        news: &News,
        happening: &str,
    ) -> Result<(), kube::Error> {
        let (key, name) = (format!("{}/happening", self.controller), name(news));
        let mut event = self.event(news);
        event.metadata.name = Some(name.clone());
        event.metadata.annotations = Some(BTreeMap::from([(key.clone(), happening.to_owned())]));
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            created => return created.map(drop),
        }
        for _ in 0..ATTEMPTS {
            let name = &*name;
            let patch = |patch| async move {
                events.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
            };
            // A change of nothing answers with what is there: the plugin may change Events, and need not read those of others.
            let known = patch(json!({})).await?;
            let annotations = known.metadata.annotations.unwrap_or_default();
            if annotations.get(&key).is_some_and(|told| told == happening) {
                return Ok(());
            }
            let count = known.series.map_or(1, |series| series.count).saturating_add(1);
            let changed = patch(json!({
                "metadata": {
                    "resourceVersion": known.metadata.resource_version, "annotations": {&*key: happening},
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

/// The same for everyone who tells the same.
fn name(news: &News) -> String {
    let object = &news.object;
    let mut hash = Sha256::new();
    for part in [&*object.kind, &*object.uid, news.action, news.reason, &*news.note] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let end: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}.{end}", shorten(&object.name, LONGEST_NAME - 1 - end.len()))
}
