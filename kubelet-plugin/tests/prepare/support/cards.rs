use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use tessera_nvml::{Identity, Nvml, NvmlError, PciAddress};

/// Cards that say what a test wants.
pub struct Cards {
    state: Mutex<State>,
}

struct State {
    cards: BTreeMap<PciAddress, Result<Identity, NvmlError>>,
    delay: Duration,
    calls: usize,
}

impl Cards {
    /// Cards `gpu-01-00`, `gpu-02-00`, … with minors from 0 and UUIDs `GPU-0`, `GPU-1`, ….
    pub fn new(count: u8) -> Self {
        let card = |index: u8| {
            let identity = Identity {
                index: index.into(),
                minor: index.into(),
                uuid: format!("GPU-{index}"),
                mig_mode: Some(false),
            };
            (address(index), Ok(identity))
        };
        let state = State { cards: (0..count).map(card).collect(), delay: Duration::ZERO, calls: 0 };
        Self { state: Mutex::new(state) }
    }

    pub fn change(&self, index: u8, change: impl FnOnce(&mut Identity)) {
        if let Some(Ok(identity)) = self.state.lock().unwrap().cards.get_mut(&address(index)) {
            change(identity);
        }
    }

    pub fn lose(&self, index: u8) {
        self.state.lock().unwrap().cards.insert(address(index), Err(lost()));
    }

    pub fn delay(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    /// How often a card was asked for.
    pub fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }
}

impl Nvml for Cards {
    fn identify(&self, address: PciAddress) -> Result<Identity, NvmlError> {
        let (answer, delay) = {
            let mut state = self.state.lock().unwrap();
            state.calls += 1;
            (state.cards.get(&address).cloned(), state.delay)
        };
        thread::sleep(delay);
        answer.unwrap_or_else(|| {
            Err(NvmlError::Call {
                function: "nvmlDeviceGetHandleByPciBusId_v2",
                code: 6,
                text: "Not Found".into(),
            })
        })
    }

    fn driver_version(&self) -> Result<String, NvmlError> {
        Ok("580.95.05".into())
    }
}

fn address(index: u8) -> PciAddress {
    PciAddress { domain: 0, bus: index + 1, device: 0 }
}

fn lost() -> NvmlError {
    NvmlError::Call { function: "nvmlDeviceGetUUID", code: 15, text: "GPU is lost".into() }
}
