//! The part based on the node's disk: the journal and everything derived from it, and the sockets.

use std::sync::Arc;

use kube::Client;
use tessera_inventory::{Machine, pool::Slice};
use tessera_publish::{Desired, PoolIdentity, PublishStatus};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use tessera_dra_kubelet::{Answers, ClaimReference, PreparedDevice};
use tessera_kube_util::{events::NodeEvents, retry::until_it_works, tasks::Tasks};

use super::metrics::Metrics;
use super::{
    health_report,
    pools::{DriverAway, PoolMaker},
};
use crate::card_history::CardHistory;
use crate::driver::{Driver, DriverCloser, LetGo};
use crate::{
    cdi::Roots,
    discovery::{Looks, OwnPartitions, ResetCards},
    gpu_pools::Resolution,
    layout::{LayoutKeeper, LayoutPace, LayoutStatus},
    options::Options,
    prepare::{DriverFilesState, PrepareError, PrepareOptions, Preparer},
    reset::{ResetKeeper, ResetPace},
};
use tessera_api::health::OwnRecovery;
use tessera_dra_kubelet::{
    claims::ClaimPreparer,
    device_health::HealthReport,
    registration::RegistrationState,
    server::{Instance, KubeletServer},
};

/// Inputs and outputs of the part.
pub struct NodePart {
    /// The command line.
    pub options: Options,
    /// The API server.
    pub client: Client,
    /// The driver library.
    pub hardware: Driver,
    /// Reason for a missing driver library.
    pub hardware_reason: watch::Receiver<Option<String>>,
    /// Whether the driver library is closed by request.
    pub let_go: LetGo,
    /// Whether an administrator has the cards let go of.
    pub is_let_go: watch::Receiver<bool>,
    /// Closes the driver library.
    pub closer: DriverCloser,
    /// Receives the cards reset by this process.
    pub reset_cards: ResetCards,
    /// Sends Events of the node.
    pub of_node: NodeEvents,
    /// The machine.
    pub machines: watch::Receiver<Option<Arc<Machine>>>,
    /// Receives the journal, which knows this driver's own partitions, once open.
    pub own_partitions: watch::Sender<Option<Arc<dyn OwnPartitions>>>,
    /// When the hardware was looked at.
    pub looks: watch::Receiver<Looks>,
    /// Makes discovery look again.
    pub look_again: Arc<Notify>,
    /// State of the publisher.
    pub published: watch::Receiver<PublishStatus>,
    /// Receives whether the node has the files of its driver.
    pub driver_files: watch::Sender<DriverFilesState>,
    /// The metrics.
    pub metrics: Metrics,
    /// Receives pools to publish.
    pub pools: watch::Sender<Option<Arc<Desired>>>,
    /// What was published when this instance began; `None` until known.
    pub published_before: watch::Receiver<Option<Arc<[Slice]>>>,
    /// Receives the registration state from the kubelet.
    pub registration: watch::Sender<RegistrationState>,
    /// Receives the preparer once created.
    pub preparer: watch::Sender<Option<Preparer>>,
    /// Set when the sockets listen.
    pub listening: watch::Sender<bool>,
    /// Obstacle to listening on the sockets, if any.
    pub trouble: watch::Sender<Option<String>>,
    /// The machine as resolved by the GPU pools.
    pub resolution: watch::Receiver<Option<Arc<Resolution>>>,
    /// The card seen at each address.
    pub history: Arc<CardHistory>,
    /// When to end.
    pub shutdown: CancellationToken,
}

impl NodePart {
    /// Runs until the shutdown, and then until running work on claims has ended.
    ///
    /// # Errors
    /// If the sockets' server ends by itself.
    pub async fn run(self, tasks: Tasks) -> anyhow::Result<()> {
        let shutdown = self.shutdown.clone();
        let Some(preparer) = shutdown.run_until_cancelled(self.open()).await else { return Ok(()) };
        let own_partitions: Arc<dyn OwnPartitions> = preparer.journal().clone();
        self.own_partitions.send_replace(Some(own_partitions));
        self.preparer.send_replace(Some(preparer.clone()));

        let layouts = self.keep_layouts(&preparer, &tasks);
        self.reset_cards(&preparer, &layouts, &tasks);
        let (health_sender, health) = watch::channel(None);
        let maker = PoolMaker {
            layouts,
            identity: PoolIdentity::new(&self.options.driver_name, &self.options.node_name),
            preparer: preparer.clone(),
            pools: self.pools.clone(),
            published_before: self.published_before.clone(),
            published: self.published.clone(),
            health: health_sender.clone(),
            policy: self.options.health_policy.clone(),
            looks: self.looks.clone(),
            registration: self.registration.subscribe(),
            metrics: self.metrics.clone(),
            resolution: self.resolution.clone(),
            driver_files: self.driver_files.subscribe(),
            is_let_go: self.is_let_go.clone(),
            driver_away: DriverAway {
                hardware: self.hardware.clone(),
                reason: self.hardware_reason.clone(),
                let_go: self.let_go.clone(),
                of_node: self.of_node.clone(),
            },
        };
        tasks.spawn("the pool maker", maker.run(shutdown.clone()));
        let times = health_report::keep_times(health_sender, self.looks.clone(), shutdown.clone());
        tasks.spawn("the times of health", times);

        let Some(server) = shutdown.run_until_cancelled(self.listen(&preparer, &health)).await else {
            return Ok(());
        };
        self.listening.send_replace(true);
        let background = preparer.clone();
        let stop = shutdown.clone();
        tasks.spawn("preparing", async move { background.run(stop).await });
        let (follower, stop, metrics) = (preparer.clone(), shutdown.clone(), self.metrics.mps.clone());
        tasks.spawn("following mps-host", async move { follower.follow_mps(metrics, stop).await });
        // Cancels waiting work at once; otherwise the server would wait for these calls.
        let drained = async {
            shutdown.cancelled().await;
            preparer.drain().await;
        };
        let serving = async { server.serve(shutdown.clone()).await.inspect_err(|_| shutdown.cancel()) };
        let (served, ()) = tokio::join!(serving, drained);
        served?;
        tracing::info!("nothing is running any more");
        Ok(())
    }

    /// Starts the keeper of MIG layouts, if the administrator has given any.
    fn keep_layouts(&self, preparer: &Preparer, tasks: &Tasks) -> watch::Receiver<LayoutStatus> {
        let Some(file) = self.options.mig_layout_file.clone() else {
            return watch::channel(LayoutStatus::none()).1;
        };
        let (status, layouts) = watch::channel(LayoutStatus::default());
        let Options { driver_name, node_name, .. } = &self.options;
        let mut before = self.published_before.clone();
        let keeper = LayoutKeeper {
            file,
            resolution: self.resolution.clone(),
            node_name: node_name.clone(),
            driver_name: driver_name.clone(),
            client: self.client.clone(),
            hardware: self.hardware.clone(),
            machines: self.machines.clone(),
            look_again: self.look_again.clone(),
            holder: preparer.clone(),
            status,
            published: self.published.clone(),
            metrics: self.metrics.layout.clone(),
            pace: LayoutPace::default(),
            fresh: false,
        };
        let shutdown = self.shutdown.clone();
        tasks.spawn("the layout keeper", async move {
            let fresh = async {
                let before = before.wait_for(Option::is_some).await.ok()?;
                before.as_ref().map(|before| before.is_empty())
            };
            let Some(Some(fresh)) = shutdown.run_until_cancelled(fresh).await else { return };
            LayoutKeeper { fresh, ..keeper }.run(shutdown).await;
        });
        layouts
    }

    /// Starts the keeper of resets, if the administrator wants any.
    fn reset_cards(&self, preparer: &Preparer, layouts: &watch::Receiver<LayoutStatus>, tasks: &Tasks) {
        if self.options.health_policy.recovery() != OwnRecovery::Reset {
            return;
        }
        let keeper = ResetKeeper {
            policy: self.options.health_policy.clone(),
            machines: self.machines.clone(),
            published: self.published.clone(),
            layouts: layouts.clone(),
            holder: preparer.clone(),
            let_go: self.let_go.clone(),
            closer: self.closer.clone(),
            tool: self.options.nvidia_smi(),
            reset_cards: self.reset_cards.clone(),
            of_node: self.of_node.clone(),
            pace: ResetPace::default(),
        };
        tasks.spawn("the keeper of resets", keeper.run(self.shutdown.clone()));
    }

    async fn open(&self) -> Preparer {
        let Options { driver_name, node_name, kubelet_directory, .. } = &self.options;
        let options = PrepareOptions {
            cdi_directory: self.options.cdi_directory.clone(),
            roots: Roots {
                driver: self.options.driver_root.clone(),
                driver_paths: self.options.driver_paths.clone(),
                host_driver: self.options.host_driver_root().to_owned(),
                dev: self.options.dev_root().to_owned(),
                sysfs: self.options.sysfs_root.clone(),
                proc: self.options.proc_root.clone(),
            },
            mps_directory: self.options.mps_directory.clone(),
            resolution: self.resolution.clone(),
            history: Some(Arc::clone(&self.history)),
            cdi_hook: self.options.cdi_hook(),
            hook_directory: self.options.hook_directory(),
            in_driver_root: self.options.in_driver_root(),
            other_drivers: self.options.other_drivers.clone(),
            disabled_hooks: self.options.disable_hooks.clone(),
            driver_files: self.driver_files.clone(),
            look_again: self.look_again.clone(),
            driver_reason: self.hardware_reason.clone(),
            ..PrepareOptions::new(driver_name, node_name, kubelet_directory)
        };
        let open = || async {
            Preparer::open(
                options.clone(),
                Arc::new(options.open_journal()?),
                self.client.clone(),
                self.hardware.clone(),
                self.machines.clone(),
                Arc::new(self.metrics.prepare.clone()),
            )
            .await
        };
        until_it_works("open the journal of prepared claims", &self.trouble, open).await
    }

    async fn listen(&self, preparer: &Preparer, health: &HealthReport) -> KubeletServer<Preparer> {
        let instance = Instance {
            driver_name: self.options.driver_name.clone(),
            kubelet_directory: self.options.kubelet_directory.clone(),
            pod_uid: self.options.pod_uid.clone(),
        };
        let listen = || {
            KubeletServer::listen(
                instance.clone(),
                preparer.clone(),
                health.clone(),
                self.registration.clone(),
                self.metrics.kubelet.clone(),
            )
        };
        until_it_works("serve the kubelet", &self.trouble, listen).await
    }
}

impl ClaimPreparer for Preparer {
    type Error = PrepareError;

    async fn prepare(&self, claims: Vec<ClaimReference>) -> Answers<Vec<PreparedDevice>, PrepareError> {
        self.prepare(claims).await
    }

    async fn unprepare(&self, claims: Vec<ClaimReference>) -> Answers<(), PrepareError> {
        self.unprepare(claims).await
    }
}
