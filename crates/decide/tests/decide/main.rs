//! The decision loop: what it proposes, and what it does when things go wrong.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod choice;
mod gates;
mod managed;
mod objects;
mod pools;
mod room;
mod simulation;
