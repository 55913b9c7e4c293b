//! Claims, both pending ones and ones holding devices, and classes.

use serde_json::{Value, json};

use super::Generator;
use super::slices::Published;

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

impl Generator {
    pub(super) fn selectors(&mut self, most: u64) -> Value {
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

    pub(super) fn classes(&mut self) -> Value {
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

    pub(super) fn allocated(&mut self, published: &[Published]) -> Value {
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

    pub(super) fn tolerations(&mut self) -> Value {
        let toleration = match self.below(5) {
            0 => json!({"operator": "Exists"}),
            1 => json!({"key": "managed", "operator": "Exists"}),
            2 => json!({"key": "managed", "operator": "Equal", "value": "yes"}),
            3 => json!({"key": "broken", "effect": "NoSchedule"}),
            _ => json!({"operator": "Exists", "effect": "NoExecute"}),
        };
        json!([toleration])
    }

    pub(super) fn ask(&mut self, is_alternative: bool) -> Value {
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
            let mut amount = self.pick(&["1Gi", "10Gi", "12Gi", "1024Mi", "40Gi", "1", "3000Mi", "100Gi"]);
            if self.percent(8) {
                amount = self.pick(&["1200m", "1u", "1500000", "8Ei", "9223372036854775807", "1e19", "-1"]);
            }
            let name = self.pick(&["memory", "memory", "memory", "std.example.com/bandwidth"]);
            ask["capacity"] = json!({"requests": {name: amount}});
        }
        if self.below(200) == 0 {
            ask["derivedAttributes"] = json!([{"name": "derived/numa", "expression": "1"}]);
        }
        if !is_alternative && self.percent(9) {
            ask["adminAccess"] = json!(self.percent(85));
        }
        ask
    }

    pub(super) fn claim(&mut self, index: u64) -> Value {
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
