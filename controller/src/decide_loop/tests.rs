//! Conditions for the loop to decide.

use std::convert::Infallible;

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tessera_api::steering::GATE;
use tessera_decide::Observation;
use tessera_kube_util::events::Events;

use super::*;
use crate::watches::KINDS;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

/// A running loop with a follower replica, and its inputs.
struct Running {
    seen: mpsc::Sender<Seen>,
    leadership: watch::Sender<Leadership>,
    missing: watch::Receiver<BTreeSet<Kind>>,
    /// Names of patched pods.
    patched: mpsc::UnboundedReceiver<String>,
}

fn start(patience: Duration) -> Running {
    let (patched_sender, patched) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        if request.method() == Method::PATCH {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default();
            let _ = patched_sender.send(name.to_owned());
        }
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } });
        async move { Ok::<_, Infallible>(Response::new(Body::from(pod.to_string().into_bytes()))) }
    });
    let client = Client::new(service, "default");
    let (seen, seen_receiver) = mpsc::channel(64);
    let (carried_sender, carried) = mpsc::unbounded_channel();
    let (_, asks) = mpsc::channel(1);
    let (leadership, leads) = watch::channel(Leadership::Following { holder: None });
    let (missing_sender, missing) = watch::channel(BTreeSet::from(KINDS));
    let may_write = {
        let leads = leads.clone();
        Arc::new(move || leads.borrow().may_write(Instant::now()))
    };
    let metrics = Metrics::new();
    let events = Events::start(client.clone(), "test", "test");
    let list_claims = watch::channel(0).0;
    let decide = DecideLoop {
        seen: seen_receiver,
        carried,
        writer: Writer::new(client, events, carried_sender, may_write, metrics.clone(), list_claims),
        asks,
        kubernetes: watch::channel(None).1,
        leadership: leads,
        summaries: watch::channel(None).0,
        missing: missing_sender,
        patience,
        metrics,
        clock: Clock::start(),
        driver_name: "gpu.tessera.dev".to_owned(),
        replica: "test".to_owned(),
        handover: LONG,
        heal_after: LONG,
        gather_after: LONG,
        quota_grace: LONG,
        quota_half_life: LONG,
        quota_exempt: Vec::new(),
        quota_reclaim_to: ReclaimTo::Guarantee,
        per_card_hour: BTreeMap::new(),
        partial_timeout: LONG,
        topology_keys: Vec::new(),
        schedulers: Vec::new(),
    };
    tokio::spawn(decide.run(CancellationToken::new()));
    Running { seen, leadership, missing, patched }
}

impl Running {
    /// A gated pod requesting no device: its gate is removed by the first decision.
    async fn pod(&self, name: &str, labels: Value) {
        let pod = json!({ "metadata": { "name": name, "namespace": "team", "uid": name, "labels": labels },
            "spec": { "containers": [], "schedulingGates": [{ "name": GATE }] } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let change = Observation::Applied(Box::new(pod.into()));
        self.seen.send(Seen::Change(change)).await.unwrap();
    }

    async fn listed(&self, kinds: impl IntoIterator<Item = Kind>) {
        for kind in kinds {
            self.seen.send(Seen::Complete(kind)).await.unwrap();
        }
    }

    fn lead(&self, until: Instant) {
        self.leadership.send_replace(Leadership::Leading { transitions: 1, until });
    }

    async fn next(&mut self) -> String {
        tokio::time::timeout(LONG, self.patched.recv()).await.expect("nothing is decided").unwrap()
    }

    async fn is_idle(&mut self) -> bool {
        tokio::time::timeout(SHORT, self.patched.recv()).await.is_err()
    }
}

#[tokio::test]
async fn a_kind_that_is_never_listed_keeps_only_its_own_pods_waiting() {
    let mut running = start(Duration::ZERO);
    running.lead(Instant::now() + LONG);
    running.pod("of-a-set", json!({ "jobset.sigs.k8s.io/jobset-name": "set" })).await;
    running.pod("plain", json!({})).await;
    running.listed(KINDS.into_iter().filter(|kind| *kind != Kind::JobSet)).await;
    assert_eq!(running.next().await, "plain");
    assert!(running.is_idle().await);
    assert!(running.missing.borrow().is_empty(), "it is ready");
    running.listed([Kind::JobSet]).await;
    assert_eq!(running.next().await, "of-a-set");
}

#[tokio::test]
async fn nothing_is_decided_before_all_that_concerns_everybody_is_listed() {
    let mut running = start(Duration::ZERO);
    running.lead(Instant::now() + LONG);
    running.pod("plain", json!({})).await;
    running.listed(KINDS.into_iter().filter(|kind| *kind != Kind::ResourceClaim)).await;
    assert!(running.is_idle().await);
    assert_eq!(*running.missing.borrow(), [Kind::ResourceClaim].into());
    running.listed([Kind::ResourceClaim]).await;
    assert_eq!(running.next().await, "plain");
}

/// No notification comes when the Lease expires.
#[tokio::test]
async fn who_does_not_lead_any_more_decides_nothing() {
    let mut running = start(LONG);
    running.pod("plain", json!({})).await;
    running.listed(KINDS).await;
    assert!(running.is_idle().await, "it follows");
    running.lead(Instant::now());
    assert!(running.is_idle().await, "the Lease has run out");
    running.lead(Instant::now() + LONG);
    assert_eq!(running.next().await, "plain");
}
