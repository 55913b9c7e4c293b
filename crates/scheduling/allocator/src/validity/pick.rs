//! A device picked for a request, in the form for callers.

use crate::claim::DeviceRequest;
use crate::inventory::DeviceRef;

/// A device picked for a request, or for one of its alternatives.
#[derive(Debug, Clone, Copy)]
pub struct Pick<'i> {
    /// Place of the claim in the list.
    pub claim: usize,
    /// Place of the request in the claim.
    pub request: usize,
    /// Whether the request has admin access, without taking anything from others.
    pub has_admin_access: bool,
    /// The request's demand.
    pub ask: &'i DeviceRequest,
    /// The device.
    pub device: DeviceRef<'i>,
}

/// Whether picks may be had together.
pub type MayTake<'a> = &'a dyn Fn(&[Pick<'_>]) -> bool;
