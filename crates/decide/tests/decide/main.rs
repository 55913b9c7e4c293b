//! The decision loop: what it proposes, and what it does when things go wrong.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod choice;
mod gates;
mod healing;
mod leader;
mod managed;
mod objects;
mod overlaps;
mod pools;
mod room;
mod simulation;
mod taint_rules;
