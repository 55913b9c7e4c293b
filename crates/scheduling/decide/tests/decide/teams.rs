//! GpuQuotas: limits, guarantees, whose turn it is, and devices taken back.

mod budgets;
mod elastic;
mod exempt;
mod fair_share;
mod hours;
mod idle;
mod judged_anew;
mod limits;
mod order;
mod over_limit;
mod parents;
mod shortfalls;
mod summaries;
mod taking_back;
mod what_is_lent;
mod who_gives_back;
mod whose_turn;

use serde_json::{Value, json};
use tessera_cluster::{GpuQuota, Key, Kind};
use tessera_decide::{Intent, Observation, Time};

use crate::gangs::preemption::{evicted, nominated};
use crate::leader::leader;
use crate::objects::*;

/// A leader over one node, with a namespace for each of these teams, labelled with its name.
fn teams(cards: usize, teams: &[&str]) -> Fed {
    let mut fed = leader(&[("a", cards)]);
    for team in teams {
        fed.namespace(team, team);
    }
    fed
}

/// A pod of one container, in this namespace.
fn pod_in(namespace: &str, name: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["namespace"] = json!(namespace);
    pod["metadata"]["creationTimestamp"] = json!("1970-01-01T00:10:00Z");
    pod
}

impl Fed {
    fn namespace(&mut self, name: &str, team: &str) {
        let namespace = json!({ "metadata": { "name": name, "labels": { "team": team } } });
        self.apply(read::<k8s_openapi::api::core::v1::Namespace>(namespace).into());
    }

    /// A quota of the team's namespaces.
    fn quota(&mut self, team: &str, spec: Value) {
        let mut whole = json!({ "namespaceSelector": { "matchLabels": { "team": team } } });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let quota = json!({ "metadata": { "name": team }, "spec": whole });
        self.apply(read::<GpuQuota>(quota).into());
    }

    /// Adds a pod that asks for devices of the class.
    fn ask_in(
        &mut self,
        namespace: &str,
        name: &str,
        class: &str,
        count: usize,
        change: impl Fn(&mut Value),
    ) {
        let mut claim = claim(name, class, count);
        claim["metadata"]["namespace"] = json!(namespace);
        claim["metadata"]["resourceVersion"] = json!("5");
        claim["metadata"]["annotations"] = json!({ "gpu.tessera.dev/controller-epoch": "one" });
        self.apply_claim(claim);
        let mut pod = pod_in(namespace, name);
        change(&mut pod);
        self.apply_pod(pod);
    }

    /// Decides, writes, and binds all pods that get devices. Returns their names.
    fn start(&mut self) -> Vec<String> {
        let intents = self.decide();
        self.written(&intents);
        let mut started = Vec::new();
        for intent in &intents {
            let Intent::Allocate { pod, node, .. } = intent else { continue };
            let found = self.decider.cluster().objects().pods[&pod.key].clone();
            let mut found = serde_json::to_value(found.as_ref()).unwrap();
            found["spec"]["schedulingGates"] = json!([]);
            found["spec"]["nodeName"] = json!(node);
            let now = k8s_openapi::jiff::Timestamp::from_second(self.now.as_secs() as i64).unwrap();
            found["status"]["startTime"] = json!(now.to_string());
            let claims: Vec<Key> = claims_of(&found);
            for key in claims {
                let claim = self.decider.cluster().objects().claims[&key].clone();
                let mut claim = serde_json::to_value(claim.as_ref()).unwrap();
                claim["status"]["reservedFor"] =
                    json!([{ "resource": "pods", "name": pod.key.name, "uid": pod.uid }]);
                self.apply_claim(claim);
            }
            self.apply_pod(found);
            started.push(pod.key.name.clone());
        }
        started
    }

    /// The pod and its claim are gone.
    fn end(&mut self, namespace: &str, name: &str) {
        for (kind, name) in [(Kind::Pod, name.to_owned()), (Kind::ResourceClaim, format!("{name}-gpus"))] {
            let deleted = Observation::Deleted(kind, Key::new(namespace, name));
            self.decider.observe(self.now, deleted).unwrap();
        }
    }

    fn why(&self, namespace: &str, name: &str) -> (&'static str, String) {
        let why = self.decider.reason_of(&Key::new(namespace, name)).expect("a waiting pod");
        (why.kind(), why.text().to_owned())
    }

    /// The pods evicted after the nominations were observed.
    fn takes(&mut self) -> Vec<String> {
        let intents = self.decide();
        assert_eq!(evicted(&intents), [""; 0], "evicted before the nomination was seen");
        nominated(self, &intents);
        evicted(&self.decide())
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Time::from_secs(seconds);
    }
}

fn claims_of(pod: &Value) -> Vec<Key> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap();
    let statuses = pod["status"]["resourceClaimStatuses"].as_array().unwrap();
    statuses.iter().map(|status| Key::new(namespace, status["resourceClaimName"].as_str().unwrap())).collect()
}

fn cards(guaranteed: u32, limit: Option<u32>) -> Value {
    let mut amount = json!({ "name": "cards", "unit": "Cards", "guaranteed": guaranteed });
    if let Some(limit) = limit {
        amount["limit"] = json!(limit);
    }
    json!({ "amounts": [amount], "minRuntimeSeconds": 0 })
}
