//! Broken traces: an error with a line, or a trace that can be simulated.

use tessera_simulate::{Arrivals, Filling, PolicyName, Random, Trace};

/// The first lines of a file, with some bytes changed, lost or doubled.
fn broken(text: &str, random: &mut Random) -> String {
    let mut bytes: Vec<u8> = text.lines().take(20).collect::<Vec<&str>>().join("\n").into_bytes();
    for _ in 0..random.below(4) {
        let place = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[place] = b"0123456789,-|\n\r \"x"[random.below(18)],
            1 => drop(bytes.remove(place)),
            2 => bytes.insert(place, bytes[place]),
            _ => bytes.truncate(place + 1),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_broken_trace_is_refused_or_simulated() {
    let (nodes, pods) = (include_str!("data/nodes.csv"), include_str!("data/pods.csv"));
    let mut random = Random::new(5);
    let (mut refused, mut simulated) = (0, 0);
    for seed in 0..3_000 {
        match Trace::parse(&broken(nodes, &mut random), &broken(pods, &mut random)) {
            Err(error) => {
                assert!(error.to_string().starts_with("line ") && error.line <= 22, "{error}");
                refused += 1;
            }
            Ok(trace) => {
                let Ok(arrivals) = Arrivals::up_to(&trace, seed, 130) else { continue };
                let policy = PolicyName::ALL[seed as usize % PolicyName::ALL.len()];
                let filling = Filling::run(&trace, &arrivals, policy, seed);
                assert!(filling.allocated.iter().all(|part| (0.0..=100.0).contains(part)), "{filling:?}");
                assert!(
                    filling.fragmentation.iter().all(|part| (-1e-6..=100.0 + 1e-6).contains(part)),
                    "{filling:?}"
                );
                simulated += 1;
            }
        }
    }
    assert!(refused > 500 && simulated > 500, "{refused} {simulated}");
}
