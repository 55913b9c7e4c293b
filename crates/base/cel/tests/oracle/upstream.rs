//! The cases of upstream's own test, `cel/compile_test.go` of k8s.io/dynamic-resource-allocation v0.36.3 and v0.37.2
//! (Apache-2.0).

use std::collections::BTreeMap;

use tessera_cel::PublishedAttribute;

use super::harness::{DeviceSpec, Request};

/// Expression, and attribute of the case's device.
type Case = (&'static str, Attribute);

/// The attribute `name` of the case's device.
#[derive(Clone, Copy)]
enum Attribute {
    None,
    Int,
    Bool,
    False,
    Text,
    Version,
    Ints,
    Bools,
    Trues,
    Texts,
    Versions,
    ManyInts,
}

const CASES: &[Case] = &[
    ("true", Attribute::None),
    ("false", Attribute::None),
    ("?!", Attribute::None),
    ("1", Attribute::None),
    (r#"device.attributes["no-such-domain"].noSuchAttr.isGreaterThan(quantity("0"))"#, Attribute::None),
    (r#"device.attributes["no-such-domain"]["noSuchAttr"].isGreaterThan(quantity("0"))"#, Attribute::None),
    (r#""no-such-domain" in device.attributes"#, Attribute::None),
    (r#""dra.example.com" in device.attributes"#, Attribute::Bool),
    (r#"device.driver == """#, Attribute::None),
    (r#"device.driver == "dra.example.com""#, Attribute::None),
    (r#"device.attributes["dra.example.com"].name"#, Attribute::Bool),
    (r#"device.attributes["dra.example.com"]["name"]"#, Attribute::Bool),
    (r#"cel.bind(dra, device.attributes["dra.example.com"], dra.name)"#, Attribute::Bool),
    (r#"device.attributes["other.example.com"].name"#, Attribute::Bool),
    (r#"device.attributes["dra.example.com"].name > 0"#, Attribute::Int),
    (r#"device.attributes["dra.example.com"].name == "fish""#, Attribute::Text),
    (r#"device.attributes["dra.example.com"].name.exists(x, x > 0)"#, Attribute::Int),
    (r#"device.attributes["dra.example.com"].name.exists(x, x == true)"#, Attribute::Bool),
    (r#"device.attributes["dra.example.com"].name.exists(x, x == "fish")"#, Attribute::Text),
    (r#"device.attributes["dra.example.com"].name"#, Attribute::Texts),
    (r#"device.attributes["dra.example.com"].name.size() == 2"#, Attribute::Bools),
    (r#"device.attributes["dra.example.com"].name.size() == 2"#, Attribute::Ints),
    (r#"device.attributes["dra.example.com"].name.size() == 2"#, Attribute::Texts),
    (r#"device.attributes["dra.example.com"].name.size() == 2"#, Attribute::Versions),
    (r#"device.attributes["dra.example.com"].name.exists(x, x > 0)"#, Attribute::Ints),
    (r#"device.attributes["dra.example.com"].name.all(x, x != "")"#, Attribute::Texts),
    (
        r#"device.attributes["dra.example.com"].name.all(x, x.isGreaterThan(semver("0.0.1")))"#,
        Attribute::Versions,
    ),
    (
        r#"device.attributes["dra.example.com"].name.exists(x, x.isGreaterThan(semver("0.0.1")))"#,
        Attribute::Version,
    ),
    (r#"device.attributes["dra.example.com"].name.includes("fish")"#, Attribute::Text),
    (r#"device.attributes["dra.example.com"].name.includes(true)"#, Attribute::Bool),
    (r#"device.attributes["dra.example.com"].name.includes(true)"#, Attribute::False),
    (r#"device.attributes["dra.example.com"].name.includes(true)"#, Attribute::Bools),
    (r#"device.attributes["dra.example.com"].name.includes(false)"#, Attribute::Trues),
    (r#"device.attributes["dra.example.com"].name.includes(1)"#, Attribute::Int),
    (r#"device.attributes["dra.example.com"].name.includes(2)"#, Attribute::Int),
    (r#"device.attributes["dra.example.com"].name.includes(1)"#, Attribute::Ints),
    (r#"device.attributes["dra.example.com"].name.includes(3)"#, Attribute::Ints),
    (r#"device.attributes["dra.example.com"].name.includes("fish")"#, Attribute::Text),
    (r#"device.attributes["dra.example.com"].name.includes("bird")"#, Attribute::Text),
    (r#"device.attributes["dra.example.com"].name.includes("fish")"#, Attribute::Texts),
    (r#"device.attributes["dra.example.com"].name.includes("cat")"#, Attribute::Texts),
    (r#"device.attributes["dra.example.com"].name.includes(semver("1.0.0"))"#, Attribute::Version),
    (r#"device.attributes["dra.example.com"].name.includes(semver("2.0.0"))"#, Attribute::Version),
    (r#"device.attributes["dra.example.com"].name.includes(semver("1.0.0"))"#, Attribute::Versions),
    (r#"device.attributes["dra.example.com"].name.includes(semver("3.0.0"))"#, Attribute::Versions),
    (r#"device.attributes["dra.example.com"].name.includes(-1)"#, Attribute::ManyInts),
    (r#"device.attributes["dra.example.com"].name.includes(0)"#, Attribute::ManyInts),
    (r#"device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#, Attribute::None),
    (
        r#""name" in device.capacity["dra.example.com"] && device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#,
        Attribute::None,
    ),
    (
        r#"!("name" in device.capacity["dra.example.com"]) || device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))"#,
        Attribute::None,
    ),
    (
        r#"
device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki")) &&
device.attributes["dra.example.com"].bool &&
device.attributes["dra.example.com"].int > 0 &&
device.attributes["dra.example.com"].string == "fish" &&
device.attributes["dra.example.com"].version.isGreaterThan(semver("0.0.1")) &&
device.capacity["dra.example.com"]["name"].isGreaterThan(quantity("1Ki")) &&
device.attributes["dra.example.com"]["bool"] &&
device.attributes["dra.example.com"]["int"] > 0 &&
device.attributes["dra.example.com"]["string"] == "fish" &&
device.attributes["dra.example.com"]["version"].isGreaterThan(semver("0.0.1"))
"#,
        Attribute::None,
    ),
    (
        r#"device.attributes["dra.example.com"].bool && device.attributes["dra.example.com"].bool && device.attributes["dra.example.com"].bool"#,
        Attribute::None,
    ),
    (r#"device.attributes.exists_one(x, x == "dra.example.com")"#, Attribute::Text),
    (r#"device.attributes["dra.example.com"].exists_one(x, x == "int")"#, Attribute::None),
    (r#"device.attributes["dra.example.com"].string.split("is").size() >= 2"#, Attribute::None),
    (r#"device.attributes["dra.example.com"].string.matches("[^a]?is")"#, Attribute::None),
    (r#"device.capacity.exists_one(x, x == "dra.example.com")"#, Attribute::None),
    (r#"device.capacity["dra.example.com"].exists_one(x, x == "name")"#, Attribute::None),
    (
        "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(y, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(z, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(z2, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(z3, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(z4, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(z5, int('1'.find('[0-9]*')) < 100)))))))",
        Attribute::None,
    ),
    ("device.allowMultipleAllocations == true", Attribute::None),
    ("device.allowMultipleAllocations == false", Attribute::None),
];

fn published(attribute: Attribute) -> Option<PublishedAttribute> {
    let texts = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    Some(match attribute {
        Attribute::None => return None,
        Attribute::Int => PublishedAttribute::Int(1),
        Attribute::Bool => PublishedAttribute::Bool(true),
        Attribute::False => PublishedAttribute::Bool(false),
        Attribute::Text => PublishedAttribute::String("fish".to_owned()),
        Attribute::Version => PublishedAttribute::Version("1.0.0".to_owned()),
        Attribute::Ints => PublishedAttribute::Ints(vec![1, 2]),
        Attribute::Bools => PublishedAttribute::Bools(vec![true, false]),
        Attribute::Trues => PublishedAttribute::Bools(vec![true, true]),
        Attribute::Texts => PublishedAttribute::Strings(texts(&["fish", "bird"])),
        Attribute::Versions => PublishedAttribute::Versions(texts(&["1.0.0", "2.0.0"])),
        Attribute::ManyInts => PublishedAttribute::Ints((0..60).collect()),
    })
}

/// Every case with list attributes off and on, and with `allowMultipleAllocations` unset, false and true.
pub fn requests() -> Vec<Request> {
    let mut requests = Vec::new();
    for (expression, attribute) in CASES {
        let of_gate = |gate| [None, Some(false), Some(true)].map(|allowed| (gate, allowed));
        for (list_type_attributes, allow_multiple_allocations) in [false, true].into_iter().flat_map(of_gate)
        {
            let mut attributes = BTreeMap::from([
                ("bool".to_owned(), PublishedAttribute::Bool(true)),
                ("int".to_owned(), PublishedAttribute::Int(1)),
                ("string".to_owned(), PublishedAttribute::String("fish".to_owned())),
                ("version".to_owned(), PublishedAttribute::Version("1.0.0".to_owned())),
            ]);
            attributes.extend(published(*attribute).map(|value| ("name".to_owned(), value)));
            requests.push(Request {
                expression: (*expression).to_owned(),
                device: DeviceSpec {
                    driver: "dra.example.com",
                    allow_multiple_allocations,
                    attributes,
                    capacity: BTreeMap::from([("name".to_owned(), "1Mi".to_owned())]),
                },
                list_type_attributes,
            });
        }
    }
    requests
}
