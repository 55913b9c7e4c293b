//! Requests to the API server, from its audit log, and the rights granted by RBAC.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde::Deserialize;

use super::{Cluster, ClusterError, ClusterRecord};

/// Logs the author and kind of requests. Only service accounts are of interest; kubelets and controllers would fill the log.
pub(super) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ['system:serviceaccounts']}
- {level: None}
";

/// HTTP status of a request without the needed right, or refused by admission.
const FORBIDDEN: u16 = 403;

/// A right in the terms of RBAC's rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// `get`, `list`, `associated-node:patch`, ….
    pub verb: String,
    /// API group; empty for the core.
    pub group: String,
    /// Resource, with its subresource where there is one: `pods/status`.
    pub resource: String,
}

impl fmt::Display for Right {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(formatter, "{verb} {resource}{dot}{group}")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    user: User,
    object_ref: Option<Object>,
    response_status: Option<Status>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    resource: String,
    #[serde(default)]
    api_group: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Deserialize)]
struct Status {
    code: u16,
}

impl ClusterRecord {
    pub(crate) fn audit_policy(&self) -> PathBuf {
        self.state.join("audit-policy.yaml")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.state.join("audit.log")
    }
}

impl Cluster {
    /// The rights used by a service account so far, each in at least one request that was not forbidden. Needs a
    /// cluster with [`ClusterOptions::audit`](super::ClusterOptions::audit). Additional checks of the API server for single
    /// fields are not included.
    ///
    /// # Errors
    /// The audit log is missing or malformed.
    pub fn rights_used(&self, namespace: &str, account: &str) -> Result<BTreeSet<String>, ClusterError> {
        let path = self.record.audit_log();
        let text = fs::read_to_string(&path).map_err(ClusterError::io(&path))?;
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let mut used = BTreeSet::new();
        // The last line may be half written.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let event: Event = serde_json::from_str(line).map_err(|error| {
                ClusterError::Configuration(format!("{}: {error}: {line}", path.display()))
            })?;
            let is_forbidden = event.response_status.is_some_and(|status| status.code == FORBIDDEN);
            let Some(object) = event.object_ref.filter(|_| event.user.username == user && !is_forbidden)
            else {
                continue;
            };
            let resource = match object.subresource.as_str() {
                "" => object.resource,
                subresource => format!("{}/{subresource}", object.resource),
            };
            used.insert(Right { verb: event.verb, group: object.api_group, resource }.to_string());
        }
        Ok(used)
    }

    /// The rights granted to a service account by bindings to its name, without rights of its groups.
    ///
    /// # Errors
    /// The API does not answer, or a role is missing.
    pub async fn rights_granted(
        &self,
        namespace: &str,
        account: &str,
    ) -> Result<BTreeSet<String>, ClusterError> {
        let client = self.client().await?;
        let all = ListParams::default();
        let is_ours = |subjects: &Option<Vec<Subject>>| {
            subjects.iter().flatten().any(|subject| {
                subject.kind == "ServiceAccount"
                    && subject.name == account
                    && subject.namespace.as_deref() == Some(namespace)
            })
        };
        let cluster_roles: Api<ClusterRole> = Api::all(client.clone());
        let rules_of = async |reference: &RoleRef, namespace: &str| {
            if reference.kind == "ClusterRole" {
                return Ok::<_, kube::Error>(cluster_roles.get(&reference.name).await?.rules);
            }
            let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
            Ok(roles.get(&reference.name).await?.rules)
        };
        let mut granted = BTreeSet::new();
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        for binding in bindings.list(&all).await?.items.iter().filter(|binding| is_ours(&binding.subjects)) {
            granted.extend(rights(rules_of(&binding.role_ref, "").await?));
        }
        let bindings: Api<RoleBinding> = Api::all(client.clone());
        for binding in bindings.list(&all).await?.items.iter().filter(|binding| is_ours(&binding.subjects)) {
            let within = binding.namespace().unwrap_or_default();
            granted.extend(rights(rules_of(&binding.role_ref, &within).await?));
        }
        Ok(granted)
    }
}

fn rights(rules: Option<Vec<PolicyRule>>) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for rule in rules.unwrap_or_default() {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let (verb, group, resource) = (verb.clone(), group.clone(), resource.clone());
                    rights.insert(Right { verb, group, resource }.to_string());
                }
            }
        }
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_grants_each_verb_on_each_resource() {
        let rule = PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["pods".to_owned(), "pods/status".to_owned()]),
            verbs: vec!["list".to_owned(), "watch".to_owned()],
            ..PolicyRule::default()
        };
        let expected = ["list pods", "list pods/status", "watch pods", "watch pods/status"];
        assert_eq!(rights(Some(vec![rule])), expected.map(str::to_owned).into());
    }

    #[test]
    fn a_right_names_its_group() {
        let right = Right { verb: "patch".into(), group: "x.io".into(), resource: "a/status".into() };
        assert_eq!(right.to_string(), "patch a/status.x.io");
    }
}
