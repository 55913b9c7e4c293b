//! The API's limits of devices: those of `resource.k8s.io/v1` that upstream's declarations use.

/// DriverNameMaxLength
pub(super) const DRIVER_NAME: u64 = 63;
/// ResourceSliceMaxAttributesAndCapacitiesPerDevice
pub(super) const ATTRIBUTES_AND_CAPACITIES: u64 = 32;
/// DeviceAttributeMaxValueLength; larger than the 48 elements that a list may have.
pub(super) const ATTRIBUTE_VALUE: u64 = 64;
/// ResourceSliceMaxAttributeValuesPerDevice
pub(super) const ATTRIBUTE_VALUES: u64 = 48;
/// DeviceMaxDomainLength
pub(super) const DOMAIN: u64 = 63;
/// DeviceMaxIDLength
pub(super) const IDENTIFIER: u64 = 32;
