use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use crate::error::NvmlError;
use tessera_api::PciBusId;

/// An event reported by the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An error of a card, numbered as in NVIDIA's list of XIDs.
    Xid {
        /// The card; `None` if the driver can no longer tell, for example because the card is gone.
        card: Option<PciBusId>,
        /// The XID.
        xid: u64,
        /// The MIG GPU instance of the error.
        gpu_instance: Option<u32>,
        /// The MIG compute instance of the error.
        compute_instance: Option<u32>,
    },
    /// Events may have been missed: the driver no longer answers for one or all cards. The cards must be read again.
    Interrupted {
        /// The driver's message.
        error: NvmlError,
    },
}

/// Ends the watch when dropped; an event already on its way may still be delivered.
#[derive(Debug)]
#[must_use = "events stop when this is dropped"]
pub struct EventWatch {
    stopped: Arc<AtomicBool>,
    thread: Thread,
}

impl EventWatch {
    pub(crate) fn new(stopped: Arc<AtomicBool>, thread: Thread) -> Self {
        EventWatch { stopped, thread }
    }
}

impl Drop for EventWatch {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
