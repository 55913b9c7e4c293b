//! Decisions for cards with and without MIG, foreign instances, and orders waiting for a reset.

use std::collections::BTreeSet;

use tessera_inventory::layout::Layout;
use tessera_nvml::{ComputeInstance, MigMode, Placement};

use super::*;

const ON: MigMode = MigMode { current: true, pending: true };
const OFF: MigMode = MigMode { current: false, pending: false };
const NAME: &str = "all-balanced";

fn planned(start: u32) -> PlannedInstance {
    PlannedInstance { placement: Placement { start, size: 2 }, profile_id: 14, profile: "2g.20gb".into() }
}

fn instance(id: u32, start: u32) -> GpuInstance {
    let placement = Placement { start, size: 2 };
    let uuid = Some(format!("MIG-{id}"));
    let compute = ComputeInstance {
        id: 0,
        profile_id: 1,
        placement: Placement { start: 0, size: 2 },
        multiprocessors: None,
        uuid,
    };
    GpuInstance { id, profile_id: 14, placement, compute_instances: vec![compute] }
}

fn fixed(starts: &[u32]) -> Desired {
    Desired::Fixed(Layout { instances: starts.iter().map(|start| planned(*start)).collect() })
}

fn record(starts: &[u32], mode_switched: bool) -> LayoutRecord {
    let planned: Vec<_> = starts.iter().map(|start| planned(*start)).collect();
    LayoutRecord::new(NAME, recorded(&planned), mode_switched)
}

fn seen(mode: MigMode, instances: Vec<GpuInstance>) -> Seen {
    Seen { uuid: "GPU-1".into(), mode, switch_needs_reset: false, instances, clients: BTreeSet::new() }
}

fn work(decision: Decision) -> Work {
    match decision {
        Decision::Do(work) => *work,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_empty_card_is_laid_out() {
    let work = work(decide(NAME, &fixed(&[0, 4]), &seen(OFF, vec![]), None, &[]));
    assert_eq!((work.destroy.len(), work.switch), (0, Some(true)));
    assert_eq!(work.create, [planned(0), planned(4)]);
    assert_eq!(work.intent, record(&[0, 4], true));
    assert_eq!(work.complete, Some(record(&[0, 4], true)));
}

#[test]
fn what_is_right_is_left_alone() {
    let there = seen(ON, vec![instance(3, 0), instance(5, 4)]);
    let own = record(&[0, 4], true);
    assert_eq!(
        decide(NAME, &fixed(&[0, 4]), &there, Some(&own), &["a claim".into()]),
        Decision::Done(Some(own))
    );
    // An administrator made exactly these instances, so they stay theirs.
    assert_eq!(decide(NAME, &fixed(&[0, 4]), &there, None, &[]), Decision::Done(None));
    assert_eq!(decide(NAME, &Desired::Untouched, &there, None, &[]), Decision::Done(None));
    assert_eq!(decide(NAME, &Desired::OnDemand, &seen(OFF, vec![]), None, &[]), Decision::Done(None));
    assert_eq!(decide(NAME, &Desired::Off, &seen(OFF, vec![]), None, &[]), Decision::Done(None));
}

#[test]
fn of_a_layout_that_changes_only_the_difference_is_done() {
    let own = record(&[0, 2], true);
    let there = seen(ON, vec![instance(3, 0), instance(4, 2)]);
    let work = work(decide(NAME, &fixed(&[2, 4]), &there, Some(&own), &[]));
    assert_eq!((work.destroy, work.create, work.switch), (vec![instance(3, 0)], vec![planned(4)], None));
    // While the work runs, old and new instances belong to the layout.
    assert_eq!(work.intent, record(&[0, 2, 4], true));
    assert_eq!(work.complete, Some(record(&[2, 4], true)));
}

#[test]
fn work_that_was_cut_off_goes_on() {
    let intent = record(&[0, 4], true);
    let mut half = instance(3, 0);
    half.compute_instances.clear();
    let work = work(decide(NAME, &fixed(&[0, 4]), &seen(ON, vec![half.clone()]), Some(&intent), &[]));
    assert_eq!((work.destroy, work.create), (vec![half], vec![planned(0), planned(4)]));
}

#[test]
fn nothing_is_done_under_claims_clients_and_others_partitions() {
    let wanted = fixed(&[0]);
    let claims = decide(NAME, &wanted, &seen(OFF, vec![]), None, &["default/train (1)".into()]);
    let Decision::Wait(claims) = claims else { panic!("{claims:?}") };
    assert!(claims.may_pass() && claims.to_string().contains("default/train"));

    let clients = Seen { clients: (1..=9).collect(), ..seen(OFF, vec![]) };
    let Decision::Wait(clients) = decide(NAME, &wanted, &clients, None, &[]) else { panic!() };
    assert!(clients.may_pass());
    assert_eq!(clients.to_string(), "in use by process 1, 2, 3, 4, 5, 4 more");

    for desired in [&wanted, &Desired::Off] {
        let foreign = decide(NAME, desired, &seen(ON, vec![instance(3, 6)]), None, &[]);
        let Decision::Wait(foreign) = foreign else { panic!("{foreign:?}") };
        assert!(!foreign.may_pass() && foreign.to_string().contains("3 at 6"), "{foreign}");
    }
    // If nothing is wanted, others' instances are not in the way.
    assert_eq!(
        decide(NAME, &Desired::OnDemand, &seen(ON, vec![instance(3, 6)]), None, &[]),
        Decision::Done(None)
    );
}

#[test]
fn a_layout_that_is_wanted_no_more_goes_and_the_mode_with_it() {
    let there = seen(ON, vec![instance(3, 0)]);
    for desired in [Desired::Untouched, Desired::OnDemand, Desired::Off] {
        let own = record(&[0], true);
        let work = work(decide(NAME, &desired, &there, Some(&own), &[]));
        assert_eq!((work.destroy.len(), work.switch, work.create.len()), (1, Some(false), 0), "{desired:?}");
        assert_eq!((work.intent, work.complete), (record(&[0], true), None));
    }
    let own = record(&[0], false);
    let kept = work(decide(NAME, &Desired::Untouched, &there, Some(&own), &[]));
    assert_eq!(kept.switch, None, "the mode was on before");
    let beside = seen(ON, vec![instance(3, 0), instance(5, 4)]);
    let own = record(&[0], true);
    let beside = work(decide(NAME, &Desired::Untouched, &beside, Some(&own), &[]));
    assert_eq!((beside.destroy, beside.switch), (vec![instance(3, 0)], None), "others need it");
}

#[test]
fn a_card_that_needs_a_reset_gets_the_order_once() {
    let ampere = |mode| Seen { switch_needs_reset: true, ..seen(mode, vec![]) };
    let ordered = work(decide(NAME, &fixed(&[0]), &ampere(OFF), None, &[]));
    assert_eq!((ordered.switch, ordered.intent.mode_switched), (Some(true), true));
    assert_eq!(ordered.ordered, Some(record(&[], true)), "remembered until the reset and after it");
    let waiting = MigMode { current: false, pending: true };
    assert_eq!(decide(NAME, &fixed(&[0]), &ampere(waiting), None, &[]), Decision::NeedsReset { on: true });
    assert_eq!(work(decide(NAME, &fixed(&[0]), &ampere(ON), None, &[])).create.len(), 1);
    assert_eq!(work(decide(NAME, &Desired::OnDemand, &ampere(OFF), None, &[])).switch, Some(true));
    // A pending mode switch no longer wanted is taken back.
    assert_eq!(work(decide(NAME, &Desired::Off, &ampere(waiting), None, &[])).switch, Some(false));
}

/// The mode of an Ampere card outlives its partitions, so the record of the layout's switch must too.
#[test]
fn a_mode_that_needs_a_reset_is_ordered_off_when_its_layout_goes() {
    let ampere = |mode, instances| Seen { switch_needs_reset: true, ..seen(mode, instances) };
    let going = MigMode { current: true, pending: false };
    let made = work(decide(NAME, &fixed(&[0]), &ampere(ON, vec![]), Some(&record(&[], true)), &[]));
    assert_eq!(made.complete, Some(record(&[0], true)));

    let off = work(decide(
        NAME,
        &Desired::Untouched,
        &ampere(ON, vec![instance(3, 0)]),
        made.complete.as_ref(),
        &[],
    ));
    assert_eq!((off.destroy.len(), off.switch), (1, Some(false)));
    assert_eq!(off.ordered, Some(record(&[], true)));
    let waits = decide(NAME, &Desired::Untouched, &ampere(going, vec![]), off.ordered.as_ref(), &[]);
    assert_eq!(waits, Decision::NeedsReset { on: false });
    let gone = decide(NAME, &Desired::Untouched, &ampere(OFF, vec![]), off.ordered.as_ref(), &[]);
    assert_eq!(gone, Decision::Done(None));

    // A layout removed before its reset takes its order back.
    let waiting = MigMode { current: false, pending: true };
    let back =
        work(decide(NAME, &Desired::Untouched, &ampere(waiting, vec![]), Some(&record(&[], true)), &[]));
    assert_eq!((back.switch, back.complete), (Some(false), None));

    // Partitions on demand and somebody else's need the mode; the layout's switch is still recorded afterwards.
    let own = record(&[0], true);
    let there = ampere(ON, vec![instance(3, 0)]);
    let kept = work(decide(NAME, &Desired::OnDemand, &there, Some(&own), &[]));
    assert_eq!((kept.switch, kept.complete), (None, Some(record(&[], true))));
    for desired in [Desired::OnDemand, Desired::Untouched] {
        let there = ampere(ON, vec![instance(7, 4)]);
        let kept = decide(NAME, &desired, &there, Some(&record(&[], true)), &[]);
        assert_eq!(kept, Decision::Done(Some(record(&[], true))), "{desired:?}");
    }
    // A mode on, or ordered, before is an administrator's.
    assert_eq!(decide(NAME, &Desired::Untouched, &ampere(ON, vec![]), None, &[]), Decision::Done(None));
    let theirs = work(decide(NAME, &fixed(&[0]), &ampere(ON, vec![]), None, &[]));
    assert_eq!(theirs.complete, Some(record(&[0], false)));
}
