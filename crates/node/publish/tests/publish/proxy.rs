//! The proxy in front of the API server of the cluster that all tests share, with clients as the plugin has.

use std::ops::Deref;

use kube::{Client, Config};
pub use tessera_fakes::proxy::{Act, Fault, refusal};

use crate::support::administrator;

/// The proxy; it ends with the test's runtime.
pub struct Proxy(tessera_fakes::proxy::Proxy);

impl Proxy {
    pub async fn new() -> Self {
        Self::before(administrator().await).await
    }

    pub async fn before(config: Config) -> Self {
        Self(tessera_fakes::proxy::Proxy::before(config).await)
    }

    /// A client as the plugin has, through the proxy.
    pub fn client(&self) -> Client {
        let url = self.url().parse().expect("a URL");
        tessera_kube_util::client::connect(Config::new(url)).expect("a client")
    }
}

impl Deref for Proxy {
    type Target = tessera_fakes::proxy::Proxy;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
