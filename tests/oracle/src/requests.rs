//! Makes allocate requests, realistic and nasty, from a seed.

mod claims;
mod slices;

use serde_json::{Value, json};

/// A source of requests.
pub struct Generator {
    choices: Choices,
}

/// Source of choices.
enum Choices {
    /// SplitMix64 in this state.
    Random(u64),
    /// Bytes, two for a choice; once they are used up each choice is the first.
    Given(std::collections::VecDeque<u8>),
}

impl Generator {
    /// The requests of this seed.
    pub fn new(seed: u64) -> Self {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0;
        Generator { choices: Choices::Random(state) }
    }

    /// The request chosen by these bytes, for fuzzing.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Generator { choices: Choices::Given(bytes.to_vec().into()) }
    }

    fn next(&mut self) -> u64 {
        match &mut self.choices {
            Choices::Random(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = *state;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^ (mixed >> 31)
            }
            Choices::Given(bytes) => {
                let mut byte = || u64::from(bytes.pop_front().unwrap_or_default());
                byte() << 8 | byte()
            }
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn pick<'t, T: ?Sized>(&mut self, all: &[&'t T]) -> &'t T {
        all[self.below(all.len() as u64) as usize]
    }

    /// One request.
    pub fn request(&mut self, id: u64) -> Value {
        let mut slices = Vec::new();
        let mut published = Vec::new();
        for _ in 0..self.between(1, 3) {
            self.pool(&mut slices, &mut published);
        }
        if self.percent(30) {
            self.shuffle(&mut slices);
        }
        let classes = self.classes();
        let allocated = self.allocated(&published);
        let claims: Vec<Value> = (0..if self.percent(25) { self.between(2, 3) } else { 1 })
            .map(|index| self.claim(index))
            .collect();
        let mut request = json!({
            "id": id,
            "node": {"metadata": {"name": "node-a", "labels": {"zone": "a", "rank": "5"}}},
            "slices": slices,
            "classes": classes,
            "allocated": allocated,
            "claims": claims,
        });
        if self.percent(12) {
            request["features"] = self.features();
        }
        request
    }

    fn shuffle(&mut self, all: &mut [Value]) {
        for index in (1..all.len()).rev() {
            all.swap(index, self.below(index as u64 + 1) as usize);
        }
    }

    fn features(&mut self) -> Value {
        // Without one of the first two upstream takes another variant of its allocator.
        let first = self.pick(&["ConsumableCapacity", "DeviceBindingAndStatus"]);
        let mut all = vec![first];
        for feature in [
            "AdminAccess",
            "PrioritizedList",
            "PartitionableDevices",
            "DeviceTaints",
            "DeviceBindingAndStatus",
            "ConsumableCapacity",
            "FractionalCapacityRange",
        ] {
            if feature != first && self.percent(60) {
                all.push(feature);
            }
        }
        json!(all)
    }
}
