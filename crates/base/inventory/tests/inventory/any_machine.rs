//! Machines that no test author would think of.

use proptest::prelude::*;
use tessera_api::PciBusId;
use tessera_inventory::Machine;
use tessera_inventory::machine::{
    Card, ClusterUuid, CommonAncestor, ComputeCapability, ComputeInstance, Fabric, FabricState, GpuInstance,
    GpuInstanceProfile, Health, Mig, NvLink, NvLinkRemote, NvLinkVersion, Pair, Placement,
};

/// Up to `most` cards, facts missing, contradictory or hostile, addresses repeated.
pub fn machines(most: usize) -> impl Strategy<Value = Machine> {
    let cards = prop::collection::vec(card(), 0..=most);
    let pairs = prop::collection::vec((pci(), pci(), pair()), 0..=40);
    let cuda = prop::option::of(prop_oneof![Just(13_000), any::<u32>()]);
    (prop::option::of(text()), cuda, cards, pairs).prop_map(
        |(driver_version, cuda_driver_version, cards, pairs)| {
            let mut machine = Machine { driver_version, cuda_driver_version, cards, ..Machine::default() };
            for (one, other, pair) in pairs {
                machine.pairs.insert(one, other, pair);
            }
            machine
        },
    )
}

/// Mostly near each other, so that facts about pairs meet; some anywhere.
fn pci() -> impl Strategy<Value = PciBusId> {
    let near = (0u8..24).prop_map(|bus| (0, bus, 0, 0));
    let far = (prop_oneof![Just(8u32), any::<u32>()], any::<u8>(), 0u8..32, 0u8..8);
    prop_oneof![4 => near, 1 => far]
        .prop_map(|(domain, bus, device, function)| PciBusId::new(domain, bus, device, function).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("NVIDIA H100 80GB HBM3".to_owned()),
        Just("580.95.05".to_owned()),
        Just("pci0000:3a".to_owned()),
        any::<String>(),
        "\\PC{60,70}",
        "[0-9]{1,30}(\\.[0-9]{1,30}){0,4}([-+].{0,40})?",
        Just("\u{0}\n\u{7f}".to_owned()),
    ]
}

fn card() -> impl Strategy<Value = Card> {
    use prop::option::of;
    let names = (of(text()), of(text()), of(text()), of(text()), of(text()), of(text()));
    let number = || prop_oneof![0u32..16, any::<u32>()];
    let numbers = (of(number()), of(number()), of(any::<u64>()), of(0u32..3), of(any::<u32>()));
    let mig = (of(any::<bool>()), prop_oneof![2 => Just(None), 1 => mig().prop_map(Some)]);
    let capability = of((number(), number()).prop_map(|(major, minor)| ComputeCapability { major, minor }));
    let links = of(prop::collection::vec(link(), 0..20));
    let facts = (names, numbers, mig, capability, links, of(fabric()), health());
    (pci(), facts).prop_map(|(pci, (names, numbers, mig, compute_capability, nvlinks, fabric, health))| {
        Card {
            uuid: names.0,
            product_name: names.1,
            brand: names.2,
            architecture: names.3,
            pcie_root: names.4,
            addressing_mode: names.5,
            index: numbers.0,
            minor: numbers.1,
            memory_bytes: numbers.2,
            numa_node: numbers.3,
            cores: numbers.4,
            mig_capable: mig.0,
            mig: mig.1,
            compute_capability,
            nvlinks,
            fabric,
            health,
            ..Card::new(pci)
        }
    })
}

/// What no driver says, and sometimes what one could.
fn mig() -> impl Strategy<Value = Mig> {
    let number = || prop_oneof![8 => 0u32..9, 1 => any::<u32>()];
    let placement = move || (number(), number()).prop_map(|(start, size)| Placement { start, size });
    let name = prop_oneof![
        8 => "[1-7]g\\.[1-9][0-9]?gb(\\+me|-me|\\+gfx|\\+me\\.all)?",
        1 => text(),
    ];
    let numbers = (number(), number(), number(), any::<u64>(), number());
    let placements = prop::collection::vec(placement(), 0..12);
    let profile = (name, numbers, placements).prop_map(|(name, numbers, placements)| GpuInstanceProfile {
        name,
        id: numbers.0,
        compute_slices: numbers.1,
        max_instances: numbers.2,
        memory_bytes: numbers.3,
        multiprocessors: numbers.4,
        copy_engines: numbers.0,
        decoders: numbers.1,
        encoders: 0,
        jpeg_engines: numbers.2,
        ofa_engines: u32::MAX,
        placements,
    });
    let optional = (prop::option::of(number()), prop::option::of(text()));
    let compute = (number(), number(), placement(), optional).prop_map(
        |(id, profile_id, placement, (multiprocessors, uuid))| ComputeInstance {
            id,
            profile_id,
            placement,
            multiprocessors,
            uuid,
        },
    );
    let instance = (number(), number(), placement(), prop::collection::vec(compute, 0..4)).prop_map(
        |(id, profile_id, placement, compute_instances)| GpuInstance {
            id,
            profile_id,
            placement,
            compute_instances,
        },
    );
    let lists = (prop::collection::vec(profile, 0..12), prop::collection::vec(instance, 0..4));
    (any::<bool>(), any::<bool>(), lists).prop_map(
        |(mode, mode_switch_needs_reset, (profiles, instances))| Mig {
            mode,
            mode_switch_needs_reset,
            profiles,
            instances,
        },
    )
}

fn link() -> impl Strategy<Value = NvLink> {
    let remote = prop_oneof![
        3 => pci().prop_map(NvLinkRemote::Gpu),
        3 => Just(NvLinkRemote::Switch),
        1 => Just(NvLinkRemote::Other)
    ];
    (remote, 0u32..9)
        .prop_map(|(remote, version)| NvLink { remote, version: NvLinkVersion::from_nvml(version) })
}

fn fabric() -> impl Strategy<Value = Fabric> {
    let state = prop::sample::select(vec![
        FabricState::NotStarted,
        FabricState::InProgress,
        FabricState::Completed,
        FabricState::Failed,
    ]);
    let cluster = prop_oneof![Just([0; 16]), Just([0x5f; 16]), any::<[u8; 16]>()].prop_map(ClusterUuid);
    (state, cluster, any::<u32>()).prop_map(|(state, cluster, clique)| Fabric { state, cluster, clique })
}

fn health() -> impl Strategy<Value = Health> {
    prop_oneof![
        4 => Just(Health::Healthy),
        1 => text().prop_map(|reason| Health::Unhealthy { reason }),
        1 => Just(Health::Unhealthy { reason: "mig-layout-pending".to_owned() }),
        1 => Just(Health::Lost),
        1 => Just(Health::NotAnswering)
    ]
}

fn pair() -> impl Strategy<Value = Pair> {
    let ancestor =
        prop::option::of((0u32..6).prop_map(|level| CommonAncestor::from_nvml(level * 10).unwrap()));
    (prop::option::of(any::<bool>()), ancestor)
        .prop_map(|(nvlink_peer_access, common_ancestor)| Pair { nvlink_peer_access, common_ancestor })
}
