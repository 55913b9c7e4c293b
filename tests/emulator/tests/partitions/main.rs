//! The rules of partitions, held to what is known of the hardware.

mod sequences;
mod valid_sets;
