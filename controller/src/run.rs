//! One replica of the controller, from start to end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use kube::Api;
use kube::api::ApiResource;
use tessera_api::gpu_pool::GpuPool;
use tessera_api::gpu_quota::GpuQuota;
use tessera_kube_util::client;
use tessera_kube_util::events::Events;
use tessera_kube_util::lease::{self, Leadership, LeaseOptions};
use tessera_kube_util::server_version;
use tessera_kube_util::signals::Signals;
use tessera_kube_util::tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::active_checks::ActiveChecks;
use crate::carry_out::{MayWrite, Writer};
use crate::claim_templates::ClaimTemplates;
use crate::clock::Clock;
use crate::decide_loop::{DecideLoop, PATIENCE};
use crate::extended_names::ExtendedNames;
use crate::fleet_page::{self, FleetPage};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::status_writer::StatusWriter;
use crate::watches::{KINDS, Watches};
use crate::{http, pool_status, quota_status, usage};

/// Length of the queue of observations; a full queue slows the watches down. A queued ResourceSlice takes some 200 KiB.
const QUEUE: usize = 64;

/// Runs a replica until a signal to end.
///
/// # Errors
/// If the options are unusable, or a part of the program ended by itself.
pub async fn run(options: Options, metrics: Metrics) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot handle signals")?;
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(shutdown.clone());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), driver = options.driver_name, "controller starting");

    let listeners = http::Listeners::bind(options.http_address, options.probe_socket.as_deref()).await?;
    let client = client::connect(client::configuration(options.kubeconfig.as_deref()).await?)
        .context("cannot make a Kubernetes client")?;
    let (missing_sender, missing) = watch::channel(BTreeSet::from(KINDS));
    let observed = http::Observed { metrics: metrics.clone(), missing: missing.clone() };
    tasks.spawn("the HTTP server", listeners.serve(observed, shutdown.clone()));

    let (asks_sender, asks) = mpsc::channel(1);
    let (usages_sender, usages) = watch::channel(usage::Usages::default());
    let fleet = FleetPage::new(&options.driver_name, asks_sender, usages, options.prices.clone());
    let port = fleet_page::bind(options.fleet_address).await?;
    tasks.spawn("the peaks of claims", fleet.clone().keep_observed(shutdown.clone()));
    let refused = metrics.http_connections_refused.clone();
    let page = fleet_page::serve(port, fleet.clone(), client.clone(), refused, shutdown.clone());
    tasks.spawn("the fleet page", page);
    if let Some(plugins) = &options.plugins {
        let pods = (options.namespace.clone(), plugins.clone());
        tasks.spawn("the use of cards", usage::run(client.clone(), pods, usages_sender, shutdown.clone()));
    }

    let holder = options.pod_name.clone().unwrap_or_else(|| format!("process-{}", std::process::id()));
    let (leadership_sender, leadership) = watch::channel(Leadership::Following { holder: None });
    let may_write: MayWrite = {
        let leadership = leadership.clone();
        Arc::new(move || leadership.borrow().may_write(Instant::now()))
    };
    let store = options
        .history
        .as_ref()
        .map(|name| fleet_page::Store::new(client.clone(), &options.namespace, name, may_write.clone()));
    tasks.spawn(
        "the history of the fleet",
        fleet.clone().keep_history(missing, store, metrics.clone(), shutdown.clone()),
    );
    // Released only after all writing tasks have ended.
    let give_up = CancellationToken::new();
    let lease = LeaseOptions::new(&options.namespace, &options.lease_name, &holder);
    let election = tokio::spawn(lease::follow(client.clone(), lease, leadership_sender, give_up.clone()));

    let (seen_sender, seen) = mpsc::channel(QUEUE);
    let clock = Clock::start();
    let (kubernetes_sender, kubernetes) = watch::channel(None);
    tasks.spawn(
        "the API server's version",
        server_version::follow(client.clone(), kubernetes_sender, shutdown.clone()),
    );
    let (list_claims, claims_asked) = watch::channel(0);
    let watches = Watches {
        client: client.clone(),
        seen: seen_sender,
        clock,
        follows_quotas: options.quotas,
        claims_asked,
    };
    tasks.spawn("the watches", watches.run(shutdown.clone()));
    let (carried_sender, carried) = mpsc::unbounded_channel();
    let events = Events::start(client.clone(), &format!("{}/controller", options.driver_name), &holder);
    let (summaries_sender, summaries) = watch::channel(None);
    let decide = DecideLoop {
        seen,
        carried,
        asks,
        writer: Writer::new(
            client.clone(),
            events.clone(),
            carried_sender,
            may_write.clone(),
            metrics.clone(),
            list_claims,
        ),
        kubernetes,
        leadership,
        summaries: summaries_sender,
        missing: missing_sender,
        patience: PATIENCE,
        metrics,
        clock,
        driver_name: options.driver_name.clone(),
        replica: holder.clone(),
        handover: options.handover,
        heal_after: options.heal_after,
        gather_after: options.gather_after,
        quota_grace: options.quota_grace,
        quota_half_life: options.quota_half_life,
        quota_exempt: options.quota_exempt.clone(),
        quota_reclaim_to: options.quota_reclaim_to,
        per_card_hour: fleet.per_card_hour(),
        partial_timeout: options.gang_partial_timeout,
        topology_keys: options.topology_keys.clone(),
        schedulers: options.schedulers.clone(),
    };
    tasks.spawn("the decision loop", decide.run(shutdown.clone()));
    if options.convert_extended_resources {
        let (client, may_write) = (client.clone(), may_write.clone());
        let templates = ClaimTemplates { client, events: events.clone(), may_write };
        tasks.spawn("the templates of converted pods", templates.run(shutdown.clone()));
    }
    let checks = ActiveChecks { client: client.clone(), may_write: may_write.clone() };
    tasks.spawn("the condition of Kueue's AdmissionChecks", checks.run(shutdown.clone()));
    let names = ExtendedNames { client: client.clone(), events, may_write: may_write.clone() };
    tasks.spawn("the look for forgotten resource names", names.run(shutdown.clone()));
    let pools = StatusWriter {
        objects: Api::all_with(client.clone(), &ApiResource::erase::<GpuPool>(&())),
        kind: "GpuPools",
        summaries: |known| &known.pools,
        status: pool_status::status,
    };
    let of_pools = pools.run(summaries.clone(), may_write.clone(), shutdown.clone());
    tasks.spawn("the status of pools", of_pools);
    if options.quotas {
        let quotas = StatusWriter {
            objects: Api::all_with(client, &ApiResource::erase::<GpuQuota>(&())),
            kind: "GpuQuotas",
            summaries: |known| &known.quotas,
            status: quota_status::status,
        };
        tasks.spawn("the status of quotas", quotas.run(summaries, may_write, shutdown.clone()));
    }

    tokio::select! {
        signal = signals.next() => tracing::info!(signal, "ending"),
        () = shutdown.cancelled() => {}
    }
    shutdown.cancel();
    let result = tokio::select! {
        ended = tasks.ended() => ended.map_err(anyhow::Error::from),
        () = tokio::time::sleep(options.shutdown_timeout) => {
            tracing::warn!(running = tasks.running(), "not everything ended in time");
            Ok(())
        }
        signal = signals.next() => {
            tracing::warn!(signal, "second signal: ending at once");
            return Ok(());
        }
    };
    give_up.cancel();
    match election.await {
        Ok(Ok(())) => result,
        Ok(Err(error)) => Err(error).context("cannot take part in the election"),
        Err(panic) => Err(panic).context("the election ended by a panic"),
    }
}
