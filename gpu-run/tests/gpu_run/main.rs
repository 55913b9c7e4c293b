//! `gpu-run` as pods run it: several hosts on one machine, real processes.
//!
//! What is expected is from Slurm's documentation: srun(1) and sbatch(1) of 25.05; each test names the part.
#![allow(clippy::unwrap_used, missing_docs)]

mod alone;
mod ends;
mod hostile;
mod job;
mod scripts;
mod steps;
mod streams;
