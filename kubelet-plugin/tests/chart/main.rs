//! The chart, rendered by helm and installed on a real API server, and the DeviceClasses shared with
//! `deviceclasses/`.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests, not only tests")]

mod admission_policy;
mod configuration_policy;
mod controller;
mod conversion;
mod device_classes;
mod device_status;
mod kinds;
mod managed;
mod monitoring;
mod moving_in;
mod mps_host;
mod one_share;
mod privileged;
mod rights;
mod steering;
mod support;
mod values;
