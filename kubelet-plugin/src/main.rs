//! The plugin's process: command line, runtime, exit code.

use std::{
    ffi::OsString,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser as _;
use tessera_kube_util::{error_text::with_causes, logging, open_files, probe_command};
use tessera_kubelet_plugin::{
    options::Options,
    root_command,
    run::{metrics::Metrics, run},
};

/// Threads for tasks. The plugin mostly waits; heavy or blocking work has threads of its own.
const WORKERS: usize = 2;

/// Maximum number of threads for blocking calls (driver, disk). They end when idle.
const BLOCKING_THREADS: usize = 64;

/// How long blocking calls may delay the end of the process. A hanging driver must not.
const LAST_CALLS: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let started = Instant::now();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == probe_command::SUBCOMMAND) {
        return probe_command::main("kubelet-plugin probe", arguments);
    }
    if arguments.first().is_some_and(|first| first == root_command::SUBCOMMAND) {
        return root_command::main(arguments);
    }
    let options = Options::parse();
    let metrics = Metrics::new();
    let panics = metrics.panics.clone();
    let panicked = move || {
        panics.inc();
    };
    let logging = logging::install(&options.log_filter(), options.log_format, panicked);
    let result = logging.map_err(anyhow::Error::from).and_then(|()| {
        open_files::raise_limit();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(BLOCKING_THREADS)
            .enable_all()
            .build()?;
        let result = runtime.block_on(run(options, metrics, started));
        runtime.shutdown_timeout(LAST_CALLS);
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
