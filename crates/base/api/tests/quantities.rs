//! Quantities against Kubernetes' own.

use tessera_api::Quantity;
use tessera_api::quantity::{QuantityError, QuantityFormat};

#[test]
fn as_kubernetes() {
    let mut too_large = 0;
    let mut compared = 0;
    for line in include_str!("data/quantities.txt").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        match (columns[0].parse::<Quantity>(), &columns[1..]) {
            (Ok(quantity), [canonical, format]) => {
                assert_eq!(quantity.to_string(), *canonical, "{line}");
                let own = match quantity.format() {
                    QuantityFormat::BinarySi => "BinarySI",
                    QuantityFormat::DecimalSi => "DecimalSI",
                    QuantityFormat::DecimalExponent => "DecimalExponent",
                };
                assert_eq!(own, *format, "{line}");
                compared += 1;
            }
            (Err(QuantityError::TooLarge), [_, "DecimalSI" | "DecimalExponent"]) => too_large += 1,
            (Err(_), ["ERR"]) => compared += 1,
            (own, _) => panic!("{line}: {own:?}"),
        }
    }
    assert!(compared > 500, "only {compared} compared");
    assert!(too_large < 10, "{too_large} have more digits than are computed with");
}
