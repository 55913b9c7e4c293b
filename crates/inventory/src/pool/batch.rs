//! Collects devices into slices, with no more than one slice's devices unpacked at a time.

use k8s_openapi::api::resource::v1::Device;
use tessera_api::limits;

use super::PackedContents;

/// The devices of one complete slice.
pub trait Batch {
    /// Takes up to [`limits::ADVANCED_DEVICES_PER_SLICE`] devices.
    fn of(devices: Vec<Device>) -> Self;
    /// Returns them.
    fn into_devices(self) -> Vec<Device>;
    /// Their number.
    fn len(&self) -> usize;
    /// Their names, in order.
    fn names(&self) -> impl Iterator<Item = &str>;
}

impl Batch for Vec<Device> {
    fn of(devices: Vec<Device>) -> Self {
        devices
    }

    fn into_devices(self) -> Vec<Device> {
        self
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|device| device.name.as_str())
    }
}

impl Batch for PackedContents {
    fn of(devices: Vec<Device>) -> Self {
        Self::of_devices(&devices)
    }

    fn into_devices(self) -> Vec<Device> {
        match self.unpack() {
            super::Contents::Devices(devices) => devices,
            super::Contents::SharedCounters(_) => Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.device_names().len()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.device_names().iter().map(|name| &**name)
    }
}

/// A list of devices in batches, all of them full but the last.
pub struct Batches<B> {
    closed: Vec<B>,
    open: Vec<Device>,
}

impl<B> Default for Batches<B> {
    fn default() -> Self {
        Self { closed: Vec::new(), open: Vec::new() }
    }
}

impl<B: Batch> Batches<B> {
    /// Adds a device at the end.
    pub fn push(&mut self, device: Device) {
        if self.open.is_empty()
            && let Some(last) = self.closed.pop_if(|last| last.len() < limits::ADVANCED_DEVICES_PER_SLICE)
        {
            self.open = last.into_devices();
        }
        self.open.push(device);
        // Every device draws on its card's counters, which halves the devices that a slice may hold.
        if self.open.len() >= limits::ADVANCED_DEVICES_PER_SLICE {
            self.close();
        }
    }

    /// No more devices are expected for now.
    pub fn close(&mut self) {
        if !self.open.is_empty() {
            self.closed.push(B::of(std::mem::take(&mut self.open)));
        }
    }

    /// The devices' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let open = self.open.iter().map(|device| device.name.as_str());
        self.closed.iter().flat_map(Batch::names).chain(open)
    }

    /// All batches.
    pub fn into_batches(mut self) -> Vec<B> {
        self.close();
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: usize) -> Device {
        Device { name: index.to_string(), ..Device::default() }
    }

    fn holds_to_the_limit<B: Batch>() {
        for (count, sizes) in [(0, vec![]), (1, vec![1]), (64, vec![64]), (130, vec![64, 64, 2])] {
            let mut batches = Batches::<B>::default();
            for index in 0..count {
                batches.push(device(index));
                // Closing a batch early costs work, but the result is the same.
                if index % 3 == 0 {
                    batches.close();
                }
            }
            let expected: Vec<String> = (0..count).map(|index| index.to_string()).collect();
            assert_eq!(batches.names().collect::<Vec<_>>(), expected);
            let batches = batches.into_batches();
            assert_eq!(batches.iter().map(Batch::len).collect::<Vec<_>>(), sizes);
            let devices: Vec<Device> = batches.into_iter().flat_map(Batch::into_devices).collect();
            assert_eq!(devices, (0..count).map(device).collect::<Vec<_>>());
        }
    }

    #[test]
    fn batches_are_full_but_for_the_last() {
        holds_to_the_limit::<Vec<Device>>();
        holds_to_the_limit::<PackedContents>();
    }
}
