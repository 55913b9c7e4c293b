//! A claim's requests, in the allocator's form.

use std::sync::Arc;

use hashbrown::HashMap;
use k8s_openapi::api::resource::v1::{DeviceToleration, OpaqueDeviceConfiguration};

use crate::amount::Amount;

/// A ResourceClaim to allocate. Nothing is defaulted: the API server does that.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// Namespace; empty where there is none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `spec.devices.requests`
    pub requests: Vec<Request>,
    /// `spec.devices.constraints`
    pub constraints: Vec<Constraint>,
    /// `spec.devices.config`
    pub config: Vec<ClaimConfiguration>,
}

/// A request: one kind of device, or a list of alternatives.
#[derive(Debug, Clone)]
pub struct Request {
    /// Name, unique in the claim.
    pub name: String,
    /// The requested devices.
    pub ask: Ask,
}

/// Content of a request.
#[derive(Debug, Clone)]
pub enum Ask {
    /// `exactly`
    Exactly(DeviceRequest),
    /// `firstAvailable`, never empty: the first alternative leading to a solution.
    FirstAvailable(Vec<DeviceRequest>),
    /// Neither: a request of a future API.
    Unknown,
}

/// An `exactly` or one of the alternatives of `firstAvailable`.
#[derive(Debug, Clone, Default)]
pub struct DeviceRequest {
    /// Name of the request, or of the subrequest.
    pub name: String,
    /// `deviceClassName`
    pub class: String,
    /// Expressions of the selectors; None for a selector of an unknown kind.
    pub selectors: Vec<Option<Arc<str>>>,
    /// `allocationMode`, as written.
    pub allocation_mode: String,
    /// `count`; 0 if not set.
    pub count: i64,
    /// `adminAccess`; None if not set.
    pub admin_access: Option<bool>,
    /// `tolerations`
    pub tolerations: Vec<DeviceToleration>,
    /// `capacity`; None if not set.
    pub capacity: Option<Vec<(String, Amount)>>,
    /// `derivedAttributes` has entries; their content is not read.
    pub has_derived_attributes: bool,
}

/// A constraint between devices.
#[derive(Debug, Clone)]
pub struct Constraint {
    /// Names of the requests (`request` or `request/subrequest`) under the constraint; all if empty.
    pub requests: Vec<String>,
    /// The rule.
    pub rule: Rule,
}

/// A rule between devices.
#[derive(Debug, Clone)]
pub enum Rule {
    /// All have the attribute with the same value.
    MatchAttribute(String),
    /// All have the attribute with different values.
    DistinctAttribute(String),
    /// A rule of a future API.
    Unknown,
}

/// Configuration from the claim.
#[derive(Debug, Clone)]
pub struct ClaimConfiguration {
    /// `requests`: the requests for this configuration; all if empty.
    pub requests: Vec<String>,
    /// `opaque`
    pub opaque: Option<OpaqueDeviceConfiguration>,
}

/// A DeviceClass.
#[derive(Debug, Clone, Default)]
pub struct Class {
    /// Name.
    pub name: String,
    /// Expressions of the selectors; None for a selector of an unknown kind.
    pub selectors: Vec<Option<Arc<str>>>,
    /// `config`
    pub config: Vec<Option<OpaqueDeviceConfiguration>>,
}

/// The DeviceClasses by name.
#[derive(Debug, Clone, Default)]
pub struct Classes(HashMap<String, Class>);

impl FromIterator<Class> for Classes {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        let mut all = HashMap::new();
        for class in classes {
            // The first of two classes with the same name counts.
            all.entry(class.name.clone()).or_insert(class);
        }
        Classes(all)
    }
}

impl Classes {
    /// Adds a class, replacing one of its name.
    pub fn insert(&mut self, class: Class) {
        self.0.insert(class.name.clone(), class);
    }

    /// Removes the class with this name.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The class with this name.
    pub fn get(&self, name: &str) -> Option<&Class> {
        self.0.get(name)
    }
}

impl Claim {
    /// `namespace/name`, or the name alone.
    pub fn reference(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

impl Constraint {
    /// The constraint's attribute; `None` for a constraint of an unknown kind.
    pub fn attribute(&self) -> Option<&str> {
        match &self.rule {
            Rule::MatchAttribute(name) | Rule::DistinctAttribute(name) => Some(name),
            Rule::Unknown => None,
        }
    }
}

impl DeviceRequest {
    /// Whether the request is for all devices.
    pub fn is_all(&self) -> bool {
        self.allocation_mode == "All"
    }

    /// Whether the request is for admin access.
    pub fn has_admin_access(&self) -> bool {
        self.admin_access.unwrap_or(false)
    }
}
