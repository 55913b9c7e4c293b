//! The command for confidential computing mode of a machine's cards.

use clap::Args;

use super::{Directory, Target};
use crate::state;

#[derive(Args)]
pub(super) struct ConfCompute {
    #[command(flatten)]
    directory: Directory,
    /// Whether all cards are in that mode, and whether they accept work.
    #[arg(long, value_enum)]
    mode: state::ConfCompute,
}

pub(super) fn conf_compute(arguments: &ConfCompute) -> anyhow::Result<()> {
    Target::open(&arguments.directory.directory)?.update(|state| {
        state.conf_compute = arguments.mode;
        Ok(())
    })
}
