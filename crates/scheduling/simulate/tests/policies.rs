//! Every policy on a made-up trace. That none gives out what is not free is asserted wherever one is run.

#![allow(clippy::unwrap_used)]

use tessera_simulate::{Arrivals, Filling, PolicyName, Report, Steady, Trace};

fn trace() -> Trace {
    Trace::parse(include_str!("data/nodes.csv"), include_str!("data/pods.csv")).unwrap()
}

fn allocated(trace: &Trace, policy: PolicyName) -> f64 {
    let run = |seed| {
        let arrivals = Arrivals::up_to(trace, seed, 130).unwrap();
        let filling = Filling::run(trace, &arrivals, policy, seed);
        assert_eq!(filling, Filling::run(trace, &arrivals, policy, seed), "{policy} is not the same again");
        assert!(
            filling.allocated.is_sorted() && filling.allocated[0] > 50.0 && filling.allocated[3] <= 100.0
        );
        filling
    };
    Report::summary(&[1, 2, 3].map(run)).allocated_at.0[2]
}

#[test]
fn those_that_look_ahead_allocate_more() {
    let trace = trace();
    let all = PolicyName::ALL.map(|policy| (policy, allocated(&trace, policy)));
    let of = |name: PolicyName| all.iter().find(|(policy, _)| *policy == name).unwrap().1;
    assert!(of(PolicyName::TesseraBare) > of(PolicyName::Fgd), "{all:?}");
    assert!(of(PolicyName::TesseraBare) > of(PolicyName::BestFit), "{all:?}");
    assert!(of(PolicyName::BestFit) > of(PolicyName::Random), "{all:?}");
    assert!(of(PolicyName::Tessera) > of(PolicyName::Fgd), "{all:?}");
}

#[test]
fn what_leaves_makes_room() {
    let trace = trace();
    let low = Steady::run(&trace, PolicyName::FirstFit, 40.0, 1).unwrap();
    assert!((low.allocated - 40.0).abs() < 3.0, "all that is offered at a low load: {low:?}");
    let high = Steady::run(&trace, PolicyName::FirstFit, 150.0, 1).unwrap();
    assert!(high.allocated > low.allocated && high.refused > 20.0, "{high:?}");
}

#[test]
fn a_trace_that_would_never_fill_its_fleet_is_refused() {
    let pods = |line: &str| format!("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n{line}\n");
    let error = |pods: String| {
        let trace = Trace::parse(include_str!("data/nodes.csv"), &pods).unwrap();
        Arrivals::up_to(&trace, 1, 130).unwrap_err().to_string()
    };
    assert_eq!(error(pods("p,1000,1,0,0")), "no pod of the trace asks for cards");
    let few = format!("p,1,1,1,1\n{}", "p,1,1,0,0\n".repeat(100));
    assert!(error(pods(few.trim_end())).starts_with("the pods are too small"));
}

#[test]
fn a_trace_of_a_million_pods_ends_when_the_fleet_is_full() {
    let pods = "p,1000,1024,1,500\n".repeat(1_000_000);
    let trace = Trace::parse(
        include_str!("data/nodes.csv"),
        &format!("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n{pods}"),
    )
    .unwrap();
    assert_eq!((trace.pods().len(), trace.demands().len()), (1_000_000, 1));
    let mut placed = 0;
    let arrivals = Arrivals::up_to(&trace, 1, 130).unwrap();
    Filling::watched(&trace, &arrivals, PolicyName::TesseraBare, 1, &mut |_| placed += 1);
    assert!(placed < 3_000, "{placed}");
}
