//! Makes emulated machines and lets things happen to them.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tessera_emulator::machine::{Options, build};
use tessera_emulator::{directory, hardware};

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes a machine.
    Create {
        /// Where.
        directory: PathBuf,
        /// Which.
        #[arg(long)]
        hardware: String,
        /// Another number of cards.
        #[arg(long)]
        cards: Option<usize>,
        /// Makes UUIDs differ between machines.
        #[arg(long, default_value = "")]
        seed: String,
    },
    /// Lists the machines.
    Hardware,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Create { directory, hardware, cards, seed } => {
            let machine = build::build(&Options { hardware, cards, seed, ..Options::default() })?;
            let executable = std::env::current_exe()?;
            let programs = executable.parent().context("gpu-emulator lies nowhere")?;
            directory::create(&directory, &machine, programs)?;
        }
        Command::Hardware => {
            for name in hardware::machine_names() {
                println!("{name}");
            }
        }
    }
    Ok(())
}
