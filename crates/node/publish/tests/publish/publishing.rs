//! What is published, and when.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::DeleteParams};
use tessera_api::{
    PciBusId,
    offer::{Mps, TimeSliceInterval, TimeSlicing},
};
use tessera_inventory::{
    Machine, Pool, PoolOptions,
    machine::{
        Card, ComputeCapability, ComputeInstance, GpuInstance, GpuInstanceProfile, Health, Mig, Placement,
    },
};
use tessera_publish::Role;
use tokio::time::Instant;

use crate::proxy::Proxy;
use crate::support::{DRIVER, TestNode, cards, change_devices, eventually, marks};

#[tokio::test]
async fn a_pool_becomes_slices_of_the_node_that_sort_by_tier() {
    let node = TestNode::new("layout").await;
    let publisher = node.publisher(Some(cards(9, "a"))).await;
    let status = publisher.in_sync().await;
    assert_eq!((status.generation, status.slices, status.devices, status.writes), (Some(1), 3, 9, 3));
    assert_eq!((status.role, status.last_error, status.failures), (Role::Publishing, None, 0));

    let slices = node.slices().await;
    let names: Vec<_> = slices.iter().map(|slice| slice.metadata.name.clone().expect("a name")).collect();
    let expected =
        ["0-counters-0000", "0-counters-0001", "1-cards-0000"].map(|suffix| node.slice_name(suffix));
    assert_eq!(names, expected);
    let uid = Api::<Node>::all(node.client.clone()).get(&node.name).await.expect("the node").metadata.uid;
    for slice in &slices {
        assert_eq!(slice.spec.node_name.as_ref(), Some(&node.name));
        assert_eq!(slice.spec.pool.name, format!("gpu.tessera.dev/{}", node.name));
        assert_eq!((slice.spec.pool.generation, slice.spec.pool.resource_slice_count), (1, 3));
        let owners = slice.metadata.owner_references.as_ref().expect("owners");
        assert_eq!(
            (owners[0].kind.as_str(), Some(&owners[0].uid), owners[0].controller),
            ("Node", uid.as_ref(), Some(true))
        );
    }
}

/// The profile that takes a whole H100.
fn whole_board() -> GpuInstanceProfile {
    GpuInstanceProfile {
        name: "7g.80gb".to_owned(),
        id: 0,
        compute_slices: 7,
        max_instances: 1,
        memory_bytes: 84_825_604_096,
        multiprocessors: 132,
        copy_engines: 8,
        decoders: 7,
        encoders: 0,
        jpeg_engines: 7,
        ofa_engines: 1,
        placements: vec![Placement { start: 0, size: 8 }],
    }
}

/// All that the inventory says of cards, as real machines have it, with one card ill and one lost.
fn machine(cards: u8) -> Machine {
    let card = |position: u8| {
        let mut card = Card::new(PciBusId::new(0, 0x18 + position, 0, 0).unwrap());
        card.uuid = Some(format!("GPU-6d1e1f4a-0000-4000-8000-{position:012}"));
        card.index = Some(position.into());
        card.minor = Some(position.into());
        card.product_name = Some("NVIDIA H100 80GB HBM3".to_owned());
        card.brand = Some("Nvidia".to_owned());
        card.architecture = Some("Hopper".to_owned());
        card.compute_capability = Some(ComputeCapability { major: 9, minor: 0 });
        // Not a whole number of MiB, so that the API server has something to make canonical.
        card.memory_bytes = Some(85_520_809_984 + u64::from(position));
        card.mig_capable = Some(true);
        card.mig = Some(Mig { profiles: vec![whole_board()], ..Mig::default() });
        card.numa_node = Some((position / 4).into());
        card.pcie_root = Some(format!("pci0000:{position:02x}"));
        card.health = match position {
            1 => Health::Unhealthy { reason: "XID 79".to_owned() },
            2 => Health::Lost,
            _ => Health::Healthy,
        };
        card
    };
    Machine {
        driver_version: Some("580.95.05".to_owned()),
        cuda_driver_version: Some(13_000),
        cards: (0..cards).map(card).collect(),
        ..Machine::default()
    }
}

#[tokio::test]
async fn the_api_takes_and_keeps_all_that_the_inventory_says() {
    let options = PoolOptions::new(DRIVER);
    for cards in [1, 8, 9, 16] {
        let node = TestNode::new("inventory").await;
        let pool = Pool::new(&machine(cards), &options);
        let publisher = node.publisher(Some(pool.clone())).await;
        let status = publisher.in_sync().await;
        let slices = pool.slices.len();
        assert_eq!(
            (status.last_error, status.writes, status.slices),
            (None, slices as u64, slices),
            "{cards} cards"
        );
        publisher.stop().await;
        let again = node.publisher(Some(pool)).await;
        assert_eq!(
            again.in_sync().await.writes,
            0,
            "{cards} cards: what the API gives back counts as the same"
        );
    }
}

/// Partitions, those of an administrator, and shares, with all their counters and policies.
#[tokio::test]
async fn partitions_and_shares_come_back_as_they_were_sent() {
    let mut machine = machine(6);
    let profile = |name: &str, id, max_instances, size: u32, decoders, ofa_engines| GpuInstanceProfile {
        name: name.to_owned(),
        id,
        compute_slices: size,
        max_instances,
        memory_bytes: u64::from(size) * 10_468_982_784,
        decoders,
        ofa_engines,
        placements: (0..8 / size).map(|number| Placement { start: number * size, size }).collect(),
        ..whole_board()
    };
    let profiles = vec![
        profile("1g.10gb", 19, 8, 1, 1, 0),
        profile("1g.10gb+me", 20, 1, 1, 4, 1),
        profile("2g.20gb+me", 21, 1, 2, 4, 1),
        profile("4g.40gb", 9, 2, 4, 2, 0),
        whole_board(),
    ];
    for card in &mut machine.cards {
        card.mig.as_mut().expect("MIG").profiles.clone_from(&profiles);
    }
    let mig = machine.cards[5].mig.as_mut().expect("MIG");
    mig.mode = true;
    let compute = |id| ComputeInstance {
        id,
        profile_id: 0,
        placement: Placement { start: id, size: 1 },
        multiprocessors: None,
        uuid: Some(format!("MIG-{id}")),
    };
    mig.instances = vec![GpuInstance {
        id: 1,
        profile_id: 9,
        placement: Placement { start: 4, size: 4 },
        compute_instances: (0..3).map(compute).collect(),
    }];
    let mut options = PoolOptions::new(DRIVER);
    options.offers.others_mut().partitioning.profiles =
        Some(profiles.iter().map(|profile| profile.name.clone()).collect());
    options.offers.others_mut().sharing.mps =
        Some(Mps { partitions: vec!["4g.40gb".to_owned()], ..Mps::default() });
    options.offers.others_mut().sharing.time_slicing =
        Some(TimeSlicing { replicas: 10, interval: TimeSliceInterval::Short });
    let pool = Pool::new(&machine, &options);
    let of = |part: &str| pool.devices().filter(|device| device.name.contains(part)).count();
    assert_eq!((of("1g10gb-me"), of("ci2"), of("-mps"), of("-ts")), (5 * 8, 1, 5 * 3, 5));

    let node = TestNode::new("partitions").await;
    let publisher = node.publisher(Some(pool.clone())).await;
    let status = publisher.in_sync().await;
    let slices = pool.slices.len();
    assert_eq!((status.last_error, status.writes, status.slices), (None, slices as u64, slices));
    assert_eq!(status.devices, pool.devices().count());
    publisher.stop().await;
    let again = node.publisher(Some(pool)).await;
    assert_eq!(again.in_sync().await.writes, 0, "what the API gives back counts as the same");
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changed() {
    let node = TestNode::new("restart").await;
    let first = node.publisher(Some(cards(8, "a"))).await;
    first.in_sync().await;
    first.stop().await;
    let before = node.slices().await;
    assert_eq!(before.len(), 2, "slices stay when the plugin ends");

    let second = node.publisher(Some(cards(8, "a"))).await;
    assert_eq!(second.in_sync().await.writes, 0);
    second.offer(cards(8, "a"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(second.status.borrow().writes, 0);
    assert_eq!(node.slices().await, before);
}

#[tokio::test]
async fn one_slice_that_changed_is_one_write() {
    let node = TestNode::new("one-write").await;
    let publisher = node.publisher(Some(cards(8, "a"))).await;
    let before = publisher.in_sync().await;
    publisher.offer(cards(8, "b"));
    let after = publisher.until("written", |status| status.in_sync && status.writes > before.writes).await;
    assert_eq!((after.writes - before.writes, after.generation), (1, Some(1)));
    assert_eq!(marks(&node.slices().await), ["b"; 8]);

    // Another number of slices: all get a new generation.
    publisher.offer(cards(9, "b"));
    let grown = publisher.until("grown", |status| status.slices == 3).await;
    assert_eq!((grown.writes - after.writes, grown.generation), (3, Some(2)));
}

#[tokio::test]
async fn a_start_asks_no_more_than_it_has_to() {
    let node = TestNode::new("requests").await;
    let proxy = Proxy::new().await;
    let first = node.publisher_through(proxy.client(), Some(cards(8, "a")));
    first.in_sync().await;
    first.stop().await;
    assert_eq!((proxy.requests(), proxy.writes()), (4, 2), "the watch with its list, the Node, two slices");

    let again = node.publisher_through(proxy.client(), Some(cards(8, "a")));
    again.in_sync().await;
    again.stop().await;
    assert_eq!((proxy.requests(), proxy.writes()), (4 + 3, 2), "the watch, the Node, the slices themselves");

    // What was published is not replaced by what the server would not keep: it is asked first, once.
    let other = node.publisher_through(proxy.client(), Some(cards(9, "b")));
    other.in_sync().await;
    other.stop().await;
    assert_eq!((proxy.requests(), proxy.writes()), (7 + 3 + 1 + 3, 2 + 1 + 3));
}

#[tokio::test]
async fn slices_are_there_soon_after_the_start() {
    let node = TestNode::new("start").await;
    let client = tessera_kube_util::client::connect(crate::support::administrator().await).expect("a client");
    let begin = Instant::now();
    let publisher = node.publisher_through(client, Some(cards(8, "a")));
    publisher.in_sync().await;
    let took = begin.elapsed();
    println!("from start to published: {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn without_hardware_what_is_published_stays_and_an_empty_machine_publishes_nothing() {
    let node = TestNode::new("none").await;
    let first = node.publisher(Some(cards(2, "a"))).await;
    first.in_sync().await;
    first.stop().await;

    let second = node.publisher(None).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(second.status.borrow().role, Role::WaitingForHardware);
    assert_eq!(marks(&node.slices().await), ["a", "a"]);

    second.offer(Pool::default());
    let status = second.in_sync().await;
    assert_eq!((status.generation, status.slices), (None, 0));
    assert_eq!(node.slices().await, []);

    // Unknown again, as when the driver is unloaded for an upgrade: nothing changes.
    second.offer(cards(2, "b"));
    second.until("published", |status| status.slices == 2).await;
    second.pools.send_replace(None);
    node.wipe().await;
    eventually("put back", || async { (marks(&node.slices().await) == ["b", "b"]).then_some(()) }).await;
}

#[tokio::test]
async fn a_device_that_the_api_refuses_does_not_take_the_others_with_it() {
    let node = TestNode::new("invalid").await;
    let mut pool = cards(3, "a");
    change_devices(&mut pool, |devices| {
        let attributes = devices[1].attributes.as_mut().expect("attributes");
        attributes.get_mut("mark").expect("mark").string = Some("x".repeat(65));
    });
    let publisher = node.publisher(Some(pool)).await;
    let status = publisher.in_sync().await;
    assert_eq!(status.devices, 2);
    let error = status.last_error.expect("an error");
    assert!(error.contains("spec.devices[1].attributes[mark].string"), "{error}");
    assert_eq!(marks(&node.slices().await), ["a", "a"]);
    assert_eq!(status.failures, 1, "not sent again");

    // New hardware facts are a new chance.
    publisher.offer(cards(3, "b"));
    let status = publisher.until("complete", |status| status.devices == 3).await;
    assert_eq!(status.last_error, None);
}

#[tokio::test]
async fn slices_belong_to_the_node_as_it_is_now() {
    let node = TestNode::new("reborn").await;
    let publisher = node.publisher(Some(cards(1, "a"))).await;
    publisher.in_sync().await;
    let nodes = Api::<Node>::all(node.client.clone());
    let old = nodes.get(&node.name).await.expect("the node");
    nodes.delete(&node.name, &DeleteParams::default()).await.expect("deleted");
    let mut new = old.clone();
    new.metadata = kube::core::ObjectMeta { name: old.metadata.name.clone(), ..Default::default() };
    let new = nodes.create(&Default::default(), &new).await.expect("created");
    // The garbage collector deletes the slices of the old node object, as soon as it notices.
    eventually("owned by the new node", || async {
        let slices = node.slices().await;
        let owned = |slice: &k8s_openapi::api::resource::v1::ResourceSlice| {
            slice
                .metadata
                .owner_references
                .as_ref()
                .is_some_and(|owners| Some(&owners[0].uid) == new.metadata.uid.as_ref())
        };
        (slices.len() == 2 && slices.iter().all(owned)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_missing_node_object_is_said_and_waited_for() {
    let node = TestNode::new("late").await;
    let name = format!("{}-absent", node.name);
    let client = tessera_kube_util::client::connect(crate::support::administrator().await).expect("a client");
    let publisher = crate::support::start(client, node.directory.path(), &name, Some(cards(1, "a")), "x");
    let status = publisher.until("failing", |status| status.last_error.is_some()).await;
    let error = status.last_error.expect("an error");
    assert!(error.contains(&name) && error.contains("--node-name"), "{error}");
    let object = serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).expect("a node");
    Api::<Node>::all(node.client.clone()).create(&Default::default(), &object).await.expect("created");
    let status = publisher.in_sync().await;
    assert_eq!(status.last_error, None);
}
