//! The decision loop: its proposals, and its behaviour after failures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod choice;
mod costly_selectors;
mod gangs;
mod gates;
mod gather;
mod healing;
mod idle;
// Included by path: the crate pulls in emulated hardware and an API server.
#[path = "../../../../../tests/fakes/src/known_machines.rs"]
#[allow(dead_code, missing_docs)]
mod known_machines;
mod known_nodes;
mod kueue;
mod leader;
mod looks;
mod machines;
mod managed;
mod objects;
mod overlaps;
mod overuse;
mod pools;
mod room;
mod rounds;
mod simulation;
mod taint_rules;
mod teams;
mod unplaced;
mod worth;
