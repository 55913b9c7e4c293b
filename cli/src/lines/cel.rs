//! Answers to CEL requests.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::resource::v1::{DeviceAttribute, DeviceCapacity};
use serde::Deserialize;
use serde_json::{Value, json};
use tessera_api::kubernetes::KubernetesVersion;
use tessera_cel::{CompileError, Environment, Selector};

use super::Answers;
use crate::devices;
use crate::quantities;

/// Number of cached compiled expressions; kube-scheduler keeps 10.
const KEPT: usize = 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    expression: String,
    #[serde(default)]
    driver: String,
    #[serde(default)]
    attributes: Option<BTreeMap<String, DeviceAttribute>>,
    #[serde(default)]
    capacity: Option<BTreeMap<String, DeviceCapacity>>,
    #[serde(default)]
    allow_multiple_allocations: Option<bool>,
    #[serde(default)]
    list_type_attributes: bool,
}

/// Answers CEL requests; caches compiled expressions.
#[derive(Debug, Default)]
pub struct Server {
    kubernetes: KubernetesVersion,
    compiled: HashMap<(String, bool), Result<Selector, CompileError>>,
}

impl Server {
    /// Answers as this release.
    pub fn new(kubernetes: KubernetesVersion) -> Self {
        Server { kubernetes, ..Self::default() }
    }
}

impl Answers for Server {
    fn answer(&mut self, mut request: Value) -> Result<Value, String> {
        quantities::as_text(&mut request);
        let request: Request = serde_path_to_error::deserialize(&request)
            .map_err(|error| format!("{} (at {})", error.inner(), error.path()))?;
        if self.compiled.len() >= KEPT {
            self.compiled.clear();
        }
        let Request { list_type_attributes, .. } = request;
        let environment = Environment { version: self.kubernetes, list_type_attributes };
        let key = (request.expression, request.list_type_attributes);
        let selector = self
            .compiled
            .entry(key)
            .or_insert_with_key(|(expression, _)| Selector::compile_with(expression, environment));
        let selector = match selector {
            Ok(selector) => selector,
            Err(error) => return Ok(json!({ "match": null, "compileError": error.to_string() })),
        };
        let device = devices::for_evaluation(
            &request.driver,
            request.attributes.as_ref(),
            request.capacity.as_ref(),
            request.allow_multiple_allocations == Some(true),
            environment.reads_lists(),
        )
        .map_err(|error| format!("a capacity is not a quantity: {error}"))?;
        let evaluation = selector.evaluate(&device);
        Ok(match evaluation.result {
            Ok(matches) => json!({ "match": matches, "cost": evaluation.cost }),
            Err(error) => {
                json!({ "match": null, "matchError": error.to_string(), "cost": evaluation.cost })
            }
        })
    }
}
