//! How long kube-scheduler's late writes are awaited for a card that becomes managed.

use super::*;

/// A list of claims cannot cover kube-scheduler's later writes, whatever the reason for the list.
#[test]
fn a_list_that_comes_sooner_hands_no_card_over() {
    for handover in [5, 60] {
        let decider =
            tessera_decide::Decider::new(DRIVER, share_ids()).with_handover(Time::from_secs(handover));
        let mut fed = Fed { decider, now: Time::from_secs(1_000) };
        fed.apply(class());
        fed.apply(node("a"));
        slices("a", 1, managed()).into_iter().for_each(|slice| fed.apply(slice));
        fed.versioned("p", "gpu", 1, 5);
        fed.apply_pod(pod("p"));
        for later in [0, handover / 2, handover - 1] {
            fed.now = Time::from_secs(1_000 + later);
            // Each new leader requests a list.
            fed.decider.lead(fed.now, "one");
            assert!(fed.decide().contains(&Intent::ListClaims));
            fed.listed();
            assert_eq!(fed.allocates(), [], "{later} of {handover} s");
        }
        fed.now = Time::from_secs(1_000 + handover);
        assert_eq!(fed.decider.wake(), Some(fed.now));
        assert!(fed.decide().contains(&Intent::ListClaims));
        fed.listed();
        assert_eq!(fed.allocates().len(), 1, "after {handover} s");
    }
}
