//! Prints the time of a selector per device, averaged over a fleet: `cargo run --profile dist -p tessera-cel --example
//! nanoseconds_per_device`.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use tessera_cel::{Device, PublishedAttribute, Selector};

const SELECTORS: [(&str, &str); 8] = [
    ("driver only", r#"device.driver == "gpu.tessera.dev""#),
    (
        "three terms",
        r#"device.driver == "gpu.tessera.dev" && device.attributes["gpu.tessera.dev"].productName == "NVIDIA H100 80GB HBM3" && device.capacity["gpu.tessera.dev"].memory.compareTo(quantity("40Gi")) >= 0"#,
    ),
    (
        "three terms, another driver",
        r#"device.driver == "nic.example.com" && device.attributes["nic.example.com"].kind == "x" && device.capacity["nic.example.com"].speed.compareTo(quantity("40Gi")) >= 0"#,
    ),
    (
        "three terms in cel.bind",
        r#"cel.bind(g, device.attributes["gpu.tessera.dev"], g.type == "gpu" && g.index >= 0 && g.productName.startsWith("NVIDIA"))"#,
    ),
    (
        "version and pattern",
        r#"device.attributes["gpu.tessera.dev"].driverVersion.isGreaterThan(semver("560.0.0")) && device.attributes["gpu.tessera.dev"].productName.matches("H[12]00")"#,
    ),
    ("optional", r#"device.attributes[?"gpu.tessera.dev"].?index.orValue(0) > 2"#),
    ("in a list", r#"device.attributes["gpu.tessera.dev"].type in ["gpu", "mig", "mps"]"#),
    (
        "exists over four",
        r#"["a", "b", "c", "gpu"].exists(x, x == device.attributes["gpu.tessera.dev"].type)"#,
    ),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let devices: Vec<Device> = (0..1_000)
        .map(|index| {
            let text = |value: &str| PublishedAttribute::String(value.to_owned());
            let attributes = BTreeMap::from([
                ("type".to_owned(), text("gpu")),
                ("productName".to_owned(), text("NVIDIA H100 80GB HBM3")),
                ("index".to_owned(), PublishedAttribute::Int(index % 8)),
                ("driverVersion".to_owned(), PublishedAttribute::Version("580.95.5".to_owned())),
                ("uuid".to_owned(), text(&format!("GPU-{index:08}"))),
                ("architecture".to_owned(), text("Hopper")),
                ("memoryMiB".to_owned(), PublishedAttribute::Int(81_559)),
                ("resource.kubernetes.io/numaNode".to_owned(), PublishedAttribute::Int(index % 2)),
            ]);
            Device::new("gpu.tessera.dev")
                .with_attributes(&attributes, false)
                .with_capacity(&BTreeMap::from([("memory".to_owned(), "80Gi".to_owned())]))
        })
        .collect::<Result<_, _>>()?;
    for (name, expression) in SELECTORS {
        let begin = Instant::now();
        let rounds = 50;
        for _ in 0..rounds {
            black_box(Selector::compile(black_box(expression))?);
        }
        let compile = begin.elapsed().as_nanos() / rounds;
        let selector = Selector::compile(expression)?;
        let mut best = u128::MAX;
        for _ in 0..30 {
            let begin = Instant::now();
            let mut matching = 0;
            for device in &devices {
                matching += u32::from(selector.matches(black_box(device))?);
            }
            black_box(matching);
            best = best.min(begin.elapsed().as_nanos() / devices.len() as u128);
        }
        println!("{name:30} {best:>6} ns per device, {compile:>8} ns to compile");
    }
    Ok(())
}
