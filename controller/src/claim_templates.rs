//! Makes the ResourceClaimTemplates named by pods whose extended resources an admission policy turned into claims.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource as _};
use tessera_api::conversion::{CONVERTED, MADE_FOR_LABEL, MADE_FOR_VALUE};
use tessera_cluster::{Key, PodExt as _};
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::events::{Content, Events, Severity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::carry_out::MayWrite;
use plan::Change;

/// Pods that come together are looked at together. kube-controller-manager tries again within as long.
const GATHER: Duration = Duration::from_millis(200);
/// Pause after a failure, and between two looks for a change of who leads.
const PAUSE: Duration = Duration::from_secs(5);
/// How often templates without pods, and templates that somebody deleted, are looked for.
const LOOK: Duration = Duration::from_secs(60);

/// Converted pods; `None` until all are listed.
type Pods = Option<BTreeMap<Key, Converted>>;

/// A converted pod.
#[derive(Clone, Debug)]
struct Converted {
    reference: ObjectReference,
    /// Templates it names.
    templates: Vec<Key>,
}

/// The task making and deleting templates.
pub struct ClaimTemplates {
    /// The API server.
    pub client: Client,
    /// Sends Events about pods whose templates are refused.
    pub events: Events,
    /// Whether this replica is the leader.
    pub may_write: MayWrite,
}

impl ClaimTemplates {
    /// Makes templates until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let (sender, pods) = watch::channel(None);
        let both = async { tokio::join!(follow(self.client.clone(), sender), self.keep(pods)) };
        shutdown.run_until_cancelled(both).await;
    }

    async fn keep(&self, mut pods: watch::Receiver<Pods>) {
        let mut unnamed = BTreeMap::new();
        // Uids of pods.
        let mut done = BTreeSet::new();
        let mut looked: Option<Instant> = None;
        let mut told = BTreeSet::new();
        loop {
            let known = pods.borrow_and_update().clone();
            let mut pause = GATHER;
            if let Some(known) = known
                && (self.may_write)()
            {
                let waiting = known.values().filter(|pod| !pod.templates.is_empty());
                let waiting: BTreeSet<String> = waiting.filter_map(|pod| pod.reference.uid.clone()).collect();
                let is_due = looked.is_none_or(|looked| looked.elapsed() >= LOOK);
                if is_due || !waiting.is_subset(&done) {
                    looked = Some(Instant::now());
                    let named = known.values().flat_map(|pod| pod.templates.clone()).collect();
                    let failures = self.look(&named, &mut unnamed).await;
                    if failures.is_empty() {
                        done = waiting;
                    } else {
                        pause = PAUSE;
                        done.clear();
                    }
                    let mut texts = BTreeSet::new();
                    for failure in failures {
                        let text = failure.to_string();
                        if !told.contains(&text) {
                            self.tell(&known, &failure, &text);
                        }
                        texts.insert(text);
                    }
                    told = texts;
                }
            }
            tokio::select! {
                changed = pods.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(PAUSE) => {}
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Writes what is due, also after a failure: in another namespace the rest may succeed. Returns the failures.
    async fn look(&self, named: &BTreeSet<Key>, unnamed: &mut BTreeMap<Key, Instant>) -> Vec<Failure> {
        let (classes, made) = match self.listed().await {
            Ok(listed) => listed,
            Err(error) => return vec![Failure::List(error)],
        };
        let mut failures = Vec::new();
        for change in plan::changes(named, &classes, &made, unnamed, Instant::now()) {
            if !(self.may_write)() {
                break;
            }
            failures.extend(self.carry_out(change, named).await.err());
        }
        failures
    }

    async fn listed(&self) -> Result<(Vec<DeviceClass>, Vec<ResourceClaimTemplate>), kube::Error> {
        let classes: Api<DeviceClass> = Api::all(self.client.clone());
        let templates: Api<ResourceClaimTemplate> = Api::all(self.client.clone());
        let made = ListParams::default().labels(&format!("{MADE_FOR_LABEL}={MADE_FOR_VALUE}"));
        Ok((classes.list(&ListParams::default()).await?.items, templates.list(&made).await?.items))
    }

    async fn carry_out(&self, change: Change, named: &BTreeSet<Key>) -> Result<(), Failure> {
        let (Change::Make(template) | Change::Delete(template)) = &change;
        let key = Key::from(&template.metadata);
        let templates: Api<ResourceClaimTemplate> = Api::namespaced(self.client.clone(), &key.namespace);
        match &change {
            Change::Make(template) => match templates.create(&PostParams::default(), template).await {
                // 409: somebody's own, which pods get then.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                made => made.map(drop).map_err(|error| Failure::Make(key, plan::resource(template), error)),
            },
            Change::Delete(template) => {
                let only = Preconditions { uid: template.metadata.uid.clone(), resource_version: None };
                match templates.delete(&key.name, &DeleteParams::default().preconditions(only)).await {
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                    Err(error) => Err(Failure::Delete(key, error)),
                    // With its other class in the next look.
                    Ok(_) if named.contains(&key) => Err(Failure::OtherClass(key)),
                    Ok(_) => Ok(()),
                }
            }
        }
    }

    /// In the log, and to the pods that wait for a template.
    fn tell(&self, pods: &BTreeMap<Key, Converted>, failure: &Failure, text: &str) {
        tracing::warn!("{text}");
        let Failure::Make(template, ..) = failure else { return };
        let content = Content {
            severity: Severity::Warning,
            action: "Converting",
            reason: "TemplateRefused",
            note: text,
            occurrence: None,
        };
        for pod in pods.values().filter(|pod| pod.templates.contains(template)) {
            self.events.send(&content, &pod.reference);
        }
    }
}

/// Why templates are not as they should be.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot list DeviceClasses and ResourceClaimTemplates: {}", with_causes(.0))]
    List(#[source] kube::Error),
    #[error("cannot make the ResourceClaimTemplate {} for {}: {}", .0, .1, with_causes(.2))]
    Make(Key, String, #[source] kube::Error),
    #[error("cannot delete the ResourceClaimTemplate {}: {}", .0, with_causes(.1))]
    Delete(Key, #[source] kube::Error),
    #[error(
        "the ResourceClaimTemplate {0} is made anew: another DeviceClass has its extended resource name now"
    )]
    OtherClass(Key),
}

/// Follows converted pods.
async fn follow(client: Client, pods: watch::Sender<Pods>) {
    let api: Api<Pod> = Api::all(client);
    let events = watcher(api, watcher::Config::default().labels(CONVERTED)).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => drop(listed.insert(pod.key(), converted(&pod))),
            Ok(Event::InitDone) => drop(pods.send_replace(Some(std::mem::take(&mut listed)))),
            Ok(Event::Apply(pod)) => pods.send_modify(|all| {
                all.get_or_insert_default().insert(pod.key(), converted(&pod));
            }),
            Ok(Event::Delete(pod)) => pods.send_modify(|all| {
                all.get_or_insert_default().remove(&pod.key());
            }),
            Err(error) => tracing::debug!(%error, "the watch of converted pods broke off; trying again"),
        }
    }
}

fn converted(pod: &Pod) -> Converted {
    Converted { reference: pod.object_ref(&()), templates: plan::named(pod) }
}
