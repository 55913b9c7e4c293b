use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Cluster, ClusterError, ClusterRecord, KubernetesVersion, Tier};
use crate::{
    control_plane,
    host::{CommandLine, Exit, Host, ProcessState},
    node::{self, Node},
    progress::Progress,
    tools::Tools,
};

/// Grace period of a component between TERM and KILL.
const GRACE: Duration = Duration::from_secs(10);

/// One process of a cluster. Nodes are given by their index in [`Cluster::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// A node's containerd; its containers outlive it.
    Containerd(usize),
    /// A node's kubelet; its pods outlive it.
    Kubelet(usize),
}

impl Component {
    /// Its process's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Containerd(_) => "containerd",
            Self::Kubelet(_) => "kubelet",
        }
    }

    fn node(self) -> Option<usize> {
        match self {
            Self::Containerd(index) | Self::Kubelet(index) => Some(index),
            _ => None,
        }
    }
}

/// Starts a component of the control plane.
pub(super) async fn spawn(record: &ClusterRecord, component: Component) -> Result<(), ClusterError> {
    let command: CommandLine = match component {
        Component::Etcd => control_plane::etcd(record)?,
        Component::ApiServer => control_plane::api_server(record)?,
        Component::ControllerManager => control_plane::controller_manager(record)?,
        Component::Scheduler => control_plane::scheduler(record)?,
        Component::Kubelet(index) => return node::start_kubelet(record, known(record, index)?).await,
        Component::Containerd(index) => return node::start_containerd(record, known(record, index)?).await,
    };
    record.control_plane().spawn(component.name(), command, record.log(component.name())).await?;
    Ok(())
}

fn known(record: &ClusterRecord, index: usize) -> Result<&Node, ClusterError> {
    if record.tier == Tier::Scheduler {
        return Err(ClusterError::WrongTier(Tier::Scheduler, "kubelet or containerd"));
    }
    record
        .nodes
        .get(index)
        .ok_or_else(|| ClusterError::Configuration(format!("the cluster has no node number {index}")))
}

impl Cluster {
    fn host_of(&self, component: Component) -> Result<Host, ClusterError> {
        match component.node() {
            Some(index) => Ok(known(&self.record, index)?.host()),
            None => Ok(self.control_plane()),
        }
    }

    /// Starts a stopped component. Returns once the process runs; see [`Cluster::wait_until_ready`].
    ///
    /// # Errors
    /// The component is running.
    pub async fn start_component(&self, component: Component) -> Result<(), ClusterError> {
        spawn(&self.record, component).await
    }

    /// [`Cluster::start_component`] of another version of Kubernetes than the cluster's own; missing programs are built
    /// first. A later start without a version uses the cluster's own.
    ///
    /// # Errors
    /// The component is running, or the cluster is of the node tier, whose machines have the programs of one version only.
    pub async fn start_component_of(
        &self,
        component: Component,
        version: KubernetesVersion,
    ) -> Result<(), ClusterError> {
        if self.record.tier == Tier::Node {
            return Err(ClusterError::WrongTier(Tier::Node, "components of several versions"));
        }
        let mut record = self.record.clone();
        record.tools.extend(Tools::build_in_background(&[version.module()], &Progress::default()).await?);
        spawn(&record, component).await
    }

    /// Stops a component by TERM (KILL after 10 s) and waits for its end.
    ///
    /// # Errors
    /// The component was never started.
    pub async fn stop_component(&self, component: Component) -> Result<Exit, ClusterError> {
        Ok(self.host_of(component)?.stop(component.name(), GRACE).await?)
    }

    /// Kills a component at once and waits for its end.
    ///
    /// # Errors
    /// The component was never started.
    pub async fn kill_component(&self, component: Component) -> Result<Exit, ClusterError> {
        Ok(self.host_of(component)?.stop(component.name(), Duration::ZERO).await?)
    }

    /// [`Cluster::stop_component`], then [`Cluster::start_component`].
    ///
    /// # Errors
    /// As for these two.
    pub async fn restart_component(&self, component: Component) -> Result<(), ClusterError> {
        self.stop_component(component).await?;
        self.start_component(component).await
    }

    /// Freezes a component: its connections stay open without answers.
    ///
    /// # Errors
    /// The component does not run.
    pub async fn pause_component(&self, component: Component) -> Result<(), ClusterError> {
        Ok(self.host_of(component)?.signal(component.name(), Signal::SIGSTOP).await?)
    }

    /// Resumes a frozen component.
    ///
    /// # Errors
    /// The component does not run.
    pub async fn resume_component(&self, component: Component) -> Result<(), ClusterError> {
        Ok(self.host_of(component)?.signal(component.name(), Signal::SIGCONT).await?)
    }

    /// A power failure: kills everything on a node at once, and starts the node again from its disk. `/run` is empty,
    /// containers are gone, and the boot id is new, but only for the node's own processes: a container has its own
    /// `/proc`, filled by the kernel.
    ///
    /// # Errors
    /// The node does not come up again.
    pub async fn reboot_node(&self, index: usize) -> Result<(), ClusterError> {
        self.cut_power(index).await?;
        self.power_on(index).await
    }

    /// The first half of [`Cluster::reboot_node`]: kills everything on the node.
    ///
    /// # Errors
    /// The node is off already.
    pub async fn cut_power(&self, index: usize) -> Result<(), ClusterError> {
        node::stop_machine(known(&self.record, index)?, &self.control_plane()).await
    }

    /// The second half: starts the node from its disk.
    ///
    /// # Errors
    /// The node does not come up again.
    pub async fn power_on(&self, index: usize) -> Result<(), ClusterError> {
        let node = known(&self.record, index)?;
        node::boot(&self.record, node, &self.control_plane()).await?;
        node::wait_for_containerd(&self.record, node).await?;
        node::start_kubelet(&self.record, node).await
    }

    /// All processes of the cluster, each with its machine's name.
    ///
    /// # Errors
    /// A machine does not answer.
    pub async fn processes(&self) -> Result<Vec<(String, ProcessState)>, ClusterError> {
        let mut all = Vec::new();
        for process in self.control_plane().processes().await? {
            if !process.name.starts_with("machine-") {
                all.push(("control-plane".to_owned(), process));
            }
        }
        for node in self.nodes() {
            for process in node.host().processes().await? {
                all.push((node.name().to_owned(), process));
            }
        }
        Ok(all)
    }
}
