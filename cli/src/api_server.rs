//! Objects of a running cluster, from its API server.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::resource::v1::DeviceTaintRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope};
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectList, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use tessera_cluster::{Key, Objects};

use crate::arguments::SourceArguments;
use crate::shallow::shallow;

/// Number of objects per answer of the API server.
const PAGE: u32 = 500;

/// Why the cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig could not be read, or lacks something.
    #[error("kubeconfig: {}; name one with --kubeconfig or KUBECONFIG, or give files with -f", of_kubeconfig(.0))]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The kubeconfig does not lead to a connection.
    #[error("the cluster cannot be reached: {0}")]
    Client(kube::Error),
    /// The API server refused or failed.
    #[error("{what}: {source}")]
    Request {
        /// What was requested.
        what: &'static str,
        /// The error.
        source: Box<kube::Error>,
    },
    /// A right without which nothing can be answered is missing.
    #[error(
        "you may not list {resource} of the whole cluster, without which nothing can be answered; docs/kubectl-gpu.md has a ClusterRole with the rights for kubectl gpu (the API server: {message})"
    )]
    Right {
        /// For example `nodes` or `resourceslices.resource.k8s.io`.
        resource: &'static str,
        /// The API server's message.
        message: String,
    },
    /// Another thread cannot be started.
    #[error("{0}")]
    Runtime(#[from] std::io::Error),
}

fn of_kubeconfig(error: &kube::config::KubeconfigError) -> String {
    match error {
        kube::config::KubeconfigError::ReadConfig(error, path) => format!("{}: {error}", path.display()),
        other => other.to_string(),
    }
}

/// What a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The devices alone.
    Devices,
    /// Everything that decides what a pod gets.
    All,
}

/// What was read from the cluster.
#[derive(Debug)]
pub struct Loaded {
    /// The objects.
    pub objects: Objects,
    /// The default namespace.
    pub namespace: String,
    /// What the user may not read, and how that affects the answer.
    pub warnings: Vec<String>,
}

/// Reads the cluster, as far as the user may.
///
/// # Errors
/// See [`ClusterError`].
pub fn load(arguments: &SourceArguments, wanted: Wanted) -> Result<Loaded, ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = config(arguments).await?;
        let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(ClusterError::Client)?;
        let mut reader = Reader { client, namespace, warnings: Vec::new() };
        let objects = reader.read(wanted).await?;
        Ok(Loaded { objects, namespace: reader.namespace, warnings: reader.warnings })
    })
}

async fn config(arguments: &SourceArguments) -> Result<Config, ClusterError> {
    let options = KubeConfigOptions {
        context: arguments.context.clone(),
        cluster: arguments.cluster.clone(),
        user: arguments.user.clone(),
    };
    let kubeconfig = match &arguments.kubeconfig {
        Some(path) => Kubeconfig::read_from(path)?,
        None => Kubeconfig::read()?,
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let timeout = Some(Duration::from_secs(arguments.request_timeout));
    config.connect_timeout = timeout;
    config.read_timeout = timeout;
    Ok(config)
}

struct Reader {
    client: Client,
    namespace: String,
    warnings: Vec<String>,
}

impl Reader {
    async fn read(&mut self, wanted: Wanted) -> Result<Objects, ClusterError> {
        let mut objects = Objects {
            slices: self.needed("resourceslices.resource.k8s.io", "list of ResourceSlices").await?,
            ..Objects::default()
        };
        if wanted == Wanted::Devices {
            return Ok(objects);
        }
        objects.classes = self.needed("deviceclasses.resource.k8s.io", "list of DeviceClasses").await?;
        objects.nodes = match self.list(Api::all(self.client.clone())).await {
            Err(error) if is_forbidden(&error) => {
                self.warn("nodes", "the nodes are those that slices name, without their labels and taints");
                BTreeMap::new()
            }
            read => read.map_err(failed("list of Nodes"))?,
        };
        objects.taint_rules = match taint_rules(&self.client).await {
            Err(error) if is_forbidden(&error) => {
                self.warn("devicetaintrules.resource.k8s.io", "taints of DeviceTaintRules do not count");
                BTreeMap::new()
            }
            read => read.map_err(failed("list of DeviceTaintRules"))?,
        };
        let namespace = self.namespace.clone();
        objects.claims = self
            .of_namespaces(
                "resourceclaims.resource.k8s.io",
                "list of ResourceClaims",
                &format!("devices that claims outside namespace {namespace} hold count as free"),
                "devices that claims hold count as free",
            )
            .await?;
        objects.templates = self
            .of_namespaces(
                "resourceclaimtemplates.resource.k8s.io",
                "list of ResourceClaimTemplates",
                "",
                "claims that would be made from templates cannot be told",
            )
            .await?;
        objects.pods = self
            .of_namespaces(
                "pods",
                "list of Pods",
                &format!("only pods of namespace {namespace} are known"),
                "no pod of the cluster is known",
            )
            .await?;
        Ok(objects)
    }

    fn warn(&mut self, resource: &str, so: &str) {
        self.warnings.push(format!("you may not list {resource} of the whole cluster: {so}"));
    }

    /// A list without which there is no answer.
    async fn needed<T>(
        &mut self,
        resource: &'static str,
        what: &'static str,
    ) -> Result<BTreeMap<Key, T>, ClusterError>
    where
        T: Resource<DynamicType = ()> + Metadata<Ty = ObjectMeta> + Clone + Debug + DeserializeOwned,
    {
        self.list(Api::all(self.client.clone())).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 403 => {
                ClusterError::Right { resource, message: status.message.clone() }
            }
            error => failed(what)(error),
        })
    }

    /// A list of all namespaces; of one, if the user may read no more; or nothing. An empty `so` gives no warning.
    async fn of_namespaces<T>(
        &mut self,
        resource: &str,
        what: &'static str,
        so: &str,
        so_without: &str,
    ) -> Result<BTreeMap<Key, T>, ClusterError>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Metadata<Ty = ObjectMeta>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        match self.list(Api::all(self.client.clone())).await {
            Err(error) if is_forbidden(&error) => {}
            read => return read.map_err(failed(what)),
        }
        match self.list(Api::namespaced(self.client.clone(), &self.namespace)).await {
            Err(error) if is_forbidden(&error) => {
                let namespace = &self.namespace;
                self.warnings.push(format!(
                    "you may not list {resource}, of the whole cluster or of namespace {namespace}: {so_without}"
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
        T: Resource<DynamicType = ()> + Metadata<Ty = ObjectMeta> + Clone + Debug + DeserializeOwned,
    {
        let mut found = BTreeMap::new();
        let mut parameters = ListParams::default().limit(PAGE);
        loop {
            let page = match self.page(&api, &parameters).await {
                Ok(page) => page,
                // The continue token has expired because the list changed: read it once more, in one piece.
                Err(kube::Error::Api(status)) if status.code == 410 && parameters.limit.is_some() => {
                    found.clear();
                    parameters = ListParams::default();
                    continue;
                }
                Err(error) => return Err(error),
            };
            for object in page.items {
                let metadata = object.metadata();
                let key = (
                    metadata.namespace.clone().unwrap_or_default(),
                    metadata.name.clone().unwrap_or_default(),
                );
                found.insert(key, object);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(found),
            }
        }
    }

    async fn page<T>(&mut self, api: &Api<T>, parameters: &ListParams) -> Result<ObjectList<T>, kube::Error>
    where
        T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let request = Request::new(api.resource_url()).list(parameters).map_err(kube::Error::BuildRequest)?;
        let text = self.client.request_text(request).await?;
        let read = serde_json::from_str(&text).or_else(|error| {
            let shallow = shallow(&text).ok_or(error)?;
            self.warnings.push(format!(
                "among the {} is configuration that is nested too deeply to be read: its inner part is left out",
                T::plural(&())
            ));
            serde_json::from_str(&shallow)
        });
        read.map_err(kube::Error::SerdeError)
    }
}

fn failed(what: &'static str) -> impl Fn(kube::Error) -> ClusterError {
    move |source| ClusterError::Request { what, source: Box::new(source) }
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
                Some(((String::new(), name), serde_json::from_value(value).ok()?))
            })
            .collect());
    }
    Ok(BTreeMap::new())
}
