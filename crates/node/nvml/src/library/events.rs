use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings as sys;

use super::Library;
use super::functions::{EventSetHandle, Handle, RawEvent};
use crate::error::NvmlError;
use crate::event::{Event, EventWatch};
use tessera_api::PciBusId;

/// Duration of one wait, and so the longest time a watch outlives its [`EventWatch`].
const WAIT: Duration = Duration::from_millis(500);

/// Pause before listening again after repeated failures: a lost card may make every wait fail immediately. Events
/// during the pause are missed.
const PAUSE: Duration = Duration::from_secs(5);

/// The events to listen for. Not ECC events: the important ones also come as an XID.
const KINDS: u64 = sys::nvmlEventTypeXidCriticalError as u64;

/// Starts listening.
pub(super) fn watch(library: Library, sink: Box<dyn FnMut(Event) + Send>) -> Result<EventWatch, NvmlError> {
    let set = EventSet::create(library.clone())?;
    let stopped = Arc::new(AtomicBool::new(false));
    let registering = BTreeMap::new();
    let listener = Listener { library, sink, stopped: Arc::clone(&stopped), registering };
    let thread = thread::Builder::new()
        .name("nvml-events".to_owned())
        .spawn(move || listener.run(set))
        .map_err(|error| NvmlError::NoThread { reason: error.to_string() })?;
    Ok(EventWatch::new(stopped, thread.thread().clone()))
}

/// Timeout for registering cards before listening to the others.
const REGISTRATION: Duration = Duration::from_secs(5);

/// An event set with every registered card.
struct EventSet {
    library: Library,
    handle: EventSetHandle,
    /// Its cards, to find an event's card without a call of the driver, which may hang for the very reason of the
    /// event.
    cards: Mutex<Vec<(Handle, PciBusId)>>,
}

struct Listener {
    library: Library,
    sink: Box<dyn FnMut(Event) + Send>,
    stopped: Arc<AtomicBool>,
    /// For each card, by its index, the last thread registering the card. While the driver hangs in this thread, no other is
    /// started.
    registering: BTreeMap<u32, JoinHandle<()>>,
}

impl EventSet {
    fn create(library: Library) -> Result<Self, NvmlError> {
        let handle = library.session.functions.create_event_set()?;
        Ok(EventSet { library, handle, cards: Mutex::default() })
    }

    /// Slow if the driver has to wake up the card first.
    fn register(&self, index: u32) {
        let functions = &self.library.session.functions;
        let registered = functions.handle_by_index(index).and_then(|card| {
            let kinds = functions.event_kinds(card)? & KINDS;
            if kinds == 0 {
                return Ok(());
            }
            let address = functions.address(card)?;
            self.cards().push((card, address));
            functions.register_events(card, kinds, self.handle)
        });
        if let Err(error) = registered {
            tracing::debug!(index, %error, "no events of this card");
        }
    }

    fn cards(&self) -> MutexGuard<'_, Vec<(Handle, PciBusId)>> {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
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
            if let Err(error) = created.and_then(|set| self.listen(&Arc::new(set), &mut failing)) {
                if !failing {
                    (self.sink)(Event::Interrupted { error });
                }
                failing = true;
                // One cause often takes several cards down, so there is no pause the first time.
                if failed.replace(Instant::now()).is_some_and(|last| last.elapsed() < PAUSE) {
                    self.pause();
                }
            }
            created = EventSet::create(self.library.clone());
        }
    }

    /// Runs until stopped, or until the driver fails.
    fn listen(&mut self, set: &Arc<EventSet>, failing: &mut bool) -> Result<(), NvmlError> {
        let mut missing: Vec<u32> = (0..self.library.session.functions.count()?).collect();
        let begun = Instant::now();
        self.register(set, &mut missing);
        while begun.elapsed() < REGISTRATION && !self.registering.values().all(JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(1));
        }
        while !self.stopped.load(Ordering::Acquire) {
            self.register(set, &mut missing);
            if let Some(event) = set.wait()?.filter(|event| event.kinds & KINDS != 0) {
                self.report(set, &event);
            }
            *failing = false;
        }
        Ok(())
    }

    /// Registers cards, each on a thread of its own; cards whose earlier thread has not ended stay `missing`.
    fn register(&mut self, set: &Arc<EventSet>, missing: &mut Vec<u32>) {
        missing.retain(|&index| {
            if self.registering.get(&index).is_some_and(|thread| !thread.is_finished()) {
                return true;
            }
            let set = Arc::clone(set);
            let thread = thread::Builder::new().name("nvml-register".to_owned());
            match thread.spawn(move || set.register(index)) {
                Ok(thread) => drop(self.registering.insert(index, thread)),
                Err(error) => tracing::warn!(index, %error, "no thread to listen to this card"),
            }
            false
        });
    }

    fn report(&mut self, set: &EventSet, event: &RawEvent) {
        let known = |card: Handle| {
            let cards = set.cards();
            cards.iter().find(|(handle, _)| *handle == card).map(|(_, address)| *address)
        };
        let functions = &self.library.session.functions;
        let card = event.card.and_then(|card| known(card).or_else(|| functions.address(card).ok()));
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
