//! Compiles, evaluates and explains any input: no panic, no more cost than the limit before an error,
//! and the same answer every time.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tessera_api::kubernetes::KubernetesVersion;
use tessera_cel::{COST_LIMIT, Device, Environment, LENGTH_LIMIT, PublishedAttribute, Selector};

static DEVICE: LazyLock<Device> = LazyLock::new(|| {
    let attributes = BTreeMap::from([
        ("model".to_owned(), PublishedAttribute::String("A100".to_owned())),
        ("index".to_owned(), PublishedAttribute::Int(3)),
        ("healthy".to_owned(), PublishedAttribute::Bool(true)),
        ("other.example.com/v".to_owned(), PublishedAttribute::Version("1.2.3".to_owned())),
    ]);
    Device::new("gpu.tessera.dev")
        .with_attributes(&attributes, false)
        .with_capacity(&BTreeMap::from([("memory".to_owned(), "80Gi".to_owned())]))
        .expect("a quantity")
});

/// One input: an expression, if valid text.
pub fn run(data: &[u8]) {
    let Ok(expression) = std::str::from_utf8(data) else { return };
    for version in [KubernetesVersion::V1_36_3, KubernetesVersion::V1_37] {
        run_as(expression, version.into());
    }
}

fn run_as(expression: &str, environment: Environment) {
    let Ok(selector) = Selector::compile_with(expression, environment) else { return };
    let first = selector.evaluate(&*DEVICE);
    assert_eq!(first, selector.evaluate(&*DEVICE), "two evaluations differ");
    for part in selector.explain(&*DEVICE) {
        assert!(part.start <= part.end && part.end <= expression.len(), "a part outside the expression");
    }
    let _ = selector.reads();
    let most = selector.max_cost();
    if let Ok(admitted) = Selector::compile_new(expression, environment) {
        assert_eq!(admitted.max_cost(), most, "two estimates differ");
        assert!(most <= COST_LIMIT && expression.len() <= LENGTH_LIMIT);
    }
}
