//! Counter sets: with them the scheduler excludes conflicting use of a card, whole, partitioned and shared.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Counter, CounterSet, DeviceCounterConsumption};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tessera_api::{PciBusId, counter};

use crate::machine::Placement;
use crate::mig::{Engine, Grid, GridProfile};

/// The counter set of a card: one counter of 1 for each of its memory slices; the maximum number of instances for each profile
/// with a limit of its own; and the engines liable to run out although both allow more.
pub fn of_card(card: PciBusId, grid: &Grid<'_>) -> CounterSet {
    let slices = (0..grid.memory_slices).map(|slice| (counter::memory_slice(slice), count(1)));
    let limited = grid.profiles.iter().filter(|profile| profile.is_limited);
    let limited =
        limited.map(|profile| (counter::instances(&profile.spelling), count(profile.facts.max_instances)));
    let engines = grid.scarce_engines.iter().map(|(engine, total)| (engine_counter(*engine), count(*total)));
    let counters: BTreeMap<String, Counter> = slices.chain(limited).chain(engines).collect();
    CounterSet { name: counter::set_name(card), counters }
}

/// All counters of a set: the consumption of a whole card, and of its shares.
pub fn all_of(set: &CounterSet) -> DeviceCounterConsumption {
    consumption(&set.name, set.counters.clone())
}

/// Consumption of an instance of a profile at a placement.
pub fn of_partition(
    set: &CounterSet,
    grid: &Grid<'_>,
    profile: &GridProfile<'_>,
    placement: Placement,
) -> DeviceCounterConsumption {
    let slices = (placement.start..placement.end()).map(|slice| (counter::memory_slice(slice), count(1)));
    let limited = profile.is_limited.then(|| (counter::instances(&profile.spelling), count(1)));
    let engines = grid
        .scarce_engines
        .iter()
        .map(|(engine, _)| (engine_counter(*engine), engine.of(profile.facts)))
        .filter(|(_, engines)| *engines > 0)
        .map(|(name, engines)| (name, count(engines)));
    consumption(&set.name, slices.chain(limited).chain(engines).collect())
}

/// Consumption of each of `parts` equal users of a placement's memory slices: together at most all of them.
pub fn part_of_slices(set: &CounterSet, placement: Placement, parts: usize) -> DeviceCounterConsumption {
    let share = match parts {
        0 | 1 => count(1),
        parts => Counter { value: Quantity(format!("{}m", (1000 / parts).max(1))) },
    };
    let slices =
        (placement.start..placement.end()).map(|slice| (counter::memory_slice(slice), share.clone()));
    consumption(&set.name, slices.collect())
}

/// Whether `consumption` is from this `set`, and within it.
pub fn covers(set: &CounterSet, consumption: &DeviceCounterConsumption) -> bool {
    let value = |counter: &Counter| counter.value.0.parse::<tessera_api::Quantity>().ok();
    set.name == consumption.counter_set
        && consumption.counters.iter().all(|(name, drawn)| {
            let available = set.counters.get(name).and_then(value);
            available.zip(value(drawn)).is_some_and(|(available, drawn)| drawn <= available)
        })
}

fn consumption(set: &str, counters: BTreeMap<String, Counter>) -> DeviceCounterConsumption {
    DeviceCounterConsumption { counter_set: set.to_owned(), counters, ..DeviceCounterConsumption::default() }
}

fn count(number: u32) -> Counter {
    // In the form returned by the API server.
    Counter { value: Quantity(tessera_api::Quantity::decimal(number.into()).to_string()) }
}

fn engine_counter(engine: Engine) -> String {
    match engine {
        Engine::Copy => counter::COPY_ENGINES,
        Engine::Decoder => counter::DECODERS,
        Engine::Encoder => counter::ENCODERS,
        Engine::Jpeg => counter::JPEG_ENGINES,
        Engine::Ofa => counter::OFA_ENGINES,
    }
    .to_owned()
}
