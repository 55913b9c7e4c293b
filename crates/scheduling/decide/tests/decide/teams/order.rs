//! Whose turn it is: teams below their guarantee, then those with the least use by weight.

use tessera_cluster::Object;
use tessera_decide::Decider;

use super::*;

#[test]
fn the_team_with_the_least_use_by_weight_is_next() {
    for (weight, expected) in [(1, 2), (3, 3)] {
        let mut fed = teams(4, &["vision", "nlp"]);
        fed.quota("vision", json!({ "weight": weight }));
        fed.quota("nlp", json!({}));
        // Older pods of the other team would all go first.
        for number in 0..4 {
            fed.ask_in("nlp", &format!("n{number}"), "gpu", 1, |_| {});
        }
        for number in 0..4 {
            fed.ask_in("vision", &format!("v{number}"), "gpu", 1, |pod| {
                pod["metadata"]["creationTimestamp"] = json!("1970-01-01T00:15:00Z");
            });
        }
        let started = fed.start();
        let of_vision = started.iter().filter(|name| name.starts_with('v')).count();
        assert_eq!((started.len(), of_vision), (4, expected), "{started:?}");
    }
}

#[test]
fn a_team_below_its_guarantee_goes_first_whatever_its_use() {
    let mut fed = teams(4, &["vision", "nlp"]);
    fed.quota("vision", cards(3, None));
    fed.ask_in("vision", "v0", "gpu", 2, |_| {});
    assert_eq!(fed.start(), ["v0"]);
    fed.ask_in("nlp", "n0", "gpu", 2, |_| {});
    fed.ask_in("vision", "v1", "gpu", 1, |_| {});
    assert_eq!(fed.start(), ["v1"], "the rest is too little for the other");
}

#[test]
fn namespaces_in_no_quota_are_one_team() {
    let mut fed = teams(4, &["vision", "nlp", "web"]);
    fed.quota("vision", json!({}));
    for (team, first) in [("nlp", "n"), ("web", "w"), ("vision", "v")] {
        for number in 0..2 {
            fed.ask_in(team, &format!("{first}{number}"), "gpu", 1, |_| {});
        }
    }
    let started = fed.start();
    assert_eq!(started.iter().filter(|name| name.starts_with('v')).count(), 2, "{started:?}");
}

/// Of two nodes with three cards each, one has cards of three times the price. A team uses two of the other, and the other team one of
/// these: now, or long ago.
#[test]
fn a_dear_card_counts_as_several() {
    for (price, is_past, expected) in
        [(None, false, "n"), (Some(3.0), false, "v"), (None, true, "n"), (Some(3.0), true, "v")]
    {
        let mut fed = Fed::with_nodes(&[]);
        let decider = std::mem::replace(&mut fed.decider, Decider::new(DRIVER, share_ids()));
        let prices = [("L4", 1.0)].into_iter().chain(price.map(|price| ("H100", price)));
        fed.decider =
            decider.with_prices(&prices.map(|(product, price)| (product.to_owned(), price)).collect());
        for (name, cards, product) in [("a", 1, "L4"), ("cheap", 3, "L4"), ("dear", 3, "H100")] {
            fed.apply(node(name));
            for slice in slices(name, cards, managed()) {
                let Object::ResourceSlice(mut slice) = slice else { panic!("a slice") };
                for device in slice.spec.devices.iter_mut().flatten() {
                    let text = read(json!({ "string": product }));
                    device.attributes.as_mut().unwrap().insert("productName".to_owned(), text);
                }
                fed.apply(Object::from(slice));
            }
        }
        fed.now = Time::from_secs(1_000);
        fed.decider.lead(fed.now, "one");
        assert_eq!(fed.decide(), [Intent::ListClaims]);
        fed.listed();
        for team in ["vision", "nlp"] {
            fed.namespace(team, team);
        }
        fed.quota("vision", json!({}));
        fed.quota("nlp", json!({}));
        let on = |node: &'static str| {
            move |pod: &mut Value| pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node })
        };
        fed.ask_in("vision", "v1", "gpu", 2, on("cheap"));
        fed.ask_in("nlp", "n1", "gpu", 1, on("dear"));
        assert_eq!(fed.start(), ["n1", "v1"]);
        fed.decide();
        if is_past {
            fed.pass(6 * 3600);
            fed.decide();
            fed.end("vision", "v1");
            fed.end("nlp", "n1");
            fed.decide();
        }
        for (team, name) in [("vision", "v2"), ("nlp", "n2")] {
            fed.ask_in(team, name, "gpu", 1, on("a"));
        }
        assert_eq!(fed.start(), [format!("{expected}2")], "{price:?}, {is_past}");
        // Amounts and hours are in cards.
        let quota = &fed.decider.quotas()["nlp"];
        let (hours, seconds) = (quota.hours.as_ref().unwrap(), if is_past { 6 * 3600 } else { 0 });
        assert_eq!(hours.card_seconds, seconds);
        assert_eq!(hours.models.get("H100").copied().unwrap_or_default(), seconds);
    }
}
