//! Requests to the API server.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use super::LeaseOptions;
use super::election::{Request, holder};
use crate::error_text::{shorten, with_causes};

/// The API server's code for an existing or meanwhile changed object.
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// Attempts at the release when somebody else changes the Lease at the same time.
const ATTEMPTS: usize = 3;

/// Length of an error's text, in bytes.
const LONGEST_TEXT: usize = 500;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The Lease changed, exists already, or is gone.
    #[error("it changed meanwhile")]
    Conflict,
    #[error("no answer within {0:?}")]
    Silence(Duration),
    #[error("{}", shorten(&with_causes(.0), LONGEST_TEXT))]
    Other(#[source] kube::Error),
}

impl Failure {
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict)
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == CONFLICT => Self::Conflict,
            error => Self::Other(error),
        }
    }
}

/// The Lease at the API server.
pub(super) struct Leases {
    api: Api<Lease>,
    namespace: String,
    name: String,
    holder: String,
}

impl fmt::Display for Leases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl Leases {
    pub(super) fn new(client: Client, options: &LeaseOptions) -> Self {
        Self {
            api: Api::namespaced(client, &options.namespace),
            namespace: options.namespace.clone(),
            name: options.name.clone(),
            holder: options.holder.clone(),
        }
    }

    /// The Lease after the request; `None` if absent.
    pub(super) async fn send(&self, request: &Request) -> Result<Option<Lease>, Failure> {
        let parameters = PostParams::default();
        match request {
            Request::Read => Ok(self.api.get_opt(&self.name).await?),
            Request::Create(spec) => {
                let mut lease = Lease { spec: Some((**spec).clone()), ..Lease::default() };
                lease.metadata.name = Some(self.name.clone());
                Ok(Some(self.api.create(&parameters, &lease).await?))
            }
            Request::Update(lease) => Ok(Some(self.replace(lease).await?)),
        }
    }

    /// Empties the holder if we are the holder.
    pub(super) async fn release(&self) -> Result<(), Failure> {
        for _ in 0..ATTEMPTS {
            let Some(lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            if holder(&lease) != Some(&self.holder) {
                return Ok(());
            }
            let spec = LeaseSpec { holder_identity: Some(String::new()), ..lease.spec.unwrap_or_default() };
            let lease = Lease { spec: Some(spec), ..lease };
            match self.replace(&lease).await {
                Err(Failure::Conflict) => {}
                answer => return answer.map(drop),
            }
        }
        Err(Failure::Conflict)
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, Failure> {
        match self.api.replace(&self.name, &PostParams::default(), lease).await {
            // Unlike at a creation, where the namespace is missing.
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Err(Failure::Conflict),
            answer => Ok(answer?),
        }
    }
}
