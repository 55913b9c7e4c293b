use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::{Cluster, ClusterError, ClusterRecord};

/// The administrator.
pub(super) const ADMIN: &str = "admin";
/// kube-controller-manager.
pub(super) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// kube-scheduler.
pub(super) const SCHEDULER: &str = "system:kube-scheduler";

/// User name of a node's kubelet.
pub(super) fn node_user(node: &str) -> String {
    format!("system:node:{node}")
}

/// A token for each user.
pub(super) fn tokens(nodes: impl Iterator<Item = String>) -> Result<BTreeMap<String, String>, ClusterError> {
    let mut random = fs::File::open("/dev/urandom").map_err(ClusterError::io(Path::new("/dev/urandom")))?;
    let users = [ADMIN, CONTROLLER_MANAGER, SCHEDULER]
        .map(str::to_owned)
        .into_iter()
        .chain(nodes.map(|name| node_user(&name)));
    users
        .map(|user| {
            let mut bytes = [0; 16];
            random.read_exact(&mut bytes).map_err(ClusterError::io(Path::new("/dev/urandom")))?;
            Ok((user, bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
        })
        .collect()
}

/// The API server's list of tokens, users and groups.
pub(super) fn token_file(tokens: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (user, token) in tokens {
        let group = match user.as_str() {
            // kube-controller-manager acts for all its controllers at once; its own role lacks some of their rights.
            ADMIN | CONTROLLER_MANAGER => "system:masters",
            name if name.starts_with("system:node:") => "system:nodes",
            _ => "",
        };
        let _ = writeln!(text, "{token},{user},{user},\"{group}\"");
    }
    text
}

/// A kubeconfig file's content (JSON is valid YAML).
pub(super) fn kubeconfig(server: &str, authority: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "tessera", "cluster": { "server": server, "certificate-authority-data": base64(authority.as_bytes()) } }],
        "users": [{ "name": "user", "user": { "token": token } }],
        "contexts": [{ "name": "tessera", "context": { "cluster": "tessera", "user": "user" } }],
        "current-context": "tessera",
    })
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let index = (number >> (18 - 6 * position)) as usize & 63;
            text.push(if position <= chunk.len() { char::from(ALPHABET[index]) } else { '=' });
        }
    }
    text
}

impl ClusterRecord {
    pub(super) fn outside_server(&self) -> String {
        format!("https://127.0.0.1:{}", self.outside_port)
    }

    pub(super) fn config(&self, user: &str) -> Result<Kubeconfig, ClusterError> {
        let token = self
            .tokens
            .get(user)
            .ok_or_else(|| ClusterError::Configuration(format!("the cluster has no user {user}")))?;
        self.config_with_token(token)
    }

    fn config_with_token(&self, token: &str) -> Result<Kubeconfig, ClusterError> {
        let path = self.state.join("pki/ca.crt");
        let authority = fs::read_to_string(&path).map_err(ClusterError::io(&path))?;
        serde_json::from_value(kubeconfig(&self.outside_server(), &authority, token))
            .map_err(|error| ClusterError::Configuration(error.to_string()))
    }
}

/// A new client, bound to the caller's runtime.
pub(super) async fn client(config: Kubeconfig) -> Result<Client, ClusterError> {
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .map_err(|error| ClusterError::Configuration(error.to_string()))?;
    Ok(Client::try_from(config)?)
}

impl Cluster {
    /// The administrator's kubeconfig, for use on this machine outside the cluster.
    pub fn kubeconfig(&self) -> PathBuf {
        self.record.state.join("admin.kubeconfig")
    }

    /// A client with all rights. Each call makes a new one, bound to the caller's runtime: tests sharing
    /// a cluster each have their own.
    ///
    /// # Errors
    /// The cluster's certificate cannot be read.
    pub async fn client(&self) -> Result<Client, ClusterError> {
        client(self.record.config(ADMIN)?).await
    }

    /// A client with the rights of a node's kubelet.
    ///
    /// # Errors
    /// The node is not among those the cluster was started with.
    pub async fn client_for_node(&self, node: &str) -> Result<Client, ClusterError> {
        client(self.record.config(&node_user(node))?).await
    }

    /// A client with the rights of an existing service account.
    ///
    /// # Errors
    /// There is no such account.
    pub async fn client_for_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Client, ClusterError> {
        client(self.service_account_config(namespace, name, None).await?).await
    }

    /// A kubeconfig with the rights of an existing service account. With `pod`, a name and UID, the token is bound to
    /// this pod, like tokens mounted in pods, and then also names the pod's node.
    ///
    /// # Errors
    /// The account or pod does not exist.
    pub async fn service_account_config(
        &self,
        namespace: &str,
        name: &str,
        pod: Option<(&str, &str)>,
    ) -> Result<Kubeconfig, ClusterError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let bound = pod.map(|(name, uid)| k8s_openapi::api::authentication::v1::BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
        });
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { bound_object_ref: bound, ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let token = answer.status.and_then(|status| status.token).unwrap_or_default();
        self.record.config_with_token(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_rfc_4648_section_10_says() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn every_user_has_a_token_of_its_own() {
        let tokens = tokens(["node-a".to_owned(), "node-b".to_owned()].into_iter()).unwrap();
        assert_eq!(tokens.len(), 5);
        assert_eq!(tokens.values().collect::<std::collections::BTreeSet<_>>().len(), 5);
        let file = token_file(&tokens);
        assert!(file.contains(",system:node:node-b,system:node:node-b,\"system:nodes\""), "{file}");
        assert!(file.contains(",system:kube-scheduler,system:kube-scheduler,\"\""), "{file}");
    }
}
