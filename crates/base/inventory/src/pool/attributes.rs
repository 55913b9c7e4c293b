//! Attributes of a device within the API's limits: values beyond a limit are left out with a warning, never cut.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::DeviceAttribute;
use tessera_api::{PciBusId, limits, version};

use crate::warning::Warning;

/// The attributes of a device by name.
pub type AttributeMap = BTreeMap<String, DeviceAttribute>;

/// Collects the attributes of one device. A fact with `None` is left out.
pub struct Attributes<'a> {
    card: PciBusId,
    values: AttributeMap,
    warnings: &'a mut Vec<Warning>,
}

impl<'a> Attributes<'a> {
    pub fn new(card: PciBusId, warnings: &'a mut Vec<Warning>) -> Self {
        Self::with(card, AttributeMap::new(), warnings)
    }

    /// Starts with existing attributes.
    pub fn with(card: PciBusId, values: AttributeMap, warnings: &'a mut Vec<Warning>) -> Self {
        Self { card, values, warnings }
    }

    /// A string; left out if too long or with control characters.
    pub fn string(&mut self, attribute: &'static str, value: Option<&str>) {
        let Some(value) = value.filter(|value| !value.is_empty()) else { return };
        if limits::is_string_value(value) && !value.chars().any(char::is_control) {
            self.put(
                attribute,
                DeviceAttribute { string: Some(value.to_owned()), ..DeviceAttribute::default() },
            );
        } else {
            self.warnings.push(Warning::Text { card: self.card, attribute, value: excerpt(value) });
        }
    }

    pub fn int(&mut self, attribute: &'static str, value: Option<impl Into<i64>>) {
        if let Some(value) = value {
            self.put(attribute, DeviceAttribute { int: Some(value.into()), ..DeviceAttribute::default() });
        }
    }

    pub fn bool(&mut self, attribute: &'static str, value: Option<bool>) {
        if value.is_some() {
            self.put(attribute, DeviceAttribute { bool: value, ..DeviceAttribute::default() });
        }
    }

    /// A semantic version, made by [`semantic_version`] or from numbers.
    pub fn version(&mut self, attribute: &'static str, value: Option<String>) {
        if value.is_some() {
            self.put(attribute, DeviceAttribute { version: value, ..DeviceAttribute::default() });
        }
    }

    pub fn into_map(self) -> AttributeMap {
        self.values
    }

    fn put(&mut self, attribute: &'static str, value: DeviceAttribute) {
        self.values.insert(attribute.to_owned(), value);
    }
}

/// A driver's version as a semantic version, with a warning where impossible.
pub fn semantic_version(
    attribute: &'static str,
    value: Option<&str>,
    warnings: &mut Vec<Warning>,
) -> Option<String> {
    let value = value.filter(|value| !value.is_empty())?;
    let version = version::coerce(value);
    if version.is_none() {
        warnings.push(Warning::Version { attribute, value: excerpt(value) });
    }
    version
}

fn excerpt(text: &str) -> String {
    text.chars().take(limits::ATTRIBUTE_VALUE_BYTES).collect()
}
