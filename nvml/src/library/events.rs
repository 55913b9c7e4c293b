use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings as sys;

use super::Library;
use super::functions::{EventSetHandle, RawEvent};
use crate::{Event, EventWatch, NvmlError};

/// How long one wait lasts, and so how long a watch may outlive its [`EventWatch`].
const WAIT: Duration = Duration::from_millis(500);

/// Pause before listening anew when the driver failed again soon: a lost card may make every wait fail at once. What
/// happens in it is not heard of.
const PAUSE: Duration = Duration::from_secs(5);

/// What there is to hear of. ECC events are left out: what matters of them comes as an XID too.
const KINDS: u64 = sys::nvmlEventTypeXidCriticalError as u64;

/// Begins to listen.
pub(super) fn watch(library: Library, sink: Box<dyn FnMut(Event) + Send>) -> Result<EventWatch, NvmlError> {
    let set = EventSet::create(library.clone())?;
    let stopped = Arc::new(AtomicBool::new(false));
    let listener = Listener { library, sink, stopped: Arc::clone(&stopped) };
    let thread = thread::Builder::new()
        .name("nvml-events".to_owned())
        .spawn(move || listener.run(set))
        .map_err(|error| NvmlError::NoThread { reason: error.to_string() })?;
    Ok(EventWatch::new(stopped, thread.thread().clone()))
}

/// A set that hears of every card that could be registered.
struct EventSet {
    library: Library,
    handle: EventSetHandle,
}

struct Listener {
    library: Library,
    sink: Box<dyn FnMut(Event) + Send>,
    stopped: Arc<AtomicBool>,
}

impl EventSet {
    fn create(library: Library) -> Result<Self, NvmlError> {
        let handle = library.session.functions.create_event_set()?;
        Ok(EventSet { library, handle })
    }

    /// Slow where the driver has to wake the cards up first.
    fn register(&self) -> Result<(), NvmlError> {
        let functions = &self.library.session.functions;
        for index in 0..functions.count()? {
            let registered = functions.handle_by_index(index).and_then(|card| {
                let kinds = functions.event_kinds(card)? & KINDS;
                if kinds == 0 { Ok(()) } else { functions.register_events(card, kinds, self.handle) }
            });
            if let Err(error) = registered {
                tracing::debug!(index, %error, "no events of this card");
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<Option<RawEvent>, NvmlError> {
        match self.library.session.functions.wait_for_event(self.handle, WAIT) {
            Ok(event) => Ok(Some(event)),
            Err(NvmlError::Call { code: sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        if let Err(error) = self.library.session.functions.free_event_set(self.handle) {
            tracing::debug!(%error, "an event set was not freed");
        }
    }
}

impl Listener {
    fn run(mut self, set: EventSet) {
        let mut created = Ok(set);
        let mut failing = false;
        let mut failed: Option<Instant> = None;
        while !self.stopped.load(Ordering::Acquire) {
            if let Err(error) = created.and_then(|set| self.listen(&set, &mut failing)) {
                if !failing {
                    (self.sink)(Event::Interrupted { error });
                }
                failing = true;
                // What took one card down often takes others down with it: the first time there is no pause.
                if failed.replace(Instant::now()).is_some_and(|last| last.elapsed() < PAUSE) {
                    self.pause();
                }
            }
            created = EventSet::create(self.library.clone());
        }
    }

    /// Until stopped, or until the driver fails.
    fn listen(&mut self, set: &EventSet, failing: &mut bool) -> Result<(), NvmlError> {
        set.register()?;
        while !self.stopped.load(Ordering::Acquire) {
            if let Some(event) = set.wait()?.filter(|event| event.kinds & KINDS != 0) {
                self.report(&event);
            }
            *failing = false;
        }
        Ok(())
    }

    fn report(&mut self, event: &RawEvent) {
        let card = event.card.and_then(|card| self.library.session.functions.address(card).ok());
        (self.sink)(Event::Xid {
            card,
            xid: event.data,
            gpu_instance: event.gpu_instance,
            compute_instance: event.compute_instance,
        });
    }

    fn pause(&self) {
        let end = Instant::now() + PAUSE;
        while !self.stopped.load(Ordering::Acquire) {
            match end.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => thread::park_timeout(left),
                _ => return,
            }
        }
    }
}
