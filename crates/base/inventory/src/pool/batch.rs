//! Collects devices into slices, with no more than one slice's devices unpacked at a time.

use k8s_openapi::api::resource::v1::Device;
use tessera_api::limits;

use super::Contents;

/// A list of devices in batches, all of them full but the last.
#[derive(Default)]
pub struct Batches {
    closed: Vec<Contents>,
    open: Vec<Device>,
}

impl Batches {
    /// Adds a device at the end.
    pub fn push(&mut self, device: Device) {
        if self.open.is_empty()
            && let Some(last) =
                self.closed.pop_if(|last| last.device_names().len() < limits::ADVANCED_DEVICES_PER_SLICE)
        {
            self.open = last.devices();
        }
        self.open.push(device);
        // Every device draws on its card's counters, which halves the maximum number of devices in a slice.
        if self.open.len() >= limits::ADVANCED_DEVICES_PER_SLICE {
            self.close();
        }
    }

    /// No more devices are expected for now.
    pub fn close(&mut self) {
        if !self.open.is_empty() {
            self.closed.push(Contents::of_devices(&std::mem::take(&mut self.open)));
        }
    }

    /// The devices' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let open = self.open.iter().map(|device| device.name.as_str());
        let closed = self.closed.iter().flat_map(|batch| batch.device_names());
        closed.map(|name| &**name).chain(open)
    }

    /// All batches.
    pub fn into_batches(mut self) -> Vec<Contents> {
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

    #[test]
    fn batches_are_full_but_for_the_last() {
        for (count, sizes) in [(0, vec![]), (1, vec![1]), (64, vec![64]), (130, vec![64, 64, 2])] {
            let mut batches = Batches::default();
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
            assert_eq!(batches.iter().map(|batch| batch.device_names().len()).collect::<Vec<_>>(), sizes);
            let names = batches.iter().flat_map(|batch| batch.device_names());
            assert_eq!(names.map(|name| &**name).collect::<Vec<_>>(), expected);
        }
    }
}
