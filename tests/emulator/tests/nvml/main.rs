//! The built library, loaded as every client loads it, in machines that `gpu-emulator` made.

mod events;
mod every_function;
mod facts;
mod faults;
mod machine;
mod mig;
mod robustness;
