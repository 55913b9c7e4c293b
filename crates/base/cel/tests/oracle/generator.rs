//! Generates expressions: realistic selectors, and nasty ones that mix everything.

mod values;

/// A small random number generator (xorshift64*), so that a seed gives the same cases everywhere.
pub struct Generator {
    state: u64,
}

const DOMAINS: [&str; 4] =
    ["gpu.tessera.dev", "odd.example.com", "resource.kubernetes.io", "missing.example.com"];
const NAMES: [&str; 12] = [
    "type",
    "productName",
    "index",
    "memoryMiB",
    "ecc",
    "driverVersion",
    "numaNode",
    "empty",
    "unicode",
    "negative",
    "nosuch",
    "pciBusID",
];
const CAPACITIES: [&str; 6] = ["memory", "half", "big", "zero", "nosuch", "memory"];
const STRINGS: [&str; 14] = [
    "",
    "a",
    "gpu",
    "mig",
    "NVIDIA H100 80GB HBM3",
    "Grüße, 世界",
    "1.2.3",
    "40Gi",
    "0",
    "true",
    "10.0.0.1/8",
    "::1",
    "a,b,c",
    "[a-z]+",
];
const QUANTITIES: [&str; 12] =
    ["40Gi", "1", "0", "500m", "1e3", "1.5Gi", "80Gi", "-1", "1n", "9223372036854775807", "x", "1e30"];
const VERSIONS: [&str; 7] = ["1.2.3", "580.95.5", "1.2.3-rc.1", "0.0.0", "1.2", "v1.2.3", "1.2.3+b"];

impl Generator {
    pub fn new(seed: u64) -> Self {
        Generator { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 33) % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }

    /// An expression; most have a type that Kubernetes accepts.
    pub fn expression(&mut self) -> String {
        match self.below(20) {
            0 => self.any(4),
            1 => {
                let text = self.bool(3);
                self.damage(&text)
            }
            2..=6 => self.selector(),
            _ => self.bool(4),
        }
    }

    /// Damages a text at a random position.
    fn damage(&mut self, text: &str) -> String {
        let characters: Vec<char> = text.chars().collect();
        if characters.is_empty() {
            return "(".to_owned();
        }
        let at = self.below(characters.len() as u64) as usize;
        let mut damaged: String = characters[..at].iter().collect();
        match self.below(3) {
            0 => {}
            1 => damaged.push_str(
                self.pick(&["(", ")", "[", "]", "{", "}", ".", "?", "\"", "1", " ", "-", "&&", "x"]),
            ),
            _ => damaged.push(characters[at]),
        }
        damaged.extend(&characters[(at + 1).min(characters.len())..]);
        damaged
    }

    fn selector(&mut self) -> String {
        let count = 1 + self.below(4);
        let terms: Vec<String> = (0..count)
            .map(|_| match self.below(9) {
                0 => "device.driver == \"gpu.tessera.dev\"".to_owned(),
                1 => format!("{} == {}", self.attribute(), self.string_literal()),
                2 => format!("{} {} {}", self.attribute(), self.comparison(), self.int_literal()),
                3 => format!("{}.compareTo({}) {} 0", self.capacity(), self.quantity(1), self.comparison()),
                4 => format!("{}.isGreaterThan({})", self.attribute(), self.version(0)),
                5 => format!("\"{}\" in device.attributes[\"{}\"]", self.pick(&NAMES), self.pick(&DOMAINS)),
                6 => format!("{}.startsWith({})", self.attribute(), self.string_literal()),
                7 => format!(
                    "device.attributes[?\"{}\"].?{}.orValue({}) == {}",
                    self.pick(&DOMAINS),
                    self.pick(&NAMES),
                    self.string_literal(),
                    self.string_literal()
                ),
                _ => self.attribute(),
            })
            .collect();
        terms.join(self.pick(&[" && ", " || ", " && "]))
    }

    fn comparison(&mut self) -> &'static str {
        self.pick(&["<", "<=", ">", ">=", "==", "!="])
    }

    fn attribute(&mut self) -> String {
        let (domain, name) = (self.pick(&DOMAINS), self.pick(&NAMES));
        match self.below(60) {
            0..20 => format!("device.attributes[\"{domain}\"][\"{name}\"]"),
            20 => format!("device.attributes[\"{domain}\"].`{name}`"),
            _ => format!("device.attributes[\"{domain}\"].{name}"),
        }
    }

    fn capacity(&mut self) -> String {
        format!("device.capacity[\"{}\"].{}", self.pick(&DOMAINS), self.pick(&CAPACITIES))
    }

    fn string_literal(&mut self) -> String {
        format!("{:?}", self.pick(&STRINGS))
    }

    fn int_literal(&mut self) -> String {
        self.pick(&[
            "0",
            "1",
            "2",
            "-1",
            "3",
            "10",
            "81559",
            "9223372036854775807",
            "-9223372036854775808",
            "0x10",
        ])
        .to_owned()
    }

    fn any(&mut self, depth: u64) -> String {
        match self.below(12) {
            0 => self.bool(depth),
            1 => self.int(depth),
            2 => self.string(depth),
            3 => self.quantity(depth),
            4 => self.version(depth),
            5 => self.list(depth),
            6 => self.double(depth),
            7 => self.uint(depth),
            8 => self.optional(depth),
            9 => self.attribute(),
            10 => format!("dyn({})", self.leaf()),
            _ => self.leaf(),
        }
    }

    fn leaf(&mut self) -> String {
        match self.below(12) {
            0 => "true".to_owned(),
            1 => self.int_literal(),
            2 => self.string_literal(),
            3 => "1.5".to_owned(),
            4 => "2u".to_owned(),
            5 => "null".to_owned(),
            6 => "b'ab'".to_owned(),
            7 => "[1, 2]".to_owned(),
            8 => "{'a': 1}".to_owned(),
            9 => "duration('1h')".to_owned(),
            10 => "timestamp('2024-02-29T12:34:56.789Z')".to_owned(),
            _ => self.attribute(),
        }
    }

    fn bool(&mut self, depth: u64) -> String {
        if depth == 0 {
            return match self.below(5) {
                0 => "true".to_owned(),
                1 => "false".to_owned(),
                2 => "device.allowMultipleAllocations".to_owned(),
                3 => "1/0 == 1".to_owned(),
                _ => self.attribute(),
            };
        }
        let depth = depth - 1;
        match self.below(38) {
            0 | 1 => format!("{} && {}", self.bool(depth), self.bool(depth)),
            2 | 3 => format!("({} || {})", self.bool(depth), self.bool(depth)),
            4 => format!("!({})", self.bool(depth)),
            5 => format!("({} ? {} : {})", self.bool(depth), self.bool(depth), self.bool(depth)),
            6 => format!("{} {} {}", self.int(depth), self.comparison(), self.int(depth)),
            7 => format!("{} {} {}", self.string(depth), self.comparison(), self.string(depth)),
            8 => format!("{} {} {}", self.double(depth), self.comparison(), self.double(depth)),
            9 => format!("{} {} {}", self.any(depth), self.comparison(), self.any(depth)),
            10 => {
                let macro_name = self.pick(&["all", "exists", "exists_one"]);
                format!("{}.{macro_name}(x, {} {} x)", self.list(depth), self.int(depth), self.comparison())
            }
            11 => {
                let macro_name = self.pick(&["all", "exists", "exists_one", "existsOne"]);
                format!(
                    "{}.{macro_name}(i, x, i {} x || {})",
                    self.list(depth),
                    self.comparison(),
                    self.bool(depth)
                )
            }
            12 => format!("{} in {}", self.int(depth), self.list(depth)),
            13 => format!("{} in [{}, {}]", self.string(depth), self.string(0), self.string_literal()),
            14 => {
                let function = self.pick(&["contains", "startsWith", "endsWith"]);
                format!("{}.{function}({})", self.string(depth), self.string(depth))
            }
            15 => format!("{}.matches({})", self.string(depth), self.string_literal()),
            16 => {
                let function = self.pick(&["isGreaterThan", "isLessThan"]);
                format!("{}.{function}({})", self.quantity(depth), self.quantity(depth))
            }
            17 => {
                let function = self.pick(&["isGreaterThan", "isLessThan"]);
                format!("{}.{function}({})", self.version(depth), self.version(depth))
            }
            18 => format!("{} {} {}", self.quantity(depth), self.pick(&["==", "!="]), self.quantity(depth)),
            19 => format!("{}.hasValue()", self.optional(depth)),
            20 => format!("cel.bind(b, {}, b && {})", self.bool(depth), self.bool(depth)),
            21 => format!("has(device.attributes[\"{}\"].{})", self.pick(&DOMAINS), self.pick(&NAMES)),
            22 => {
                let function = self.pick(&["isQuantity", "isSemver", "isIP", "isCIDR", "isURL"]);
                format!("{function}({})", self.string(depth))
            }
            23 => {
                let function = self.pick(&["sets.contains", "sets.equivalent", "sets.intersects"]);
                format!("{function}({}, {})", self.list(depth), self.list(depth))
            }
            24 => format!("{} {} {}", self.list(depth), self.pick(&["==", "!="]), self.list(depth)),
            25 => format!(
                "device.attributes[\"{}\"].{}(k, {})",
                self.pick(&DOMAINS),
                self.pick(&["all", "exists_one"]),
                self.bool(depth)
            ),
            26 => format!("{}.includes({})", self.any(depth), self.any(0)),
            27 => format!("{} {} {}", self.attribute(), self.comparison(), self.any(depth)),
            28 => format!("{}.isSorted()", self.list(depth)),
            29 => format!("type({}) == type({})", self.any(depth), self.any(0)),
            30 => format!("{}.orValue({})", self.attribute(), self.bool(depth)),
            31 => format!("{{{}: {}, 'k': 2}}[{}] == 2", self.string(0), self.int(depth), self.string(0)),
            32 => format!("bool({})", self.any(0)),
            33 => format!("dyn({}) {} {}", self.any(0), self.comparison(), self.any(depth)),
            34 => {
                let macro_name = self.pick(&["all", "exists", "exists_one"]);
                format!("{}.{macro_name}(x, x {} {})", self.attribute(), self.comparison(), self.leaf())
            }
            35 => format!("matches({}, {})", self.string(depth), self.string_literal()),
            _ => self.bool(0),
        }
    }
}
