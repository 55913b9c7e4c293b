//! A guarantee of a parent is for its children together.

use serde_json::json;

use super::judged_anew::ending;
use super::*;

/// A parent with this guarantee, its children with theirs, and a team of another parent. The first child borrows `used` of six cards.
fn family(guaranteed: u32, children: [u32; 2], used: usize) -> Fed {
    let mut fed = teams(6, &["vision", "nlp", "web"]);
    let parent = json!({ "metadata": { "name": "research" }, "spec": cards(guaranteed, None) });
    fed.apply(read::<GpuQuota>(parent).into());
    for (child, guaranteed) in ["nlp", "vision"].into_iter().zip(children) {
        let mut spec = cards(guaranteed, None);
        spec["parent"] = json!("research");
        fed.quota(child, spec);
    }
    for number in 0..used {
        fed.ask_in("nlp", &format!("n{number}"), "gpu", 1, |_| {});
    }
    assert_eq!(fed.start().len(), used);
    fed
}

/// The victims of pods of one card.
fn victims(fed: &mut Fed, namespace: &str, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    fed.decide();
    for number in 0..count {
        fed.ask_in(namespace, &format!("{namespace}-{number}"), "gpu", 1, |_| {});
        fed.pass(100);
        let victims = fed.takes();
        for victim in &victims {
            let of = if victim.starts_with('n') { "nlp" } else { "web" };
            fed.end(of, victim);
        }
        all.extend(victims);
        fed.start();
    }
    all
}

#[test]
fn others_take_back_what_is_above_the_parents_guarantee_alone() {
    for (guaranteed, expected) in [(0, 3), (4, 2), (6, 0)] {
        let mut fed = family(guaranteed, [0, 0], 6);
        fed.quota("web", cards(3, None));
        assert_eq!(victims(&mut fed, "web", 4).len(), expected, "guaranteed: {guaranteed}");
    }
}

/// Two of six pods are ending, and four are guaranteed.
#[test]
fn pods_that_are_ending_fill_no_guarantee_of_their_parent() {
    let mut fed = family(4, [0, 0], 6);
    fed.quota("web", cards(3, None));
    fed.decide();
    fed.pass(100);
    for name in ["n0", "n1"] {
        ending(&mut fed, "nlp", name);
    }
    fed.ask_in("web", "w1", "gpu", 3, |_| {});
    assert_eq!(fed.takes(), [""; 0]);
}

#[test]
fn a_sibling_takes_back_inside_the_parents_guarantee() {
    let mut fed = family(6, [0, 2], 6);
    assert_eq!(victims(&mut fed, "vision", 3).len(), 2);
}

/// Children without a guarantee of their own have that of their parent.
#[test]
fn a_child_takes_back_for_its_parent() {
    for guaranteed in [0, 2] {
        let mut fed = family(guaranteed, [0, 0], 1);
        fed.quota("web", cards(0, None));
        for number in 0..5 {
            fed.ask_in("web", &format!("w{number}"), "gpu", 1, |_| {});
        }
        assert_eq!(fed.start().len(), 5);
        let victims = victims(&mut fed, "vision", 3);
        // One of two cards is its sibling's.
        assert_eq!(victims.len(), guaranteed.saturating_sub(1) as usize, "{victims:?}");
        assert!(victims.iter().all(|victim| victim.starts_with('w')), "{victims:?}");
    }
}

#[test]
fn children_of_a_parent_below_its_guarantee_go_first() {
    for (guaranteed, expected) in [(0, "w1"), (4, "vision-1")] {
        let mut fed = family(guaranteed, [0, 0], 3);
        fed.quota("web", cards(0, None));
        fed.ask_in("web", "w1", "gpu", 3, |_| {});
        fed.ask_in("vision", "vision-1", "gpu", 1, |_| {});
        assert_eq!(fed.start(), [expected], "guaranteed: {guaranteed}");
    }
}
