//! `scontrol show hostnames` and `scontrol show job`.

use std::{env, ffi::OsString};

use anyhow::{Result, bail};

use crate::host_list;

pub fn main(arguments: &[OsString]) -> Result<u8> {
    let words: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let variable = |name: &str| env::var(name).unwrap_or_default();
    match words.as_slice() {
        // Slurm takes any beginning of the word.
        ["show", what, list @ ..] if what.len() > 4 && "hostnames".starts_with(what) && list.len() < 2 => {
            let list = list.first().map_or_else(|| variable("SLURM_JOB_NODELIST"), |list| (*list).to_owned());
            if list.is_empty() {
                bail!("SLURM_JOB_NODELIST is not set: name a list, such as node-[1-3]");
            }
            for name in host_list::expand(&list)? {
                println!("{name}");
            }
        }
        ["show", "job" | "jobs" | "jobid", id @ ..] => {
            let own = variable("SLURM_JOB_ID");
            if own.is_empty() || id.first().is_some_and(|id| *id != own) {
                bail!("only the own job is known inside a job; kubectl gpu queue shows the others");
            }
            println!("JobId={own} JobName={}", variable("SLURM_JOB_NAME"));
            println!("   JobState=RUNNING");
            println!("   NodeList={}", variable("SLURM_JOB_NODELIST"));
            println!("   NumNodes={} NumTasks={}", variable("SLURM_NNODES"), variable("SLURM_NTASKS"));
        }
        _ => bail!("only `scontrol show hostnames [LIST]` and `scontrol show job` work inside a job"),
    }
    Ok(0)
}
