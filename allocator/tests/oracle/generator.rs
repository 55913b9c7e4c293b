//! Makes allocate requests, realistic and nasty, from a seed.
// Test code, built into `cargo xtask oracle`, too: there as here a broken expectation ends the run.
#![allow(clippy::expect_used)]

use serde_json::{Map, Value, json};

const DRIVERS: [&str; 3] = ["gpu.example.com", "gpu.example.com", "nic.example.com"];
const SELECTORS: [&str; 14] = [
    r#"device.driver == "gpu.example.com""#,
    r#"device.driver == "nic.example.com""#,
    r#"device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].?model.orValue("b") == "a""#,
    r#"device.attributes["gpu.example.com"].?model.orValue("a") == "b""#,
    r#""numa" in device.attributes[device.driver] && device.attributes[device.driver].numa < 2"#,
    r#"device.attributes["std.example.com"].?root.orValue("") != "r0""#,
    r#""memory" in device.capacity[device.driver] && device.capacity[device.driver].memory.compareTo(quantity("40Gi")) >= 0"#,
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    r#"device.attributes["gpu.example.com"].?version.orValue(semver("1.0.0")).isLessThan(semver("1.5.0"))"#,
    r#"device.attributes[device.driver].?ecc.orValue(true)"#,
    "true",
    "false",
    r#"device.driver != "gpu.example.com" || device.attributes["gpu.example.com"].model != "c""#,
];
const NASTY_SELECTORS: [&str; 4] = [
    r#"device.attributes["gpu.example.com"].missing == 1"#,
    r#"device.attributes["gpu.example.com"].model"#,
    "device.driver + 1",
    "device.attributes[",
];
const ATTRIBUTES: [&str; 6] = [
    "gpu.example.com/model",
    "gpu.example.com/numa",
    "std.example.com/root",
    "gpu.example.com/ecc",
    "nic.example.com/numa",
    "gpu.example.com/version",
];

/// A source of requests.
pub struct Generator {
    state: u64,
}

#[derive(Clone)]
struct Published {
    driver: String,
    pool: String,
    device: String,
    is_shared: bool,
}

impl Generator {
    /// The requests of this seed.
    pub fn new(seed: u64) -> Self {
        Generator { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0 }
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
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
        ] {
            if feature != first && self.percent(60) {
                all.push(feature);
            }
        }
        json!(all)
    }

    fn pool(&mut self, slices: &mut Vec<Value>, published: &mut Vec<Published>) {
        let driver = self.pick(&DRIVERS);
        let pool = self.pick(&["pool-a", "pool-b", "node-a"]).to_owned();
        let generation = self.between(1, 2);
        let reach = self.below(12);
        let has_counters = self.percent(35);
        let mut made = Vec::new();
        let mut sets = Vec::new();
        if has_counters {
            let cards = self.between(1, 3);
            for card in 0..cards {
                sets.push(json!({"name": format!("card-{card}"), "counters": {
                    "memory": {"value": self.pick(&["80Gi", "40Gi", "80Gi"])},
                    "engines": {"value": self.pick(&["4", "2", "4"])},
                }}));
            }
            if self.percent(3) {
                let copy = sets[0].clone();
                sets.push(copy);
            }
        }
        let device_slices = self.between(1, 3);
        let mut count = 0;
        let most = if has_counters { 5 } else { 4 };
        for _ in 0..device_slices {
            let devices: Vec<Value> = (0..self.between(0, most))
                .map(|_| {
                    count += 1;
                    let number = if self.percent(2) { 1 } else { count };
                    let name = format!("dev-{number}");
                    let device = self.device(&name, sets.len() as u64, reach == 9);
                    published.push(Published {
                        driver: driver.to_owned(),
                        pool: pool.clone(),
                        device: name,
                        is_shared: device["allowMultipleAllocations"] == json!(true),
                    });
                    device
                })
                .collect();
            made.push(json!({ "devices": devices }));
        }
        if has_counters {
            made.push(json!({ "sharedCounters": sets }));
        }
        let mut expected = made.len() as u64;
        if self.percent(4) {
            expected = self.between(1, expected + 1);
        }
        if self.percent(2) {
            made.remove(self.below(made.len() as u64) as usize);
        }
        for (index, mut spec) in made.into_iter().enumerate() {
            spec["driver"] = json!(driver);
            spec["pool"] = json!({"name": pool, "generation": generation, "resourceSliceCount": expected});
            if self.percent(2) {
                spec["pool"]["generation"] = json!(self.between(1, 3));
            }
            let reach = if self.percent(6) { self.below(12) } else { reach };
            self.reach(&mut spec, reach);
            let prefix = self.between(0, 2);
            let name = format!("{driver}-{pool}-{prefix}-{}-{index}", slices.len());
            slices.push(json!({"metadata": {"name": name}, "spec": spec}));
        }
    }

    fn reach(&mut self, spec: &mut Value, reach: u64) {
        match reach {
            0..=5 => spec["nodeName"] = json!("node-a"),
            6 => spec["nodeName"] = json!("node-b"),
            7 => spec["allNodes"] = json!(true),
            8 => spec["nodeSelector"] = self.node_selector(),
            9 => spec["perDeviceNodeSelection"] = json!(true),
            10 => spec["allNodes"] = json!(true),
            _ => {
                if self.percent(50) {
                    spec["nodeName"] = json!("node-a");
                }
            }
        }
    }

    fn node_selector(&mut self) -> Value {
        let expression = match self.below(7) {
            0 => json!({"key": "zone", "operator": "In", "values": ["a", "b"]}),
            1 => json!({"key": "zone", "operator": "NotIn", "values": ["b"]}),
            2 => json!({"key": "zone", "operator": "Exists"}),
            3 => json!({"key": "rank", "operator": "Gt", "values": ["3"]}),
            4 => json!({"key": "zone", "operator": "In", "values": ["b", "a"]}),
            5 => json!({"key": "zone", "operator": "In", "values": ["c"]}),
            _ => json!({"key": "none", "operator": "DoesNotExist"}),
        };
        let mut term = json!({"matchExpressions": [expression]});
        if self.percent(25) {
            term["matchFields"] = json!([{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]);
        }
        let mut terms = vec![term];
        if self.percent(3) {
            terms.push(json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}));
        }
        if self.percent(2) {
            terms[0]["matchExpressions"] = json!([{"key": "zone", "operator": "In", "values": []}]);
        }
        json!({"nodeSelectorTerms": terms})
    }

    fn device(&mut self, name: &str, cards: u64, per_device: bool) -> Value {
        let mut device = json!({"name": name});
        let mut attributes = Map::new();
        if self.percent(98) {
            attributes.insert("model".into(), json!({"string": self.pick(&["a", "b", "c", "a"])}));
        }
        if self.percent(80) {
            attributes.insert("numa".into(), json!({"int": self.below(3)}));
        }
        if self.percent(50) {
            attributes.insert("ecc".into(), json!({"bool": self.percent(50)}));
        }
        if self.percent(50) {
            attributes
                .insert("version".into(), json!({"version": self.pick(&["1.0.0", "2.0.0", "1.0.0-rc.1"])}));
        }
        if self.percent(60) {
            let root = format!("r{}", self.below(3));
            attributes.insert("std.example.com/root".into(), json!({"string": root}));
        }
        if self.percent(1) {
            attributes.insert("numa".into(), json!({"string": "x"}));
        }
        if self.below(300) == 0 {
            attributes.insert("odd".into(), json!({}));
        }
        device["attributes"] = Value::Object(attributes);
        let is_shared = self.percent(25);
        if is_shared || self.percent(5) {
            device["allowMultipleAllocations"] = json!(is_shared);
        }
        let mut capacity = Map::new();
        if self.percent(75) {
            capacity.insert("memory".into(), self.capacity(is_shared));
        }
        if self.percent(25) {
            capacity.insert("std.example.com/bandwidth".into(), self.capacity(is_shared));
        }
        device["capacity"] = Value::Object(capacity);
        if cards > 0 && self.percent(92) {
            let card = self.below(cards);
            let set = if self.below(150) == 0 { "card-9".to_owned() } else { format!("card-{card}") };
            let mut consumption = json!({"counterSet": set, "counters": {
                "memory": {"value": self.pick(&["80Gi", "40Gi", "20Gi", "10Gi"])},
            }});
            if self.percent(70) {
                consumption["counters"]["engines"] = json!({"value": self.pick(&["1", "2", "4"])});
            }
            if self.below(150) == 0 {
                consumption["counters"]["other"] = json!({"value": "1"});
            }
            device["consumesCounters"] = json!([consumption]);
            if cards > 1 && self.percent(8) {
                let other = format!("card-{}", (card + 1) % cards);
                let second = json!({"counterSet": other, "counters": {"engines": {"value": "1"}}});
                device["consumesCounters"].as_array_mut().expect("a list").push(second);
            }
        }
        if self.percent(12) {
            let taints: Vec<Value> = (0..self.between(1, 2))
                .map(|_| {
                    json!({
                        "key": self.pick(&["managed", "broken"]),
                        "value": self.pick(&["", "yes"]),
                        "effect": self.pick(&["NoSchedule", "NoExecute", "None", "Future"]),
                    })
                })
                .collect();
            device["taints"] = json!(taints);
        }
        if self.percent(6) {
            device["bindingConditions"] = json!(["ready"]);
            device["bindingFailureConditions"] = json!(["failed"]);
        }
        if self.percent(6) {
            device["bindsToNode"] = json!(true);
        }
        if per_device {
            match self.below(5) {
                0 | 1 => device["nodeName"] = json!("node-a"),
                2 => device["nodeName"] = json!("node-b"),
                3 => device["allNodes"] = json!(true),
                _ => device["nodeSelector"] = self.node_selector(),
            }
        }
        device
    }

    fn capacity(&mut self, is_shared: bool) -> Value {
        let mut capacity = json!({"value": self.pick(&["80Gi", "40Gi", "16", "81920Mi"])});
        if is_shared && self.percent(60) {
            capacity["requestPolicy"] = match self.below(6) {
                0 => json!({"default": "10Gi", "validRange": {"min": "5Gi", "max": "40Gi", "step": "5Gi"}}),
                1 => json!({"default": "1Gi", "validRange": {"min": "1Gi"}}),
                2 => json!({"default": "20Gi", "validValues": ["10Gi", "20Gi", "40Gi"]}),
                3 => json!({"default": "1024Mi", "validValues": ["1", "3Gi"]}),
                4 => json!({"default": "0"}),
                _ => json!({"default": "7Gi", "validRange": {"min": "2Gi", "max": "30Gi", "step": "4Gi"}}),
            };
        }
        capacity
    }

    fn selectors(&mut self, most: u64) -> Value {
        let count = self.below(most + 1);
        let all: Vec<Value> = (0..count)
            .map(|_| {
                let expression =
                    if self.below(120) == 0 { self.pick(&NASTY_SELECTORS) } else { self.pick(&SELECTORS) };
                json!({"cel": {"expression": expression}})
            })
            .collect();
        json!(all)
    }

    fn classes(&mut self) -> Value {
        let mut classes = vec![json!({"metadata": {"name": "any"}, "spec": {}})];
        for name in ["gpu", "other"] {
            let mut spec = json!({});
            spec["selectors"] = if name == "gpu" && self.percent(80) {
                json!([{"cel": {"expression": SELECTORS[0]}}])
            } else {
                self.selectors(1)
            };
            if self.percent(40) {
                spec["config"] =
                    json!([{"opaque": {"driver": "gpu.example.com", "parameters": {"class": name}}}]);
            }
            classes.push(json!({"metadata": {"name": name}, "spec": spec}));
        }
        json!(classes)
    }

    fn allocated(&mut self, published: &[Published]) -> Value {
        let mut claims = Vec::new();
        for (index, device) in published.iter().enumerate() {
            if !self.percent(15) {
                continue;
            }
            let mut result = json!({
                "request": "r", "driver": device.driver, "pool": device.pool, "device": device.device,
            });
            if device.is_shared || self.percent(3) {
                result["shareID"] = json!(format!("11111111-2222-4333-8444-{index:012}"));
                if self.percent(90) {
                    result["consumedCapacity"] = json!({"memory": self.pick(&["10Gi", "40Gi", "1Gi", "0"])});
                }
            }
            if self.percent(8) {
                result["adminAccess"] = json!(true);
            }
            claims.push(json!({
                "metadata": {"name": format!("held-{index}"), "namespace": "default"},
                "spec": {"devices": {}},
                "status": {"allocation": {"devices": {"results": [result]}}},
            }));
        }
        json!(claims)
    }

    fn tolerations(&mut self) -> Value {
        let toleration = match self.below(5) {
            0 => json!({"operator": "Exists"}),
            1 => json!({"key": "managed", "operator": "Exists"}),
            2 => json!({"key": "managed", "operator": "Equal", "value": "yes"}),
            3 => json!({"key": "broken", "effect": "NoSchedule"}),
            _ => json!({"operator": "Exists", "effect": "NoExecute"}),
        };
        json!([toleration])
    }

    fn ask(&mut self, is_alternative: bool) -> Value {
        let mut ask = json!({"deviceClassName": self.pick(&["any", "gpu", "gpu", "other"])});
        if self.below(150) == 0 {
            ask["deviceClassName"] = json!(self.pick(&["", "missing"]));
        }
        if self.percent(10) {
            ask["allocationMode"] = json!("All");
        } else {
            ask["allocationMode"] = json!("ExactCount");
            ask["count"] = json!(if self.percent(70) { 1 } else { self.between(2, 4) });
            if self.percent(1) {
                ask["count"] = json!(self.pick(&["0", "20", "33"]).parse::<u64>().expect("a number"));
            }
        }
        if self.below(200) == 0 {
            ask.as_object_mut().expect("an object").remove("allocationMode");
        }
        if self.percent(50) {
            ask["selectors"] = self.selectors(2);
        }
        if self.percent(25) {
            ask["tolerations"] = self.tolerations();
        }
        if self.percent(22) {
            let amount = self.pick(&["1Gi", "10Gi", "12Gi", "1024Mi", "40Gi", "1", "3000Mi", "100Gi"]);
            let name = self.pick(&["memory", "memory", "memory", "std.example.com/bandwidth"]);
            ask["capacity"] = json!({"requests": {name: amount}});
        }
        if !is_alternative && self.percent(9) {
            ask["adminAccess"] = json!(self.percent(85));
        }
        ask
    }

    fn claim(&mut self, index: u64) -> Value {
        let mut requests = Vec::new();
        let mut names = Vec::new();
        for number in 0..if self.percent(50) { 1 } else { self.between(2, 3) } {
            let name = format!("r{number}");
            names.push(name.clone());
            if self.percent(20) {
                let alternatives: Vec<Value> = (0..self.between(1, 3))
                    .map(|place| {
                        let mut ask = self.ask(true);
                        ask["name"] = json!(format!("s{place}"));
                        names.push(format!("{name}/s{place}"));
                        ask
                    })
                    .collect();
                requests.push(json!({"name": name, "firstAvailable": alternatives}));
            } else {
                requests.push(json!({"name": name, "exactly": self.ask(false)}));
            }
        }
        let mut constraints = Vec::new();
        if self.percent(35) {
            for _ in 0..self.between(1, 2) {
                let attribute = self.pick(&ATTRIBUTES);
                let kind = if self.percent(65) { "matchAttribute" } else { "distinctAttribute" };
                let mut constraint = json!({kind: attribute});
                if self.percent(40) {
                    constraint["requests"] = json!([names[self.below(names.len() as u64) as usize]]);
                }
                constraints.push(constraint);
            }
        }
        let mut config = Vec::new();
        if self.percent(25) {
            let mut entry = json!({"opaque": {"driver": "gpu.example.com", "parameters": {"claim": index}}});
            if self.percent(60) {
                let chosen: Vec<&String> = names.iter().filter(|_| self.percent(60)).collect();
                entry["requests"] = json!(chosen);
            }
            config.push(entry);
        }
        json!({
            "metadata": {"name": format!("claim-{index}"), "namespace": "default"},
            "spec": {"devices": {"requests": requests, "constraints": constraints, "config": config}},
        })
    }
}
