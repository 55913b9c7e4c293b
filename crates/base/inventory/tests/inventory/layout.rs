//! Static layouts: the file, and what fits on a card.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tessera_inventory::layout::{LayoutConfig, LayoutError, LayoutFile, combinations, maximal_layouts, plan};
use tessera_inventory::machine::{Card, GpuInstanceProfile, Mig, Placement};

use crate::any_machine::machines;

/// Name, id, compute slices, slices of memory, starts, most, engines (decoders, encoders, JPEG, OFA).
type Row = (&'static str, u32, u32, u32, &'static [u32], u32, [u32; 4]);

/// A100 80 GB: MIG User Guide, as the driver of 2024 says it.
const A100: [Row; 7] = [
    ("1g.10gb", 19, 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7, [0, 0, 0, 0]),
    ("1g.10gb+me", 20, 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1, [1, 0, 1, 1]),
    ("1g.20gb", 15, 1, 2, &[0, 2, 4, 6], 4, [1, 0, 0, 0]),
    ("2g.20gb", 14, 2, 2, &[0, 2, 4], 3, [1, 0, 0, 0]),
    ("3g.40gb", 9, 3, 4, &[0, 4], 2, [2, 0, 0, 0]),
    ("4g.40gb", 5, 4, 4, &[0], 1, [2, 0, 0, 0]),
    ("7g.80gb", 0, 7, 8, &[0], 1, [5, 0, 1, 1]),
];

/// A30.
const A30: [Row; 5] = [
    ("1g.6gb", 14, 1, 1, &[0, 1, 2, 3], 4, [0, 0, 0, 0]),
    ("1g.6gb+me", 21, 1, 1, &[0, 1, 2, 3], 1, [1, 0, 1, 1]),
    ("2g.12gb", 5, 2, 2, &[0, 2], 2, [2, 0, 0, 0]),
    ("2g.12gb+me", 6, 2, 2, &[0, 2], 1, [2, 0, 1, 1]),
    ("4g.24gb", 0, 4, 4, &[0], 1, [4, 0, 1, 1]),
];

fn mig(rows: &[Row]) -> Mig {
    let profile =
        |&(name, id, compute_slices, size, starts, max_instances, engines): &Row| GpuInstanceProfile {
            name: name.to_owned(),
            id,
            compute_slices,
            max_instances,
            memory_bytes: u64::from(size) * (9856 << 20),
            multiprocessors: compute_slices * 14,
            copy_engines: compute_slices,
            decoders: engines[0],
            encoders: engines[1],
            jpeg_engines: engines[2],
            ofa_engines: engines[3],
            placements: starts.iter().map(|&start| Placement { start, size }).collect(),
        };
    Mig { profiles: rows.iter().map(profile).collect(), ..Mig::default() }
}

fn counts(counts: &[(&str, u32)]) -> BTreeMap<String, u32> {
    counts.iter().map(|(profile, count)| ((*profile).to_owned(), *count)).collect()
}

fn planned(mig: &Mig, wanted: &[(&str, u32)]) -> String {
    plan(mig, &counts(wanted)).unwrap().to_string()
}

#[test]
fn the_usual_layouts_of_an_a100() {
    let a100 = mig(&A100);
    for (wanted, layout) in [
        (
            &[("1g.10gb", 7)][..],
            "1g.10gb at 0, 1g.10gb at 1, 1g.10gb at 2, 1g.10gb at 3, 1g.10gb at 4, 1g.10gb at 5, 1g.10gb at 6",
        ),
        (&[("2g.20gb", 3), ("1g.10gb", 1)], "2g.20gb at 0, 2g.20gb at 2, 2g.20gb at 4, 1g.10gb at 6"),
        (&[("3g.40gb", 2)], "3g.40gb at 0, 3g.40gb at 4"),
        (&[("4g.40gb", 1), ("3g.40gb", 1)], "4g.40gb at 0, 3g.40gb at 4"),
        (&[("7g.80gb", 1)], "7g.80gb at 0"),
        (
            &[("1g.10gb", 2), ("2g.20gb", 1), ("3g.40gb", 1)],
            "2g.20gb at 0, 1g.10gb at 2, 1g.10gb at 3, 3g.40gb at 4",
        ),
        (&[], ""),
        (&[("1g.10gb", 0)], ""),
    ] {
        assert_eq!(planned(&a100, wanted), layout);
    }
}

#[test]
fn all_maximal_layouts_of_an_a100_are_those_of_nvidia() {
    let a100 = mig(&A100);
    let no_media = |profile: &GpuInstanceProfile| !profile.name.ends_with("+me");
    let plain = |profile: &GpuInstanceProfile| no_media(profile) && profile.name != "1g.20gb";
    assert_eq!(maximal_layouts(&a100, plain).len(), 19);
    assert_eq!(combinations(&a100, plain).len(), 14);
    assert_eq!(maximal_layouts(&a100, no_media).len(), 78);
    assert_eq!(combinations(&a100, no_media).len(), 38);
    let a30 = mig(&A30);
    assert_eq!(maximal_layouts(&a30, no_media).len(), 5);
    assert_eq!(combinations(&a30, no_media).len(), 4);
}

#[test]
fn every_maximal_combination_can_be_planned() {
    for card in [mig(&A100), mig(&A30)] {
        for combination in combinations(&card, |_| true) {
            let layout =
                plan(&card, &combination.counts()).unwrap_or_else(|error| panic!("{combination}: {error}"));
            for (index, one) in layout.instances.iter().enumerate() {
                assert!(
                    layout.instances[..index].iter().all(|other| !other.placement.overlaps(one.placement))
                );
            }
        }
    }
}

#[test]
fn of_what_can_not_be_the_nearest_is_said() {
    let a100 = mig(&A100);
    let refusal = |wanted: &[(&str, u32)]| plan(&a100, &counts(wanted)).unwrap_err().to_string();
    let eight = refusal(&[("1g.10gb", 8)]);
    assert!(eight.starts_with("8 x 1g.10gb does not fit on this card"), "{eight}");
    assert!(eight.contains("the nearest that do are 7 x 1g.10gb; "), "{eight}");
    let two = refusal(&[("4g.40gb", 2)]);
    assert!(two.contains("are 4g.40gb + 3g.40gb; "), "{two}");
    let media = refusal(&[("1g.10gb+me", 2), ("1g.10gb", 5)]);
    assert!(
        media.contains("are 1g.10gb+me + 6 x 1g.10gb; ") || media.contains("are 6 x 1g.10gb + 1g.10gb+me; "),
        "{media}"
    );
    assert!(refusal(&[("1g.10gb", u32::MAX)]).contains("does not fit"));
    let other = refusal(&[("1g.5gb", 7)]);
    assert!(
        other.contains("no MIG profile 1g.5gb") && other.contains("1g.10gb, 1g.10gb+me, 1g.20gb"),
        "{other}"
    );
    assert_eq!(plan(&Mig::default(), &counts(&[("1g.5gb", 7)])), Err(LayoutError::NoProfiles));
    // The engines of both are those of the whole card.
    assert!(plan(&mig(&A30), &counts(&[("1g.6gb+me", 1), ("2g.12gb+me", 1)])).is_err());
}

const FILE: &str = r#"
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-enabled:
    - devices: all
      mig-enabled: true
      mig-devices: {}
  all-balanced:
    # A100-40GB
    - device-filter: ["0x20B010DE", "0x20B110DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.5gb": 2
        "2g.10gb": 1
        "3g.20gb": 1
    # A100-80GB
    - device-filter: "0x20B210DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
  custom:
    - devices: [0, 1]
      mig-enabled: false
    - devices: [1]
      mig-enabled: true
      mig-devices: {"1g.10gb+me": 1}
"#;

fn card(index: Option<u32>, pci_device_id: Option<u32>) -> Card {
    Card { index, pci_device_id, ..Card::new("0000:3b:00.0".parse().unwrap()) }
}

fn devices(config: &LayoutConfig, card: &Card) -> Option<Vec<String>> {
    let entry = config.for_card(card)?;
    Some(entry.mig_devices.iter().map(|(profile, count)| format!("{count} x {profile}")).collect())
}

#[test]
fn cards_are_selected_as_mig_parted_selects_them() {
    let file = LayoutFile::parse(FILE).unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["all-balanced", "all-disabled", "all-enabled", "custom"]);
    let balanced = file.config("all-balanced").unwrap();
    let named = |id| devices(balanced, &card(Some(0), id));
    assert_eq!(named(Some(0x20b0_10de)).unwrap(), ["2 x 1g.5gb", "1 x 2g.10gb", "1 x 3g.20gb"]);
    assert_eq!(named(Some(0x20b2_10de)).unwrap(), ["2 x 1g.10gb", "1 x 2g.20gb", "1 x 3g.40gb"]);
    assert_eq!(named(Some(0x2330_10de)), None);
    assert_eq!(named(None), None);

    let custom = file.config("custom").unwrap();
    let entry = |index| custom.for_card(&card(index, None)).map(|entry| entry.mig_enabled);
    assert_eq!((entry(Some(0)), entry(Some(1)), entry(Some(2))), (Some(false), Some(true), None));
    assert_eq!(entry(None), None);
    let disabled = file.config("all-disabled").unwrap();
    assert!(disabled.for_card(&card(None, None)).is_some_and(|entry| !entry.mig_enabled));

    let error = file.config("all-balance").unwrap_err().to_string();
    assert!(error.contains("\"all-balance\"") && error.contains("all-balanced, all-disabled"), "{error}");
}

#[test]
fn what_is_wrong_in_a_file_is_said_with_its_place() {
    let entry = |text: &str| {
        format!("version: v1\nmig-configs:\n  one:\n  - devices: all\n    mig-enabled: false\n  - {text}\n")
    };
    for (text, said) in [
        (String::new(), "the file: null where"),
        ("version: v2\nmig-configs: {}".into(), "version \"v2\""),
        ("mig-configs: {a: []}".into(), "the file: the field version is missing"),
        ("version: v1".into(), "the file: the field mig-configs is missing"),
        ("version: v1\nmig-configs: {}".into(), "the file: {} where"),
        ("version: v1\nmig-configs: {}\nmore: 1".into(), "there is no field \"more\""),
        ("version: v1\nmig-configs: {one: []}".into(), "mig-configs, \"one\": [] where"),
        ("version: v1\nversion: v1\nmig-configs: {one: []}".into(), "not YAML"),
        ("\t[".into(), "not YAML"),
        ("version: v1\n---\nversion: v1\n".into(), "several YAML documents"),
        (entry("[]"), "\"one\", entry 2: [] where a mapping"),
        (entry("{mig-enabled: true, mig-devices: {}}"), "entry 2: the field devices is missing"),
        (entry("{devices: all}"), "entry 2: the field mig-enabled is missing"),
        (entry("{devices: all, mig-enabled: true}"), "entry 2: the field mig-devices is missing"),
        (entry("{devices: all, mig-enabled: maybe}"), "\"maybe\" where mig-enabled: true or false"),
        (entry("{devices: some, mig-enabled: false}"), "\"some\" where devices: all"),
        (entry("{devices: [-1], mig-enabled: false}"), "-1 where devices"),
        (entry("{devices: all, mig-enabled: false, mig-device: {}}"), "no field \"mig-device\""),
        (entry("{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}"), "while mig-enabled is false"),
        (
            entry("{devices: all, mig-enabled: true, mig-devices: {1g5gb: 1}}"),
            "\"1g5gb\" where mig-devices: a profile",
        ),
        (
            entry("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}}"),
            "-1 where mig-devices: how many",
        ),
        (entry("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1.5}}"), "1.5 where"),
        (
            entry("{devices: all, mig-enabled: true, mig-devices: {1c.3g.20gb: 1}}"),
            "1c.3g.20gb: a layout is of whole",
        ),
        (entry("{devices: all, mig-enabled: true, mig-devices: [1g.5gb]}"), "where mig-devices: a mapping"),
        (
            entry("{devices: all, mig-enabled: false, device-filter: 0x20B010DE}"),
            "where device-filter: a PCI device id in quotes",
        ),
        (
            entry("{devices: all, mig-enabled: false, device-filter: [\"0xGG\"]}"),
            "\"0xGG\" where device-filter",
        ),
        (entry("{devices: all, mig-enabled: false, device-filter: \"0x+1\"}"), "\"0x+1\" where"),
    ] {
        let error = LayoutFile::parse(&text).expect_err(&text).to_string();
        assert!(error.contains(said), "{text}\n{error}\nshould say: {said}");
    }
    let long = entry(&format!("{{devices: \"{}\", mig-enabled: false}}", "ä".repeat(5000)));
    assert!(LayoutFile::parse(&long).unwrap_err().to_string().len() < 400);
}

proptest! {
    #[test]
    fn any_facts_and_any_wish_get_an_answer(machine in machines(2), extra in 0u32..9) {
        for card in &machine.cards {
            let Some(mig) = &card.mig else { continue };
            let wanted: BTreeMap<String, u32> =
                mig.profiles.iter().map(|profile| (profile.name.clone(), 1 + extra % 3)).collect();
            match plan(mig, &wanted) {
                Ok(layout) => prop_assert_eq!(layout.instances.len() as u32, wanted.values().sum::<u32>()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }

    #[test]
    fn any_text_is_refused_or_read(text in any::<String>()) {
        let _ = LayoutFile::parse(&text);
    }
}
