//! Devices as selectors see them.

use std::collections::BTreeMap;

use tessera_api::quantity::{Quantity, QuantityError};

use crate::version::Version;

/// The value of an attribute.
#[derive(Debug, Clone, Copy)]
pub enum AttributeValue<'v> {
    /// `int`
    Int(i64),
    /// `bool`
    Bool(bool),
    /// `string`
    String(&'v str),
    /// `version`, parsed
    Version(&'v Version),
    /// `intValues`, where lists can be read: [`crate::Environment::reads_lists`]
    Ints(&'v [i64]),
    /// `boolValues`
    Bools(&'v [bool]),
    /// `stringValues`
    Strings(&'v [String]),
    /// `versionValues`, parsed
    Versions(&'v [Version]),
}

/// A device from a selector's view: borrowed, so evaluating copies nothing.
///
/// Attributes and capacities have a domain and a name; a name published without a domain is in the driver's. Both
/// lists may be in any order.
pub trait DeviceView {
    /// Name of the driver.
    fn driver(&self) -> &str;

    /// `allowMultipleAllocations`, false if not set.
    fn allow_multiple_allocations(&self) -> bool;

    /// Number of attributes.
    fn attribute_count(&self) -> usize;

    /// Domain, name and value of the attribute at `index`, below [`Self::attribute_count`].
    fn attribute_at(&self, index: usize) -> (&str, &str, AttributeValue<'_>);

    /// Number of capacities.
    fn capacity_count(&self) -> usize;

    /// Domain, name and value of the capacity at `index`, below [`Self::capacity_count`].
    fn capacity_at(&self, index: usize) -> (&str, &str, &Quantity);

    /// The attribute of this domain and name; by default found by a linear search.
    fn attribute(&self, domain: &str, name: &str) -> Option<AttributeValue<'_>> {
        (0..self.attribute_count()).map(|index| self.attribute_at(index)).find_map(
            |(found_domain, found_name, value)| {
                (found_name == name && found_domain == domain).then_some(value)
            },
        )
    }

    /// The capacity of this domain and name; by default found by a linear search.
    fn capacity(&self, domain: &str, name: &str) -> Option<&Quantity> {
        (0..self.capacity_count()).map(|index| self.capacity_at(index)).find_map(
            |(found_domain, found_name, value)| {
                (found_name == name && found_domain == domain).then_some(value)
            },
        )
    }

    /// A defect of the device itself, such as `attribute a: unsupported attribute value`: every selector then
    /// fails with this error, whichever parts it reads.
    fn defect(&self) -> Option<&str> {
        None
    }
}

/// An attribute as published, before parsing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishedAttribute {
    /// `int`
    Int(i64),
    /// `bool`
    Bool(bool),
    /// `string`
    String(String),
    /// `version`, a semantic version's text
    Version(String),
    /// `intValues`
    Ints(Vec<i64>),
    /// `boolValues`
    Bools(Vec<bool>),
    /// `stringValues`
    Strings(Vec<String>),
    /// `versionValues`
    Versions(Vec<String>),
    /// A field unknown to Kubernetes.
    Unknown,
}

#[derive(Debug, Clone)]
enum Stored {
    Int(i64),
    Bool(bool),
    String(String),
    Version(Version),
    Ints(Vec<i64>),
    Bools(Vec<bool>),
    Strings(Vec<String>),
    Versions(Vec<Version>),
}

impl Stored {
    fn view(&self) -> AttributeValue<'_> {
        match self {
            Stored::Int(value) => AttributeValue::Int(*value),
            Stored::Bool(value) => AttributeValue::Bool(*value),
            Stored::String(value) => AttributeValue::String(value),
            Stored::Version(value) => AttributeValue::Version(value),
            Stored::Ints(values) => AttributeValue::Ints(values),
            Stored::Bools(values) => AttributeValue::Bools(values),
            Stored::Strings(values) => AttributeValue::Strings(values),
            Stored::Versions(values) => AttributeValue::Versions(values),
        }
    }
}

/// A device owning its attributes and capacities, each parsed once.
#[derive(Debug, Clone, Default)]
pub struct Device {
    driver: String,
    allow_multiple_allocations: bool,
    attributes: Vec<(String, String, Stored)>,
    capacity: Vec<(String, String, Quantity)>,
    defect: Option<String>,
}

impl Device {
    /// A device of this driver without attributes.
    pub fn new(driver: impl Into<String>) -> Self {
        Device { driver: driver.into(), ..Device::default() }
    }

    /// Sets `allowMultipleAllocations`.
    #[must_use]
    pub fn with_multiple_allocations(mut self, allowed: bool) -> Self {
        self.allow_multiple_allocations = allowed;
        self
    }

    /// Adds attributes by their published names (`name` or `domain/name`).
    ///
    /// A value unusable for Kubernetes (an unparsable version, an unknown kind, a list while
    /// `reads_lists` is off) makes every selector fail on this device, as in Kubernetes.
    #[must_use]
    pub fn with_attributes(
        mut self,
        attributes: &BTreeMap<String, PublishedAttribute>,
        reads_lists: bool,
    ) -> Self {
        for (name, published) in attributes {
            match store(published, reads_lists) {
                Ok(stored) => {
                    let (domain, id) = split_name(name, &self.driver);
                    self.attributes.push((domain.to_owned(), id.to_owned(), stored));
                }
                Err(reason) => {
                    self.defect.get_or_insert_with(|| format!("attribute {name}: {reason}"));
                }
            }
        }
        self
    }

    /// Adds capacities by their published names.
    ///
    /// # Errors
    /// A value is not a quantity: such a device cannot be published.
    pub fn with_capacity(mut self, capacity: &BTreeMap<String, String>) -> Result<Self, QuantityError> {
        for (name, value) in capacity {
            let (domain, id) = split_name(name, &self.driver);
            self.capacity.push((domain.to_owned(), id.to_owned(), Quantity::parse(value)?));
        }
        Ok(self)
    }
}

/// Domain and name of a published name; without a domain, the driver's.
pub fn split_name<'n>(name: &'n str, driver: &'n str) -> (&'n str, &'n str) {
    name.split_once('/').unwrap_or((driver, name))
}

fn store(published: &PublishedAttribute, reads_lists: bool) -> Result<Stored, String> {
    let version =
        |text: &String| Version::parse(text).map_err(|error| format!("parse semantic version: {error}"));
    Ok(match published {
        PublishedAttribute::Int(value) => Stored::Int(*value),
        PublishedAttribute::Bool(value) => Stored::Bool(*value),
        PublishedAttribute::String(value) => Stored::String(value.clone()),
        PublishedAttribute::Version(value) => Stored::Version(version(value)?),
        PublishedAttribute::Ints(values) if reads_lists => Stored::Ints(values.clone()),
        PublishedAttribute::Bools(values) if reads_lists => Stored::Bools(values.clone()),
        PublishedAttribute::Strings(values) if reads_lists => Stored::Strings(values.clone()),
        PublishedAttribute::Versions(values) if reads_lists => {
            Stored::Versions(values.iter().map(version).collect::<Result<_, _>>()?)
        }
        _ => return Err("unsupported attribute value".to_owned()),
    })
}

impl DeviceView for Device {
    fn driver(&self) -> &str {
        &self.driver
    }

    fn allow_multiple_allocations(&self) -> bool {
        self.allow_multiple_allocations
    }

    fn attribute_count(&self) -> usize {
        self.attributes.len()
    }

    fn attribute_at(&self, index: usize) -> (&str, &str, AttributeValue<'_>) {
        let (domain, name, stored) = &self.attributes[index];
        (domain, name, stored.view())
    }

    fn attribute(&self, domain: &str, name: &str) -> Option<AttributeValue<'_>> {
        let found = self.attributes.iter().find(|(of, called, _)| called == name && of == domain);
        found.map(|(_, _, stored)| stored.view())
    }

    fn capacity(&self, domain: &str, name: &str) -> Option<&Quantity> {
        let found = self.capacity.iter().find(|(of, called, _)| called == name && of == domain);
        found.map(|(_, _, value)| value)
    }

    fn capacity_count(&self) -> usize {
        self.capacity.len()
    }

    fn capacity_at(&self, index: usize) -> (&str, &str, &Quantity) {
        let (domain, name, value) = &self.capacity[index];
        (domain, name, value)
    }

    fn defect(&self) -> Option<&str> {
        self.defect.as_deref()
    }
}
