//! CSV without quotes, columns by name.

use super::{LONGEST_LINE, Problem, TraceError};

/// Larger than any value of a real machine, and small enough for sums of many values.
const LARGEST: u64 = 1_000_000_000_000;

/// The columns and the current line.
#[derive(Debug, Default)]
pub struct Table {
    line: usize,
    columns: Vec<String>,
}

/// One line.
#[derive(Debug)]
pub struct Row<'t> {
    /// Line number, from 1.
    pub line: usize,
    columns: &'t [String],
    values: Vec<&'t str>,
}

impl Table {
    /// The next row. `None` for the first line, the header.
    pub fn row<'t>(
        &'t mut self,
        text: &'t str,
        needed: &[&'static str],
    ) -> Result<Option<Row<'t>>, TraceError> {
        self.line += 1;
        let line = self.line;
        let text = text.trim_end_matches(['\r', '\n']);
        let problem = |problem| TraceError { line, problem };
        if text.len() > LONGEST_LINE {
            return Err(problem(Problem::TooLong));
        }
        let values: Vec<&str> = text.split(',').map(str::trim).collect();
        if line == 1 {
            self.columns = values.into_iter().map(str::to_owned).collect();
            let missing = needed.iter().find(|column| !self.columns.iter().any(|name| name == *column));
            return missing.map_or(Ok(None), |column| Err(problem(Problem::NoColumn(column))));
        }
        if text.trim().is_empty() {
            return Err(problem(Problem::Empty));
        }
        if values.len() != self.columns.len() {
            return Err(problem(Problem::Values { found: values.len(), wanted: self.columns.len() }));
        }
        Ok(Some(Row { line, columns: &self.columns, values }))
    }

    /// Ends the file.
    pub fn end(&self, is_without: bool) -> Result<(), TraceError> {
        let error = TraceError { line: self.line + 1, problem: Problem::None };
        if is_without { Err(error) } else { Ok(()) }
    }
}

impl Row<'_> {
    /// The value; empty if the value or the column is missing.
    pub fn text_or_nothing(&self, column: &str) -> &str {
        let place = self.columns.iter().position(|name| name == column);
        place.map_or("", |place| self.values[place])
    }

    /// The value.
    pub fn text(&self, column: &'static str) -> Result<&str, Problem> {
        let value = self.text_or_nothing(column);
        if value.is_empty() { Err(Problem::Gap(column)) } else { Ok(value) }
    }

    /// The value as a number.
    pub fn number(&self, column: &'static str) -> Result<u64, Problem> {
        let value = self.text(column)?;
        if value.starts_with('-') && value[1..].parse::<f64>().is_ok() {
            return Err(Problem::Negative { column, value: value.to_owned() });
        }
        let number = value.parse().map_err(|_| Problem::NoNumber { column, value: value.to_owned() })?;
        if number > LARGEST { Err(Problem::TooLarge { column, value: number }) } else { Ok(number) }
    }

    /// The value as a number above 0.
    pub fn positive(&self, column: &'static str) -> Result<u64, Problem> {
        let number = self.number(column)?;
        if number == 0 { Err(Problem::Zero(column)) } else { Ok(number) }
    }
}
