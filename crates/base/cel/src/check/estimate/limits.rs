//! The API's limits of devices: the ones of `resource.k8s.io/v1` used in upstream's declarations.

/// DriverNameMaxLength
pub(super) const DRIVER_NAME: u64 = 63;
/// ResourceSliceMaxAttributesAndCapacitiesPerDevice
pub(super) const ATTRIBUTES_AND_CAPACITIES: u64 = 32;
/// DeviceAttributeMaxValueLength; larger than the maximum of 48 elements in a list.
pub(super) const ATTRIBUTE_VALUE: u64 = 64;
/// ResourceSliceMaxAttributeValuesPerDevice
pub(super) const ATTRIBUTE_VALUES: u64 = 48;
/// DeviceMaxDomainLength
pub(super) const DOMAIN: u64 = 63;
/// DeviceMaxIDLength
pub(super) const IDENTIFIER: u64 = 32;
