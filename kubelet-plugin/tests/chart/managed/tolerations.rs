//! The policy for taints tolerated by claims.

use serde_json::{Value, json};
use tessera_api::managed::TAINT_KEY;

use super::{claim_spec, create, refused, user};

/// The spec of a claim whose only request has these tolerations.
pub fn asking(tolerations: Value) -> Value {
    claim_spec(json!({"name": "card", "exactly": exactly(tolerations)}))
}

fn exactly(tolerations: Value) -> Value {
    json!({"deviceClassName": "any", "tolerations": tolerations})
}

fn alternatives(tolerations: Value) -> Value {
    claim_spec(json!({"name": "card", "firstAvailable": [
        {"name": "one", "deviceClassName": "any"},
        {"name": "two", "deviceClassName": "any", "tolerations": tolerations}]}))
}

pub async fn nobody_tolerates_the_taint() {
    let alice = user("alice").await;
    for kind in ["ResourceClaim", "ResourceClaimTemplate"] {
        for tolerations in [
            json!([{"key": TAINT_KEY, "operator": "Exists"}]),
            json!([{"key": TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}]),
            json!([{"key": TAINT_KEY, "operator": "Equal", "value": ""}]),
            json!([{"key": TAINT_KEY}]),
            json!([{"operator": "Exists"}]),
            json!([{"key": "", "operator": "Exists", "effect": "NoSchedule"}]),
            json!([{"key": "example.com/a", "operator": "Exists"}, {"operator": "Exists"}]),
        ] {
            for spec in [asking(tolerations.clone()), alternatives(tolerations.clone())] {
                let what = format!("{kind} {spec}");
                refused(create(&alice, kind, spec, true).await, &what, "tolerations of request card");
            }
        }
        let mut two = asking(json!([{"operator": "Exists"}]));
        let requests = two["devices"]["requests"].as_array_mut().expect("a list");
        requests.push(json!({"name": "other", "exactly": exactly(json!([{"key": TAINT_KEY}]))}));
        requests.push(json!({"name": "third", "exactly": exactly(json!([]))}));
        refused(
            create(&alice, kind, two, true).await,
            kind,
            "tolerations of request card, other: cards with",
        );
        let mut of_administrator = exactly(json!([{"operator": "Exists"}, {"key": TAINT_KEY}]));
        of_administrator["adminAccess"] = json!(false);
        let spec = claim_spec(json!({"name": "card", "exactly": of_administrator}));
        refused(create(&alice, kind, spec, true).await, kind, "tolerations of request card");

        of_administrator["adminAccess"] = json!(true);
        for spec in [
            super::one_card(),
            json!({}),
            asking(json!([{"operator": "Exists", "effect": "NoExecute"}])),
            asking(json!([{"key": TAINT_KEY, "operator": "Exists", "effect": "NoExecute"}])),
            asking(json!([{"key": "gpu.tessera.dev/unhealthy", "operator": "Exists"}])),
            alternatives(
                json!([{"key": "example.com/a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}]),
            ),
            claim_spec(json!({"name": "card", "exactly": of_administrator})),
            largest("NoExecute"),
        ] {
            let what = format!("{kind} {spec}");
            create(&alice, kind, spec, true).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        refused(
            create(&alice, kind, largest("NoSchedule"), true).await,
            kind,
            "tolerations of request r0, r1,",
        );
    }
}

/// As many requests, alternatives and tolerations as the API server takes: the maximum cost of an expression.
fn largest(effect: &str) -> Value {
    let tolerations: Vec<Value> = (0..16)
        .map(|index| match index {
            15 => json!({"operator": "Exists", "effect": effect}),
            _ => json!({"key": format!("example.com/a-rather-long-name-of-a-taint-{index}"), "operator": "Exists"}),
        })
        .collect();
    let alternative = |index: usize| json!({"name": format!("a{index}"), "deviceClassName": "any", "tolerations": tolerations});
    let request = |index: usize| json!({"name": format!("r{index}"), "firstAvailable": (0..8).map(alternative).collect::<Vec<_>>()});
    json!({"devices": {"requests": (0..32).map(request).collect::<Vec<_>>()}})
}
