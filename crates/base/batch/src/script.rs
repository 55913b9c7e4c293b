use crate::error::BatchError;

/// Beginning of a line with options.
const DIRECTIVE: &str = "#SBATCH";

/// Most bytes of a script: a ConfigMap has no more than 1 MiB in all.
const MOST_BYTES: usize = 1_000_000;

/// A batch script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Name of its file.
    pub name: String,
    /// Its lines, ended by line feeds alone.
    pub text: String,
}

impl Script {
    /// Carriage returns of a text from Windows are taken away: no shell reads them.
    ///
    /// # Errors
    /// No interpreter in the first line, or too long.
    pub fn new(name: &str, text: &str) -> Result<Self, BatchError> {
        if !text.starts_with("#!") {
            return Err(BatchError::NoInterpreter);
        }
        if text.len() > MOST_BYTES {
            return Err(BatchError::Value(format!("the script has more than {MOST_BYTES} bytes")));
        }
        Ok(Script { name: name.to_owned(), text: text.replace("\r\n", "\n") })
    }

    /// Of `--wrap`.
    #[must_use]
    pub fn wrap(line: &str) -> Self {
        Script { name: "wrap".to_owned(), text: format!("#!/bin/sh\n{line}\n") }
    }

    /// The lines with options before the first command: number of each, and its words.
    pub(crate) fn directives(&self) -> Vec<Result<(usize, Vec<String>), BatchError>> {
        let lines = self.text.lines().enumerate();
        let head = lines.take_while(|(_, line)| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let directives = head.filter_map(|(index, line)| Some((index + 1, line.strip_prefix(DIRECTIVE)?)));
        directives
            .map(|(line, text)| match shlex::split(text) {
                Some(words) => Ok((line, words)),
                None => Err(BatchError::Quote.at(line)),
            })
            .collect()
    }
}
