//! Where log lines go: standard error, as text or JSON.

use std::{io, panic};

use tracing_subscriber::EnvFilter;

use crate::{metrics::Metrics, options::LogFormat};

/// Installs the subscriber, and a hook that logs panics like everything else.
///
/// `level` is a directive list that was checked before.
///
/// # Errors
/// When `level` is none after all, or a subscriber is installed already.
pub fn install(level: &str, format: LogFormat, metrics: &Metrics) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let installed = match format {
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&io::stderr());
            builder.with_ansi(colours).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(|error| anyhow::anyhow!("{error}"))?;
    let panics = metrics.panics.clone();
    panic::set_hook(Box::new(move |panic| {
        panics.inc();
        let thread = std::thread::current();
        tracing::error!(
            thread = thread.name().unwrap_or_default(),
            backtrace = %std::backtrace::Backtrace::capture(),
            "{panic}; this is a defect, please report it"
        );
    }));
    Ok(())
}
