//! The controller against a real control plane: twenty nodes of published slices, by real plugins in one of the
//! tests, real kube-scheduler and kube-controller-manager; pods do not run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod conversion;
mod extended_names;
mod faults;
mod fleet;
mod fleet_page;
mod gangs;
mod gather;
mod idle;
mod instance;
mod kueue;
mod load;
mod managed;
mod manifests;
mod mending;
mod plugins;
mod pods;
mod pools;
mod replay;
mod steered;
mod taint_rules;
mod teams;
