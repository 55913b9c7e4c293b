//! Pools of slices: counters, generations, reach over nodes, devices.

use serde_json::{Map, Value, json};

use super::Generator;

const DRIVERS: [&str; 3] = ["gpu.example.com", "gpu.example.com", "nic.example.com"];

#[derive(Clone)]
pub(super) struct Published {
    pub driver: String,
    pub pool: String,
    pub device: String,
    pub is_shared: bool,
}

impl Generator {
    pub(super) fn pool(&mut self, slices: &mut Vec<Value>, published: &mut Vec<Published>) {
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

    pub(super) fn reach(&mut self, spec: &mut Value, reach: u64) {
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

    pub(super) fn node_selector(&mut self) -> Value {
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

    pub(super) fn device(&mut self, name: &str, cards: u64, per_device: bool) -> Value {
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
            if self.below(150) == 0 {
                consumption["compatibilityGroups"] = json!(["a"]);
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

    pub(super) fn capacity(&mut self, is_shared: bool) -> Value {
        let mut capacity = json!({"value": self.pick(&["80Gi", "40Gi", "16", "81920Mi"])});
        if self.below(400) == 0 {
            capacity["value"] = json!("-1");
        }
        if is_shared && self.percent(60) {
            capacity["requestPolicy"] = match self.below(10) {
                0 => json!({"default": "10Gi", "validRange": {"min": "5Gi", "max": "40Gi", "step": "5Gi"}}),
                1 => json!({"default": "1Gi", "validRange": {"min": "1Gi"}}),
                2 => json!({"default": "20Gi", "validValues": ["10Gi", "20Gi", "40Gi"]}),
                3 => json!({"default": "1024Mi", "validValues": ["1", "3Gi"]}),
                4 => json!({"default": "0"}),
                5 => json!({"default": "1", "validRange": {"min": "500m", "max": "16", "step": "500m"}}),
                6 => json!({"default": "128Mi", "validRange": {"min": "128Mi", "step": "128Mi"}}),
                7 => json!({"default": "1", "validRange": {"min": "1", "step": "1"}}),
                8 => json!({"default": "1", "validRange": {"min": "1u", "step": "300m"}}),
                _ => json!({"default": "7Gi", "validRange": {"min": "2Gi", "max": "30Gi", "step": "4Gi"}}),
            };
        }
        capacity
    }
}
