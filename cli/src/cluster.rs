//! Objects of a live cluster, through its API server.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::Metadata;
use k8s_openapi::api::resource::v1::DeviceTaintRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;

use crate::arguments::SourceArguments;
use crate::objects::{Key, Objects};

/// Objects of one answer of the API server.
const PAGE: u32 = 500;

/// Why the cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig could not be read or does not say what it must.
    #[error("kubeconfig: {0}; name one with --kubeconfig or KUBECONFIG, or give files with -f")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// No connection can be made with what the kubeconfig says.
    #[error("the cluster cannot be reached: {0}")]
    Client(kube::Error),
    /// The API server refused or failed.
    #[error("{what}: {source}")]
    Request {
        /// What was asked for.
        what: &'static str,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// Another thread cannot be started.
    #[error("{0}")]
    Runtime(#[from] std::io::Error),
}

/// What a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The devices alone.
    Devices,
    /// All that decides what a pod gets.
    All,
}

/// Reads the cluster. Also says which namespace is meant where none is named.
///
/// # Errors
/// See [`ClusterError`].
pub fn load(arguments: &SourceArguments, wanted: Wanted) -> Result<(Objects, String), ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = config(arguments).await?;
        let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(ClusterError::Client)?;
        Ok((read(&client, wanted).await?, namespace))
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

async fn read(client: &Client, wanted: Wanted) -> Result<Objects, ClusterError> {
    let mut objects = Objects {
        slices: list(client, "list of ResourceSlices").await?,
        taint_rules: taint_rules(client).await?,
        ..Objects::default()
    };
    if wanted == Wanted::All {
        objects.nodes = list(client, "list of Nodes").await?;
        objects.classes = list(client, "list of DeviceClasses").await?;
        objects.claims = list(client, "list of ResourceClaims").await?;
        objects.templates = list(client, "list of ResourceClaimTemplates").await?;
        objects.pods = list(client, "list of Pods").await?;
    }
    Ok(objects)
}

async fn list<T>(client: &Client, what: &'static str) -> Result<BTreeMap<Key, T>, ClusterError>
where
    T: Resource<DynamicType = ()> + Metadata<Ty = ObjectMeta> + Clone + Debug + DeserializeOwned,
{
    let failed = |source| ClusterError::Request { what, source: Box::new(source) };
    let api: Api<T> = Api::all(client.clone());
    let mut found = BTreeMap::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = match api.list(&parameters).await {
            Ok(page) => page,
            // The list changed so much that the API server forgot where we were: once more, in one piece.
            Err(kube::Error::Api(status)) if status.code == 410 && parameters.limit.is_some() => {
                found.clear();
                parameters = ListParams::default();
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        for object in page.items {
            let metadata = object.metadata();
            let key =
                (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
            found.insert(key, object);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}

/// DeviceTaintRules exist only where their feature gate is on, and moved through versions of one form.
async fn taint_rules(client: &Client) -> Result<BTreeMap<Key, DeviceTaintRule>, ClusterError> {
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
            Err(source) => {
                return Err(ClusterError::Request {
                    what: "list of DeviceTaintRules",
                    source: Box::new(source),
                });
            }
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
