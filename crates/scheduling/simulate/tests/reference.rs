//! The policy as it was found: every choice of the research program on a made-up trace, and on arrivals that come and go.
//!
//! `data/placements.txt` is what that program (`rustc -O nvp.rs`, `learn=1`) printed for `data/nodes.csv` and `data/pods.csv`: by
//! arrival the node, and the card for pods that ask for one; `-` where no node had room. For arrivals with departures (`churn=95`)
//! the pods that leave were made to do so before plans are made for the next arrival, and what was seen long ago to fade, as is the case
//! here.

#![allow(clippy::unwrap_used)]

use tessera_placement::packing::Place;
use tessera_simulate::{Arrivals, Filling, PolicyName, Steady, Trace};

fn trace() -> Trace {
    Trace::parse(include_str!("data/nodes.csv"), include_str!("data/pods.csv")).unwrap()
}

/// The recorded lines of one kind, each with its seed.
fn recorded(kind: &str) -> Vec<(u64, Vec<&'static str>)> {
    let mut found: Vec<(&str, u64, Vec<&str>)> = Vec::new();
    for line in include_str!("data/placements.txt").lines() {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            found.push((words.next().unwrap(), words.next().unwrap().parse().unwrap(), Vec::new()));
        }
        found.last_mut().unwrap().2.extend(words);
    }
    found.into_iter().filter(|line| line.0 == kind).map(|(_, seed, places)| (seed, places)).collect()
}

/// In the form of the recording.
fn written(place: Option<Place>, is_of_one: bool) -> String {
    match place {
        None => "-".to_owned(),
        Some(place) if is_of_one => format!("{}/{}", place.node, place.cards.iter().next().unwrap()),
        Some(place) => place.node.to_string(),
    }
}

#[test]
fn every_pod_goes_where_it_went_there() {
    let trace = trace();
    let runs = recorded("fill");
    assert_eq!(runs.len(), 3);
    for (seed, wanted) in runs {
        let arrivals = Arrivals::up_to(&trace, seed, 130).unwrap();
        let mut found = Vec::new();
        let mut placed = |place| {
            let demand = trace.demand(arrivals.pods[found.len()]);
            found.push(written(place, demand.cards() == 1));
        };
        Filling::watched(&trace, &arrivals, PolicyName::TesseraBare, seed, &mut placed);
        // The end of a run is where the next pod would ask for too much; there the last few may differ.
        assert!(
            wanted.len() > 700 && found.len().abs_diff(wanted.len()) < 20,
            "{} {}",
            found.len(),
            wanted.len()
        );
        let differs = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        assert_eq!(differs, None, "seed {seed}");
    }
}

#[test]
fn and_so_with_departures() {
    let trace = trace();
    for (seed, wanted) in recorded("steady") {
        let mut found = Vec::new();
        let mut placed = |place: Option<Place>| {
            if let Some(wanted) = wanted.get(found.len()) {
                found.push(written(place, wanted.contains('/')));
            }
        };
        let steady = Steady::watched(&trace, PolicyName::TesseraBare, 95.0, seed, &mut placed).unwrap();
        assert_eq!(wanted.len(), 4000);
        assert_eq!(found.iter().zip(&wanted).position(|(found, wanted)| found != wanted), None);
        // What the program printed at the end of the 80,000.
        assert!((steady.allocated - 78.93).abs() < 0.005, "{steady:?}");
        assert!((steady.refused - 18.285).abs() < 0.0005, "{steady:?}");
    }
}
