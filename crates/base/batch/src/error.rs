/// Why options and script make no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// An error in a line of the script.
    #[error("line {line}: {source}")]
    Line {
        /// From 1.
        line: usize,
        /// The error.
        source: Box<BatchError>,
    },
    /// The script has no interpreter.
    #[error("this is not a batch script: its first line has to be an interpreter, as in #!/bin/bash")]
    NoInterpreter,
    /// The quotes of a line do not end.
    #[error("a quote does not end")]
    Quote,
    /// No option of sbatch.
    #[error("unknown option {0}")]
    Unknown(String),
    /// An option without a counterpart in Kubernetes.
    #[error("{option} is not possible here: {instead}")]
    Refused {
        /// As in `--dependency`.
        option: String,
        /// The way to do it here.
        instead: String,
    },
    /// An unreadable value, or an option without one.
    #[error("{0}")]
    Value(String),
    /// Contradicting options.
    #[error("{0}")]
    Conflict(String),
    /// No container image is named.
    #[error("no image: give --image, or have the ConfigMap gpu-run of the namespace name one")]
    NoImage,
    /// Neither a script nor a command.
    #[error("nothing to run: give a script, or a command after --")]
    NoProgram,
    /// The site's defaults cannot be read.
    #[error("ConfigMap gpu-run, key {key}: {message}")]
    Defaults {
        /// Key of the ConfigMap's data.
        key: &'static str,
        /// The mistake.
        message: String,
    },
}

impl BatchError {
    pub(crate) fn at(self, line: usize) -> Self {
        BatchError::Line { line, source: Box::new(self) }
    }

    pub(crate) fn refused(option: &str, instead: &str) -> Self {
        BatchError::Refused { option: option.to_owned(), instead: instead.to_owned() }
    }
}
