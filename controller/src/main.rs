//! The controller's process: command line, runtime, exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use tessera_controller::metrics::Metrics;
use tessera_controller::options::{Command, Options};
use tessera_controller::{run, ungate};
use tessera_kube_util::error_text::with_causes;
use tessera_kube_util::{client, logging, probe_command};

/// Worker threads: one decides, the other reads and writes.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == probe_command::SUBCOMMAND) {
        return probe_command::main("controller probe", arguments);
    }
    let options = Options::parse();
    let metrics = Metrics::new();
    let panics = metrics.panics.clone();
    let panicked = move || {
        panics.inc();
    };
    let result = logging::install(&options.log_filter(), options.log_format, panicked)
        .map_err(anyhow::Error::from)
        .and_then(|()| {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
            runtime.block_on(async {
                match &options.command {
                    None => run::run(options, metrics).await,
                    Some(Command::Ungate(ungate)) => {
                        let configuration = client::configuration(options.kubeconfig.as_deref()).await?;
                        ungate::run(kube::Client::try_from(configuration)?, &ungate.bindings).await
                    }
                }
            })
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
