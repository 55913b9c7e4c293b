//! Inputs of a simulation from the command line: one or more fleets, and the arriving workload.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cluster::{Objects, PodExt};
use tessera_simulate::fleet::{Fleet, FleetError, List, ListReader, Manifest, Pools, Quotas, Workload};

use super::pools::{self, PoolFile, PoolsOfFleet};
use super::quotas::{self, QuotaFile};
use super::{lines, wrong};
use crate::api_server::Wanted;
use crate::arguments::SimulateArguments;
use crate::driver_name;
use crate::files::{self, Besides};
use crate::output::{CommandError, warn};
use crate::source::Source;

/// Inputs read.
pub struct Inputs {
    /// The list, if there is one.
    list: List,
    /// Objects creating pods.
    manifests: Vec<Manifest>,
    /// Of PriorityClasses.
    priorities: BTreeMap<String, i32>,
    /// Templates, claims and classes; of a cluster, all objects.
    objects: Objects,
    /// Whether the fleet comes from a cluster, or from a cluster's objects in files.
    is_cluster: bool,
    /// Release of kube-scheduler.
    kubernetes: KubernetesVersion,
    /// GpuPools of each file.
    pools: Vec<PoolFile>,
    /// GpuQuotas of each file.
    quotas: Vec<QuotaFile>,
    /// Where the pods are from.
    pub what: String,
}

/// A fleet and the name of its difference.
pub struct NamedFleet {
    pub name: String,
    pub fleet: Fleet,
    pub pools: Option<PoolsOfFleet>,
    pub quotas: Quotas,
    /// With quotas: index of the same fleet without them.
    pub without_quotas: Option<usize>,
}

impl Inputs {
    /// Reads the files, and the cluster where they and the arguments have no nodes.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn read(arguments: &SimulateArguments) -> Result<Self, CommandError> {
        let mut list = List::default();
        let mut what = Vec::new();
        if let Some(file) = &arguments.workload {
            let mut reader = ListReader::default();
            lines(file, |line| reader.line(line))?;
            list = reader.finish().map_err(|error| wrong(file, &error))?;
            what.push(file.display().to_string());
        }
        let layouts = arguments.mig_layouts.as_deref().map(pools::layouts).transpose()?;
        let pools = arguments
            .pools
            .iter()
            .map(|file| pools::read(file, layouts.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let source = &arguments.source;
        what.extend(source.files.iter().map(|file| file.display().to_string()));
        let is_cluster = arguments.nodes.is_empty();
        let mut kubernetes = arguments.release.kubernetes.unwrap_or_default();
        let (objects, made) = if is_cluster {
            let loaded = Source::load(source, Wanted::Simulation).map_err(|error| {
                CommandError::Asked(format!("{error}; or describe the fleet with --nodes"))
            })?;
            kubernetes = loaded.release(&arguments.release);
            let Source { objects, manifests, is_live, .. } = loaded;
            if is_live {
                what.insert(0, "the cluster".to_owned());
            }
            (objects, manifests)
        } else if source.files.is_empty() {
            (Objects::default(), files::Manifests::default())
        } else {
            let texts = files::read(&source.files, source.recursive)?;
            let namespace = source.namespace.as_deref().unwrap_or("default");
            let loaded = files::parse(&texts, namespace, Besides::Manifests)?;
            warn(&loaded.warnings);
            let files::Loaded { objects, manifests, pools, .. } = loaded;
            let mut unused = Vec::new();
            if !objects.nodes.is_empty() || !objects.slices.is_empty() {
                unused.push(
                    "Nodes and ResourceSlices of -f are ignored: --nodes describes the fleet".to_owned(),
                );
            }
            if !pools.is_empty() {
                unused.push("GpuPools of -f are ignored: give them with --pool".to_owned());
            }
            warn(&unused);
            (objects, manifests.unwrap_or_default())
        };
        let (of_files, priorities) = made.into_parts();
        // Pods waiting in the cluster come first.
        let mut waiting: Vec<&Pod> = objects.pods.values().map(AsRef::as_ref).collect();
        waiting.retain(|pod| {
            let is_bound = pod.node_name().is_some();
            !is_bound && pod.metadata.deletion_timestamp.is_none()
        });
        waiting.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
        let waiting = waiting.into_iter().map(|pod| Manifest::from(pod.clone()));
        let manifests = waiting.chain(of_files).collect();
        let namespaces = &objects.namespaces;
        let quotas = arguments
            .quotas
            .iter()
            .map(|file| quotas::read(file, namespaces))
            .collect::<Result<Vec<_>, _>>()?;
        let what = what.join(", ");
        if !is_cluster
            && arguments.workload.is_none()
            && source.files.is_empty()
            && arguments.wishes.is_empty()
        {
            let asked = "--nodes needs pods: --workload FILE or -f FILE; or ask for a --wish";
            return Err(CommandError::Asked(asked.to_owned()));
        }
        Ok(Self { list, manifests, priorities, objects, is_cluster, kubernetes, pools, quotas, what })
    }

    /// The current fleet and the one with added nodes, each as offered by default and by the GpuPools of each file.
    ///
    /// # Errors
    /// There is no such fleet.
    pub fn fleets(&self, arguments: &SimulateArguments) -> Result<Vec<NamedFleet>, CommandError> {
        let driver = arguments.driver.clone().unwrap_or_else(|| match self.is_cluster {
            true => driver_name::of_fleet(&self.objects),
            // Nodes and slices of files are ignored.
            false => driver_name::of_claims(&self.objects),
        });
        let base = |of_file: Option<&Pools>, adds: bool| {
            let mut fleet = match self.is_cluster {
                true => Fleet::of_cluster(&self.objects, &driver, of_file)?,
                false => Fleet::of_driver(&driver),
            };
            let simulated = Pools::simulated();
            let pools = of_file.unwrap_or(&simulated);
            fleet = fleet.scheduled_by(self.kubernetes);
            fleet.add(&arguments.nodes, pools)?;
            if adds {
                fleet.add(&arguments.add, pools)?;
            }
            Ok(fleet)
        };
        let asked = |error: FleetError| CommandError::Asked(error.to_string());
        let added: Vec<String> =
            arguments.add.iter().map(|group| format!("+{}x{}", group.count, group.machine)).collect();
        let added = added.join(" ");
        let mut fleets = Vec::new();
        for adds in [false, true].into_iter().filter(|adds| !adds || !added.is_empty()) {
            let name = if adds { &added } else { "as it is" };
            let fleet = base(None, adds).map_err(asked)?;
            let without_quotas = fleets.len();
            let of_added = |with: String| if adds { format!("{added} {with}") } else { with };
            let plain = NamedFleet {
                name: name.to_owned(),
                fleet: fleet.clone(),
                pools: None,
                quotas: Quotas::default(),
                without_quotas: None,
            };
            fleets.push(plain);
            for file in &self.pools {
                let fleet = base(Some(&file.pools), adds).map_err(asked)?;
                let name = of_added(format!("with {}", file.name));
                let pools = Some(PoolsOfFleet::of(&fleet, file));
                fleets.push(NamedFleet {
                    name,
                    fleet,
                    pools,
                    quotas: Quotas::default(),
                    without_quotas: None,
                });
            }
            for file in &self.quotas {
                fleets.push(NamedFleet {
                    name: of_added(format!("with {}", file.name)),
                    fleet: fleet.clone(),
                    pools: None,
                    quotas: file.quotas.clone(),
                    without_quotas: Some(without_quotas),
                });
            }
        }
        let warnings: BTreeSet<&String> = fleets.iter().flat_map(|named| named.fleet.warnings()).collect();
        warn(&warnings.into_iter().cloned().collect::<Vec<_>>());
        Ok(fleets)
    }

    /// Pods arriving on a fleet, and pods already there.
    ///
    /// # Errors
    /// A manifest cannot be simulated.
    pub fn workload(&self, fleet: &Fleet) -> Result<Workload, CommandError> {
        let workload = Workload::of_manifests(&self.manifests, &self.objects, &self.priorities, fleet);
        let mut workload = workload.map_err(|error| CommandError::Asked(error.to_string()))?;
        workload.add(Workload::of_list(&self.list, fleet));
        if self.is_cluster {
            workload.hold(&self.objects, &self.manifests, fleet);
        }
        Ok(workload)
    }
}
