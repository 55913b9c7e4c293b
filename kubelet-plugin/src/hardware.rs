//! The driver library, which may come and go: a node can boot before its driver is installed.

use std::sync::Arc;

use tessera_nvml::Nvml;
use tokio::sync::watch;

/// The open driver library; `None` while it is missing, too old or finds no cards. The reason is logged by whoever
/// keeps the sender, and is in [`crate::run`].
pub type Hardware = watch::Receiver<Option<Arc<dyn Nvml>>>;
