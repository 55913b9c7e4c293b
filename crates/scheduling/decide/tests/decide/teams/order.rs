//! Whose turn it is: teams below their guarantee, then those with the least use by weight.

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
