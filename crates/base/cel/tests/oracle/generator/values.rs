//! Generates values other than bools.

use super::{CAPACITIES, DOMAINS, Generator, NAMES, QUANTITIES, VERSIONS};

impl Generator {
    pub(super) fn int(&mut self, depth: u64) -> String {
        if depth == 0 {
            return match self.below(4) {
                0 => self.attribute(),
                1 => "dyn(2)".to_owned(),
                _ => self.int_literal(),
            };
        }
        let depth = depth - 1;
        match self.below(20) {
            0..=2 => {
                format!("({} {} {})", self.int(depth), self.pick(&["+", "-", "*", "/", "%"]), self.int(depth))
            }
            3 => format!("-({})", self.int(depth)),
            4 => format!("size({})", self.string(depth)),
            5 => format!("{}.size()", self.list(depth)),
            6 => format!("{}.compareTo({})", self.quantity(depth), self.quantity(depth)),
            7 => format!("{}.{}()", self.version(depth), self.pick(&["major", "minor", "patch"])),
            8 => format!("{}.asInteger()", self.quantity(depth)),
            9 => format!("int({})", self.any(depth)),
            10 => format!("{}.{}()", self.list(depth), self.pick(&["sum", "min", "max"])),
            11 => format!(
                "{}.{}({})",
                self.string(depth),
                self.pick(&["indexOf", "lastIndexOf"]),
                self.string(depth)
            ),
            12 => format!("{}[{}]", self.list(depth), self.int(depth)),
            13 => format!("{}.orValue({})", self.optional(depth), self.int(depth)),
            14 => format!("({} ? {} : {})", self.bool(depth), self.int(depth), self.int(depth)),
            15 => format!("cel.bind(v, {}, v + v)", self.int(depth)),
            16 => format!("sign({})", self.quantity(depth)),
            17 => format!(
                "{}.{}({})",
                self.list(depth),
                self.pick(&["indexOf", "lastIndexOf"]),
                self.int(depth)
            ),
            _ => self.int(0),
        }
    }

    pub(super) fn uint(&mut self, depth: u64) -> String {
        if depth == 0 {
            return self.pick(&["0u", "1u", "18446744073709551615u", "7u"]).to_owned();
        }
        format!("({} {} {})", self.uint(depth - 1), self.pick(&["+", "-", "*", "/", "%"]), self.uint(0))
    }

    pub(super) fn double(&mut self, depth: u64) -> String {
        if depth == 0 {
            return self
                .pick(&["0.0", "1.5", "-2.25", "1e308", "double('NaN')", "9007199254740993.0", "1e-7", "1e6"])
                .to_owned();
        }
        match self.below(5) {
            0 => format!(
                "({} {} {})",
                self.double(depth - 1),
                self.pick(&["+", "-", "*", "/"]),
                self.double(0)
            ),
            1 => format!("double({})", self.any(0)),
            2 => format!("{}.asApproximateFloat()", self.quantity(depth - 1)),
            _ => self.double(0),
        }
    }

    pub(super) fn string(&mut self, depth: u64) -> String {
        if depth == 0 {
            return match self.below(4) {
                0 => self.attribute(),
                1 => "device.driver".to_owned(),
                _ => self.string_literal(),
            };
        }
        let depth = depth - 1;
        match self.below(18) {
            0 | 1 => format!("({} + {})", self.string(depth), self.string(depth)),
            2 => format!("{}.{}()", self.string(depth), self.pick(&["lowerAscii", "upperAscii", "trim"])),
            3 => format!("{}.substring({})", self.string(depth), self.int(0)),
            4 => format!("{}.substring({}, {})", self.string(depth), self.int(0), self.int(0)),
            5 => format!("{}.replace({}, {})", self.string(depth), self.string(0), self.string(0)),
            6 => format!(
                "{}.replace({}, {}, {})",
                self.string(depth),
                self.string(0),
                self.string(0),
                self.int(0)
            ),
            7 => format!("{}.charAt({})", self.string(depth), self.int(0)),
            8 => format!("string({})", self.any(depth)),
            9 => format!("{}.find({})", self.string(depth), self.string_literal()),
            10 => format!("strings.quote({})", self.string(depth)),
            11 => format!("{}.split({}).join({})", self.string(depth), self.string(0), self.string(0)),
            12 => format!("'%s-%d-%s'.format([{}, {}, {}])", self.any(0), self.int(0), self.list(depth)),
            13 => format!("({} ? {} : {})", self.bool(depth), self.string(depth), self.string(0)),
            14 => format!("{}.orValue({})", self.optional(0), self.string(0)),
            _ => self.string(0),
        }
    }

    pub(super) fn quantity(&mut self, depth: u64) -> String {
        if depth == 0 || self.below(3) == 0 {
            return match self.below(3) {
                0 => self.capacity(),
                _ => format!("quantity({:?})", self.pick(&QUANTITIES)),
            };
        }
        match self.below(4) {
            0 => format!("{}.add({})", self.quantity(depth - 1), self.quantity(depth - 1)),
            1 => format!("{}.sub({})", self.quantity(depth - 1), self.quantity(depth - 1)),
            2 => {
                format!("{}.{}({})", self.quantity(depth - 1), self.pick(&["add", "sub"]), self.int_literal())
            }
            _ => format!("quantity({})", self.string(depth - 1)),
        }
    }

    pub(super) fn version(&mut self, depth: u64) -> String {
        match self.below(4) {
            0 => self.attribute(),
            1 if depth > 0 => format!("semver({}, true)", self.string(depth - 1)),
            _ => format!("semver({:?})", self.pick(&VERSIONS)),
        }
    }

    pub(super) fn list(&mut self, depth: u64) -> String {
        if depth == 0 {
            return self
                .pick(&[
                    "[]",
                    "[1, 2, 3]",
                    "[3, 1, 2, 1]",
                    "[1]",
                    "dyn([1, 'a'])",
                    "[[1], [2, 3]]",
                    "lists.range(4)",
                ])
                .to_owned();
        }
        let depth = depth - 1;
        match self.below(20) {
            0 => format!("[{}, {}]", self.int(depth), self.int(depth)),
            1 => format!("({} + {})", self.list(depth), self.list(depth)),
            2 => format!("{}.map(x, {})", self.list(depth), self.int(depth)),
            3 => format!("{}.map(x, x {} 1, x)", self.list(depth), self.comparison()),
            4 => format!("{}.filter(x, {})", self.list(depth), self.bool(depth)),
            5 => format!("{}.{}()", self.list(depth), self.pick(&["distinct", "reverse", "sort", "flatten"])),
            6 => format!(
                "{}.slice({}, {})",
                self.list(depth),
                self.pick(&["0", "1", "2"]),
                self.pick(&["1", "2", "3"])
            ),
            7 => format!("{}.transformList(i, x, i * 2)", self.list(depth)),
            8 => format!("{}.sortBy(x, -x)", self.list(depth)),
            9 => format!("[{}, ?{}]", self.int(depth), self.optional(depth)),
            10 => format!("{}.transformMap(i, x, i).map(k, k).sort()", self.list(0)),
            11 => format!("cel.bind(l, {}, l + [{}])", self.list(depth), self.int(depth)),
            12 => format!("{}.flatten({})", self.list(depth), self.pick(&["0", "1", "2", "-1"])),
            13 => format!("[{}]", self.any(depth)),
            _ => self.list(0),
        }
    }

    pub(super) fn optional(&mut self, depth: u64) -> String {
        if depth == 0 {
            return match self.below(5) {
                0 => "optional.none()".to_owned(),
                1 => "optional.of(1)".to_owned(),
                2 => format!("device.attributes[?\"{}\"][?\"{}\"]", self.pick(&DOMAINS), self.pick(&NAMES)),
                3 => format!("device.attributes[\"{}\"].?{}", self.pick(&DOMAINS), self.pick(&NAMES)),
                _ => "optional.ofNonZeroValue(0)".to_owned(),
            };
        }
        let depth = depth - 1;
        match self.below(10) {
            0 => format!("optional.of({})", self.any(depth)),
            1 => format!("{}.or({})", self.optional(depth), self.optional(depth)),
            2 => format!("{}.optMap(v, v + {})", self.optional(depth), self.int(0)),
            3 => format!("{}.optFlatMap(v, optional.of(v))", self.optional(depth)),
            4 => format!("{}[?{}]", self.list(depth), self.int(0)),
            5 => format!("{}.{}()", self.list(depth), self.pick(&["first", "last"])),
            6 => format!("({} ? {} : {})", self.bool(depth), self.optional(depth), self.optional(0)),
            7 => format!("device.capacity[?\"{}\"].?{}", self.pick(&DOMAINS), self.pick(&CAPACITIES)),
            _ => self.optional(0),
        }
    }
}
