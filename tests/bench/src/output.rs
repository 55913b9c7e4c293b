//! The form of a benchmark's results.

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

/// The form of the results.
#[derive(Clone, Copy, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

impl Output {
    /// Prints one line of JSON, or the tables that `table` prints.
    ///
    /// # Errors
    /// When the report cannot be written as JSON.
    pub fn print<R: Serialize>(self, report: &R, table: impl FnOnce(&R)) -> Result<()> {
        match self {
            Output::Json => println!("{}", serde_json::to_string(report)?),
            Output::Table => table(report),
        }
        Ok(())
    }
}
