//! The controller against a real control plane: twenty nodes of published slices, real kube-scheduler and
//! kube-controller-manager; pods do not run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fleet;
mod instance;
mod pods;
mod pools;
mod steered;
