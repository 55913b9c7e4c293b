//! Requests to the API server, each with a time limit.

use std::{future::Future, time::Duration};

use k8s_openapi::{
    api::{
        core::v1::Node,
        resource::v1::{ResourceSlice, ResourceSliceSpec},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
    core::Request,
    runtime::watcher::{self, InitialListStrategy, watcher},
};

use crate::{
    desired::PoolIdentity,
    draft::Draft,
    failure::{Attempt, Failure, FailureKind},
    held_slice::{HeldContents, HeldSlice, same},
    plan::Write,
    store::SliceMetadata,
};

/// The manager's name in `managedFields` of our writes.
pub const FIELD_MANAGER: &str = "tessera-kubelet-plugin";
/// Longest wait for an answer. A server under load answers a write within a second or not at all (its own limit for etcd is
/// 5 s to 10 s).
const ANSWER: Duration = Duration::from_secs(15);
/// Slices in one answer to a list. A slice may have 100 KB, and a node some hundred slices.
const PAGE: u32 = 8;

/// The API server as used by the publisher.
#[derive(Clone)]
pub struct Server {
    client: Client,
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
}

/// A sent slice, as stored by the server.
#[derive(Debug)]
pub struct Answer {
    /// The stored slice.
    pub held: HeldSlice,
    /// The sent and the stored `spec`, if they differ.
    pub difference: Option<Box<(ResourceSliceSpec, ResourceSliceSpec)>>,
}

impl Server {
    /// The server behind `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { slices: Api::all(client.clone()), nodes: Api::all(client.clone()), client }
    }

    /// Watches the metadata of this driver's slices on this node. If the server supports it (`WatchList`, on by default since
    /// Kubernetes 1.34), the initial list is part of the watch.
    pub fn watch(
        &self,
        identity: &PoolIdentity,
        list: InitialListStrategy,
    ) -> impl futures::Stream<Item = watcher::Result<watcher::Event<SliceMetadata>>> + Send + use<> {
        let slices: Api<SliceMetadata> = Api::all(self.client.clone());
        let config = watcher::Config { initial_list_strategy: list, ..watcher::Config::default() };
        watcher(slices, config.fields(&fields(identity)))
    }

    /// Reads all slices of this driver on this node.
    ///
    /// # Errors
    /// A [`Failure`] of [`Attempt::Watch`], which needs the same rights.
    pub async fn list(&self, identity: &PoolIdentity) -> Result<Vec<HeldSlice>, Failure> {
        let mut parameters = ListParams::default().fields(&fields(identity)).limit(PAGE);
        let mut slices = Vec::new();
        loop {
            let page = self.slices.list(&parameters);
            let page = answer(Attempt::Watch, &identity.node_name, page).await?;
            slices.extend(page.items.into_iter().map(HeldSlice::from));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(slices),
            }
        }
    }

    /// The Node as owner of its slices, so that they are deleted with the Node.
    ///
    /// # Errors
    /// A [`Failure`] of [`Attempt::GetNode`].
    pub async fn owner(&self, node_name: &str) -> Result<OwnerReference, Failure> {
        let node = answer(Attempt::GetNode, node_name, self.nodes.get_metadata(node_name)).await?;
        let Some(uid) = node.metadata.uid else {
            return Err(Failure {
                attempt: Attempt::GetNode,
                name: node_name.to_owned(),
                kind: FailureKind::Server,
                text: "a Node without uid".to_owned(),
            });
        };
        Ok(OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node_name.to_owned(),
            uid,
            controller: Some(true),
            block_owner_deletion: None,
        })
    }

    /// The slice called `name`, if there is one, of any driver and node.
    ///
    /// # Errors
    /// A [`Failure`] of [`Attempt::Get`].
    pub async fn get(&self, name: &str) -> Result<Option<ResourceSlice>, Failure> {
        answer(Attempt::Get, name, self.slices.get_opt(name)).await
    }

    /// Sends `write`. Returns the stored slice; `None` after a deletion.
    ///
    /// # Errors
    /// A [`Failure`] of [`Attempt::Create`], [`Attempt::Update`] or [`Attempt::Delete`].
    pub async fn write(&self, write: &Write) -> Result<Option<Answer>, Failure> {
        let name = write.name();
        match write {
            Write::Create(draft) => {
                answer(Attempt::Create, name, self.send(draft, Verb::Create)).await.map(Some)
            }
            Write::Replace(draft) => {
                answer(Attempt::Update, name, self.send(draft, Verb::Replace)).await.map(Some)
            }
            Write::Delete(metadata) => {
                let preconditions = Preconditions {
                    uid: metadata.uid.clone(),
                    resource_version: metadata.resource_version.clone(),
                };
                let parameters = DeleteParams::default().preconditions(preconditions);
                answer(Attempt::Delete, name, self.slices.delete(name, &parameters)).await.map(|_| None)
            }
        }
    }

    /// The slice that the server would store if `draft` were created (a dry run).
    ///
    /// # Errors
    /// A [`Failure`] of [`Attempt::Create`].
    pub async fn dry_run(&self, draft: &Draft) -> Result<Answer, Failure> {
        answer(Attempt::Create, draft.name(), self.send(draft, Verb::DryRun)).await
    }

    /// Sends a slice and keeps only the needed part of the answer.
    async fn send(&self, draft: &Draft, verb: Verb) -> Result<Answer, kube::Error> {
        let parameters =
            PostParams { dry_run: verb == Verb::DryRun, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let sent = draft.slice();
        let body = serde_json::to_vec(&sent).map_err(kube::Error::SerdeError)?;
        let request = Request::new(ResourceSlice::url_path(&(), None));
        let request = match verb {
            Verb::Create | Verb::DryRun => request.create(&parameters, body),
            Verb::Replace => request.replace(draft.name(), &parameters, body),
        };
        // Not as the API's type, which takes much memory while other requests are awaited.
        drop(sent);
        let text = self.client.request_text(request.map_err(kube::Error::BuildRequest)?).await?;
        let held: ResourceSlice = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        let sent = draft.slice().spec;
        let difference = (!same(sent.clone(), &held.spec)).then(|| Box::new((sent, held.spec.clone())));
        let mut held = HeldSlice::from(held);
        if let (None, Some(spec)) = (&difference, &mut held.spec) {
            spec.contents = HeldContents::Same(draft.contents.clone());
        }
        Ok(Answer { held, difference })
    }
}

fn fields(identity: &PoolIdentity) -> String {
    let PoolIdentity { driver_name, node_name, .. } = identity;
    format!("spec.driver={driver_name},spec.nodeName={node_name}")
}

/// How a slice is sent.
#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Create,
    Replace,
    DryRun,
}

async fn answer<T>(
    attempt: Attempt,
    name: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(ANSWER, request).await {
        Ok(result) => result.map_err(|error| Failure::new(attempt, name, &error)),
        Err(_) => Err(Failure::slow(attempt, name, ANSWER)),
    }
}
