//! Lists of objects, page by page, as far as the user may read them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tessera_cluster::{Key, Kind, Objects, holds_of};
use tessera_kube_util::objects::{Name, Page, Unreadable, from_json};

use super::{ClusterError, Wanted, failed, waits_with_volumes};

/// Number of objects per answer of the API server.
const PAGE: u32 = 500;

/// Number of ResourceSlices per answer: each may have 128 devices, some 10 KiB apiece when read.
const PAGE_OF_SLICES: u32 = 100;

/// Reads objects and records missing permissions.
pub struct Reader {
    /// The cluster.
    pub client: Client,
    /// The namespace to read where the user may not read all.
    pub namespace: String,
    /// Missing read permissions and their effect on the answer.
    pub warnings: Vec<String>,
    /// See [`Objects::unreadable`].
    unreadable: BTreeMap<(Kind, Key), String>,
}

impl Reader {
    /// Has read nothing yet.
    pub fn new(client: Client, namespace: String) -> Self {
        Reader { client, namespace, warnings: Vec::new(), unreadable: BTreeMap::new() }
    }

    /// Objects needed by a command.
    pub async fn read(&mut self, wanted: Wanted) -> Result<Objects, ClusterError> {
        let mut objects = self.read_wanted(wanted).await?;
        objects.unreadable = std::mem::take(&mut self.unreadable);
        Ok(objects)
    }

    async fn read_wanted(&mut self, wanted: Wanted) -> Result<Objects, ClusterError> {
        let mut objects = Objects::default();
        if matches!(wanted, Wanted::Pools { devices: false } | Wanted::Quotas) {
            return Ok(objects);
        }
        if wanted == Wanted::Installation {
            return self.installation(objects).await;
        }
        let of_node = match &wanted {
            Wanted::Holders { node: Some(node) } => {
                ListParams::default().fields(&format!("spec.nodeName={node}"))
            }
            _ => ListParams::default(),
        };
        objects.slices =
            self.needed("resourceslices.resource.k8s.io", "list of ResourceSlices", of_node).await?;
        match wanted {
            Wanted::Devices | Wanted::Pools { .. } | Wanted::Quotas | Wanted::Installation => Ok(objects),
            Wanted::Kueue => {
                objects.classes = self.classes().await?;
                Ok(objects)
            }
            Wanted::Holders { .. } => {
                objects.claims = in_arcs(self.claims("look free").await?);
                Ok(objects)
            }
            Wanted::All { volumes, .. } => self.all(objects, volumes).await,
            Wanted::Moves => {
                let mut objects = self.all(objects, true).await?;
                self.owners(&mut objects).await?;
                Ok(objects)
            }
            Wanted::Migration | Wanted::Simulation => self.all(objects, false).await,
        }
    }

    async fn all(&mut self, mut objects: Objects, volumes: bool) -> Result<Objects, ClusterError> {
        objects.classes = self.classes().await?;
        objects.nodes =
            self.nodes("the nodes are taken from the ResourceSlices, without labels and taints").await?;
        objects.taint_rules = match taint_rules(&self.client).await {
            Err(error) if is_forbidden(&error) => {
                self.warn("devicetaintrules.resource.k8s.io", "taints of DeviceTaintRules do not count");
                BTreeMap::new()
            }
            read => read.map_err(failed("list of DeviceTaintRules"))?,
        };
        let namespace = self.namespace.clone();
        objects.claims = in_arcs(self.claims("count as free").await?);
        objects.templates = self.templates("claims from templates cannot be predicted").await?;
        let pods = self
            .of_namespaces(
                "pods",
                "list of Pods",
                &ListParams::default(),
                &format!("only pods in namespace {namespace} take room on nodes"),
                "no pods take room on nodes",
            )
            .await?;
        objects.pods = in_arcs(pods);
        if volumes || objects.pods.values().any(|pod| waits_with_volumes(pod)) {
            self.volumes(&mut objects).await?;
        }
        Ok(objects)
    }

    async fn installation(&mut self, mut objects: Objects) -> Result<Objects, ClusterError> {
        objects.classes = self.classes().await?;
        objects.nodes = self.nodes("problems of the nodes themselves are not reported").await?;
        objects.claims = in_arcs(self.claims("are not checked").await?);
        objects.templates = self.templates("selectors of templates are not checked").await?;
        let namespace = self.namespace.clone();
        let pods = self
            .of_namespaces(
                "pods",
                "list of Pods",
                &ListParams::default().labels("app.kubernetes.io/name=tessera"),
                &format!("only Tessera's pods in namespace {namespace} are checked"),
                "Tessera's pods are not checked",
            )
            .await?;
        objects.pods = in_arcs(pods);
        Ok(objects)
    }

    async fn classes(&mut self) -> Result<BTreeMap<Key, DeviceClass>, ClusterError> {
        self.needed("deviceclasses.resource.k8s.io", "list of DeviceClasses", ListParams::default()).await
    }

    /// Templates; `so` is the consequence if none may be read.
    async fn templates(&mut self, so: &str) -> Result<BTreeMap<Key, ResourceClaimTemplate>, ClusterError> {
        self.of_namespaces(
            "resourceclaimtemplates.resource.k8s.io",
            "list of ResourceClaimTemplates",
            &ListParams::default(),
            "",
            so,
        )
        .await
    }

    /// Nodes; `so` is the consequence if they may not be read.
    async fn nodes(&mut self, so: &str) -> Result<BTreeMap<Key, Node>, ClusterError> {
        match self.list(Api::all(self.client.clone())).await {
            Err(error) if is_forbidden(&error) => {
                self.warn("nodes", so);
                Ok(BTreeMap::new())
            }
            read => read.map_err(failed("list of Nodes")),
        }
    }

    /// Claims; `so` is the consequence for devices of unknown claims.
    async fn claims(&mut self, so: &str) -> Result<BTreeMap<Key, ResourceClaim>, ClusterError> {
        let namespace = self.namespace.clone();
        self.of_namespaces(
            "resourceclaims.resource.k8s.io",
            "list of ResourceClaims",
            &ListParams::default(),
            &format!("devices held by claims outside namespace {namespace} {so}"),
            &format!("devices held by claims {so}"),
        )
        .await
    }

    async fn volumes(&mut self, objects: &mut Objects) -> Result<(), ClusterError> {
        objects.volume_claims = self
            .of_namespaces(
                "persistentvolumeclaims",
                "list of PersistentVolumeClaims",
                &ListParams::default(),
                "",
                "the location of volumes does not count",
            )
            .await?;
        objects.volumes = match self.list(Api::all(self.client.clone())).await {
            Err(error) if is_forbidden(&error) => {
                self.warn("persistentvolumes", "the location of volumes does not count");
                BTreeMap::new()
            }
            read => read.map_err(failed("list of PersistentVolumes"))?,
        };
        Ok(())
    }

    /// Reads what decides on whether pods may move. Kinds of others count as unseen.
    async fn owners(&mut self, objects: &mut Objects) -> Result<(), ClusterError> {
        objects.unlisted.extend([Kind::JobSet, Kind::LeaderWorkerSet]);
        let budgets: BTreeMap<Key, PodDisruptionBudget> = self
            .of_namespaces(
                "poddisruptionbudgets.policy",
                "list of PodDisruptionBudgets",
                &ListParams::default(),
                "some of the moves may be forbidden by a PodDisruptionBudget",
                "the moves may be forbidden by a PodDisruptionBudget",
            )
            .await?;
        objects
            .budgets
            .extend(budgets.into_iter().filter_map(|(key, budget)| Some((key, converted(&budget)?))));
        let jobs: BTreeMap<Key, Job> = self
            .of_namespaces(
                "jobs.batch",
                "list of Jobs",
                &ListParams::default(),
                "gangs of Jobs elsewhere may be torn apart",
                "gangs of Jobs may be torn apart",
            )
            .await?;
        objects.jobs.extend(jobs.into_iter().filter_map(|(key, job)| Some((key, converted(&job)?))));
        Ok(())
    }

    fn warn(&mut self, resource: &str, so: &str) {
        self.warnings.push(format!("you may not list {resource} in the whole cluster: {so}"));
    }

    /// A list needed for any answer.
    async fn needed<T>(
        &mut self,
        resource: &'static str,
        what: &'static str,
        which: ListParams,
    ) -> Result<BTreeMap<Key, T>, ClusterError>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.list_some(Api::all(self.client.clone()), which).await.map_err(without(resource, what))
    }

    /// Objects selected by `which` in all namespaces, else in the one the user may read, else none. No warning if `so` is empty.
    async fn of_namespaces<T>(
        &mut self,
        resource: &str,
        what: &'static str,
        which: &ListParams,
        so: &str,
        so_without: &str,
    ) -> Result<BTreeMap<Key, T>, ClusterError>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        match self.list_some(Api::all(self.client.clone()), which.clone()).await {
            Err(error) if is_forbidden(&error) => {}
            read => return read.map_err(failed(what)),
        }
        match self.list_some(Api::namespaced(self.client.clone(), &self.namespace), which.clone()).await {
            Err(error) if is_forbidden(&error) => {
                let namespace = &self.namespace;
                self.warnings.push(format!(
                    "you may not list {resource}, neither in the whole cluster nor in namespace {namespace}: \
                     {so_without}"
                ));
                Ok(BTreeMap::new())
            }
            read => {
                if !so.is_empty() {
                    self.warn(resource, so);
                }
                read.map_err(failed(what))
            }
        }
    }

    async fn list<T>(&mut self, api: Api<T>) -> Result<BTreeMap<Key, T>, kube::Error>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.list_some(api, ListParams::default()).await
    }

    /// Objects selected by `which`.
    async fn list_some<T>(&mut self, api: Api<T>, which: ListParams) -> Result<BTreeMap<Key, T>, kube::Error>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let which = which.limit(PAGE);
        let fold = self.fold(api, which, BTreeMap::new, |found, mut object: T| {
            let metadata = object.meta_mut();
            // Half the size of many objects, and never used.
            metadata.managed_fields = None;
            found.insert(Key::from(&*metadata), object);
        });
        fold.await
    }

    /// Reads a list page by page and takes in one object after the other. `new` is called again where the list begins anew.
    async fn fold<T, A>(
        &mut self,
        api: Api<T>,
        which: ListParams,
        new: impl Fn() -> A,
        add: impl Fn(&mut A, T),
    ) -> Result<A, kube::Error>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let mut found = new();
        let mut parameters = which.clone();
        loop {
            let mut page = match Page::get(&self.client, api.resource_url(), &parameters).await {
                Ok(page) => page,
                // The continue token expired because the list changed: read again, in one piece.
                Err(kube::Error::Api(status)) if status.code == 410 && parameters.limit.is_some() => {
                    found = new();
                    parameters = ListParams { limit: None, ..which.clone() };
                    continue;
                }
                Err(error) => return Err(error),
            };
            while let Some((name, object)) = page.next(from_json::<T>) {
                let object = object.map_or_else(|error| self.left_of(name, &error), Some);
                object.into_iter().for_each(|object| add(&mut found, object));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(found),
            }
        }
    }

    /// Relevant remainder of an unreadable object: the devices of a claim.
    fn left_of<T>(&mut self, name: Name, unreadable: &Unreadable) -> Option<T>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let (kind, key) = (T::kind(&()), Key::new(name.namespace, name.name));
        let why = unreadable.to_string();
        let warning = format!("{kind} {key} cannot be read and counts as absent: {why}");
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
        let kinds = [Kind::ResourceClaim, Kind::ResourceClaimTemplate];
        if let Some(kind) = kinds.into_iter().find(|known| known.name() == kind) {
            self.unreadable.insert((kind, key), why);
        }
        let holds = holds_of(&unreadable.json).filter(|_| kind == Kind::ResourceClaim.name())?;
        serde_json::from_value(serde_json::to_value(holds).ok()?).ok()
    }
}

/// Visits all ResourceSlices one by one, by name; the slices of a large cluster would be gigabytes. `new` is called again if the
/// list restarts. Returns also the warnings about objects not read in full.
///
/// # Errors
/// The slices could not be read.
pub async fn fold_slices<A>(
    client: &Client,
    new: impl Fn() -> A,
    add: impl Fn(&mut A, ResourceSlice),
) -> Result<(A, Vec<String>), ClusterError> {
    let mut reader = Reader::new(client.clone(), String::new());
    let which = ListParams::default().limit(PAGE_OF_SLICES);
    let read = reader.fold(Api::all(client.clone()), which, new, add).await;
    let read = read.map_err(without("resourceslices.resource.k8s.io", "list of ResourceSlices"))?;
    Ok((read, reader.warnings))
}

/// The error where a list cannot be done without.
fn without(resource: &'static str, what: &'static str) -> impl Fn(kube::Error) -> ClusterError {
    move |error| match error {
        kube::Error::Api(status) if status.code == 403 => {
            ClusterError::Right { resource, message: status.message.clone() }
        }
        error => failed(what)(error),
    }
}

fn in_arcs<T>(objects: BTreeMap<Key, T>) -> BTreeMap<Key, Arc<T>> {
    objects.into_iter().map(|(key, object)| (key, Arc::new(object))).collect()
}

/// The object with the fields that matter here.
fn converted<T: DeserializeOwned>(object: &impl Serialize) -> Option<T> {
    serde_json::from_value(serde_json::to_value(object).ok()?).ok()
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// DeviceTaintRules exist only where their feature gate is on, in one of several API versions of the same form.
async fn taint_rules(client: &Client) -> Result<BTreeMap<Key, DeviceTaintRule>, kube::Error> {
    for version in ["v1", "v1beta2"] {
        let resource = ApiResource {
            group: "resource.k8s.io".to_owned(),
            version: version.to_owned(),
            api_version: format!("resource.k8s.io/{version}"),
            kind: "DeviceTaintRule".to_owned(),
            plural: "devicetaintrules".to_owned(),
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let rules = match api.list(&ListParams::default()).await {
            Ok(rules) => rules,
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error),
        };
        return Ok(rules
            .into_iter()
            .filter_map(|rule| {
                let name = rule.metadata.name.clone().unwrap_or_default();
                let mut value = serde_json::to_value(&rule).ok()?;
                value["apiVersion"] = "resource.k8s.io/v1".into();
                value["kind"] = "DeviceTaintRule".into();
                Some((Key::cluster(name), serde_json::from_value(value).ok()?))
            })
            .collect());
    }
    Ok(BTreeMap::new())
}
