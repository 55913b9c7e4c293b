//! What is published of real, derived and random machines.

mod known_machines;
mod topology;
