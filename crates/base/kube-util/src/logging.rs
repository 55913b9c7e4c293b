//! Logging to standard error, as text or JSON.

use std::{error::Error, io, panic};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The directives are invalid.
    #[error("cannot read what to log: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The program has installed a subscriber already.
    #[error("cannot log: {0}")]
    Installed(#[source] Box<dyn Error + Send + Sync>),
}

/// Installs the subscriber, and a hook that logs panics.
///
/// `level` is a list of directives, checked before; `panicked` is called at each panic.
///
/// # Errors
/// When `level` is invalid after all, or a subscriber is installed already.
pub fn install(
    level: &str,
    format: LogFormat,
    panicked: impl Fn() + Send + Sync + 'static,
) -> Result<(), LoggingError> {
    let filter = EnvFilter::builder().parse(level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let installed = match format {
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&io::stderr());
            builder.with_ansi(colours).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(LoggingError::Installed)?;
    panic::set_hook(Box::new(move |panic| {
        panicked();
        let thread = std::thread::current();
        tracing::error!(
            thread = thread.name().unwrap_or_default(),
            backtrace = %std::backtrace::Backtrace::capture(),
            "{panic}; this is a defect, please report it"
        );
    }));
    Ok(())
}

/// The directives for log lines. For a bare level, the Kubernetes client's own messages about failed requests are left
/// out: the requesting code logs more about them.
#[must_use]
pub fn log_filter(level: &str) -> String {
    match level.to_ascii_lowercase().as_str() {
        lower @ ("debug" | "trace") => format!("info,kube_client::client::builder=off,tessera={lower}"),
        lower @ ("error" | "warn" | "info") => format!("{lower},kube_client::client::builder=off"),
        _ => level.to_owned(),
    }
}

/// A list of directives, for clap.
///
/// # Errors
/// Describes the problem of the list.
pub fn log_level(text: &str) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::builder().parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_our_own_parts_leave_the_libraries_quiet() {
        assert_eq!(log_filter("debug"), "info,kube_client::client::builder=off,tessera=debug");
        assert_eq!(log_filter("WARN"), "warn,kube_client::client::builder=off");
        assert_eq!(log_filter("debug,h2=info"), "debug,h2=info");
    }
}
