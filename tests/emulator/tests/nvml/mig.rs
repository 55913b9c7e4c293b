//! Partitions of cards.

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlDevice_t, nvmlDeviceAttributes_t,
    nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
    nvmlGpuInstanceProfileInfo_v2_t, nvmlGpuInstanceProfileInfo_v3_t, nvmlMemory_t,
};

use crate::machine::{Machine, Nvml, SUCCESS};

const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NOT_FOUND: u32 = 6;
const RESET_REQUIRED: u32 = 16;
const IN_USE: u32 = 19;
const INSUFFICIENT_RESOURCES: u32 = 23;
const UNKNOWN: u32 = 999;

/// Ids of profiles of 8-unit boards.
const ONE: u32 = 19;
const ONE_MEDIA: u32 = 20;
const TWO: u32 = 14;
const THREE: u32 = 9;
const FOUR: u32 = 5;
const SEVEN: u32 = 0;

// SAFETY of every block here: handles and places are valid, or it is tested what the library does with those that are not
// followed.
fn set_mode(nvml: &Nvml, card: nvmlDevice_t, on: u32) -> Result<u32, u32> {
    // SAFETY: as above.
    nvml.get(|nvml, status| unsafe { nvml.nvmlDeviceSetMigMode(card, on, status) })
}

fn mode(nvml: &Nvml, card: nvmlDevice_t) -> (u32, u32) {
    let (mut current, mut pending) = (9, 9);
    // SAFETY: as above.
    let code = unsafe { nvml.functions.nvmlDeviceGetMigMode(card, &raw mut current, &raw mut pending) };
    assert_eq!(code, SUCCESS);
    (current, pending)
}

fn make(
    nvml: &Nvml,
    card: nvmlDevice_t,
    profile: u32,
    start: u32,
    size: u32,
) -> Result<nvmlGpuInstance_t, u32> {
    let mut instance = std::ptr::null_mut();
    let placement = nvmlGpuInstancePlacement_t { start, size };
    // SAFETY: as above.
    let code = unsafe {
        nvml.functions.nvmlDeviceCreateGpuInstanceWithPlacement(
            card,
            profile,
            &raw const placement,
            &raw mut instance,
        )
    };
    if code == SUCCESS { Ok(instance) } else { Err(code) }
}

fn make_anywhere(nvml: &Nvml, card: nvmlDevice_t, profile: u32) -> Result<nvmlGpuInstance_t, u32> {
    let mut instance = std::ptr::null_mut();
    // SAFETY: as above.
    let code = unsafe { nvml.functions.nvmlDeviceCreateGpuInstance(card, profile, &raw mut instance) };
    if code == SUCCESS { Ok(instance) } else { Err(code) }
}

fn make_compute(nvml: &Nvml, gpu: nvmlGpuInstance_t, profile: u32) -> Result<nvmlComputeInstance_t, u32> {
    let mut instance = std::ptr::null_mut();
    // SAFETY: as above.
    let code =
        unsafe { nvml.functions.nvmlGpuInstanceCreateComputeInstance(gpu, profile, &raw mut instance) };
    if code == SUCCESS { Ok(instance) } else { Err(code) }
}

fn destroy(nvml: &Nvml, gpu: nvmlGpuInstance_t) -> u32 {
    // SAFETY: as above.
    unsafe { nvml.functions.nvmlGpuInstanceDestroy(gpu) }
}

fn destroy_compute(nvml: &Nvml, compute: nvmlComputeInstance_t) -> u32 {
    // SAFETY: as above.
    unsafe { nvml.functions.nvmlComputeInstanceDestroy(compute) }
}

fn info(nvml: &Nvml, gpu: nvmlGpuInstance_t) -> Result<nvmlGpuInstanceInfo_t, u32> {
    let empty = nvmlGpuInstancePlacement_t { start: 0, size: 0 };
    let mut info =
        nvmlGpuInstanceInfo_t { device: std::ptr::null_mut(), id: 0, profileId: 0, placement: empty };
    // SAFETY: as above.
    match unsafe { nvml.functions.nvmlGpuInstanceGetInfo(gpu, &raw mut info) } {
        SUCCESS => Ok(info),
        code => Err(code),
    }
}

fn remaining(nvml: &Nvml, card: nvmlDevice_t, profile: u32) -> Result<u32, u32> {
    // SAFETY: as above.
    nvml.get(|nvml, count| unsafe { nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(card, profile, count) })
}

fn mig_device(nvml: &Nvml, card: nvmlDevice_t, index: u32) -> Result<nvmlDevice_t, u32> {
    let mut device = std::ptr::null_mut();
    // SAFETY: as above.
    match unsafe { nvml.functions.nvmlDeviceGetMigDeviceHandleByIndex(card, index, &raw mut device) } {
        SUCCESS => Ok(device),
        code => Err(code),
    }
}

fn uuid(nvml: &Nvml, device: nvmlDevice_t) -> Result<String, u32> {
    // SAFETY: as above; the buffer is as long as the length says.
    nvml.text(|nvml, buffer, length| unsafe { nvml.nvmlDeviceGetUUID(device, buffer, length) })
}

fn partitioned(arguments: &[&str]) -> (Machine, Nvml) {
    let machine = Machine::create(arguments);
    let nvml = machine.nvml();
    for index in 0..machine.show()["machine"]["cards"].as_array().expect("cards").len() {
        assert_eq!(set_mode(&nvml, nvml.card(index as u32), 1), Ok(SUCCESS));
    }
    (machine, nvml)
}

#[test]
fn a_card_without_it_has_no_partitions() {
    let machine = Machine::create(&["--hardware", "t4"]);
    let nvml = machine.nvml();
    let card = nvml.card(0);
    assert_eq!(set_mode(&nvml, card, 1), Err(NOT_SUPPORTED));
    assert_eq!(make_anywhere(&nvml, card, ONE).err(), Some(NOT_SUPPORTED));
    assert_eq!(remaining(&nvml, card, ONE), Err(NOT_SUPPORTED));
    assert_eq!(mig_device(&nvml, card, 0).err(), Some(NOT_SUPPORTED));
    // SAFETY: the place is valid.
    let count = nvml.get::<u32>(|nvml, count| unsafe { nvml.nvmlDeviceGetMaxMigDeviceCount(card, count) });
    assert_eq!(count, Ok(0));
}

#[test]
fn a_hopper_switches_at_once_when_nobody_holds_it() {
    let machine = Machine::create(&["--hardware", "hgx-h100-80gb", "--cards", "1"]);
    let nvml = machine.nvml();
    let card = nvml.card(0);
    machine.emulator("process add", &["--card", "0", "--pid", "7"]);
    assert_eq!(set_mode(&nvml, card, 1), Ok(IN_USE));
    assert_eq!(mode(&nvml, card), (0, 1));
    machine.emulator("process remove", &["--card", "0", "--pid", "7"]);
    assert_eq!(set_mode(&nvml, card, 1), Ok(SUCCESS));
    assert_eq!(mode(&nvml, card), (1, 1));
    let gpu = make_anywhere(&nvml, card, ONE).expect("a 1g");
    assert_eq!(set_mode(&nvml, card, 0), Ok(IN_USE), "instances hold it too");
    assert_eq!(destroy(&nvml, gpu), SUCCESS);
    assert_eq!(set_mode(&nvml, card, 0), Ok(SUCCESS));
    assert_eq!(mode(&nvml, card), (0, 0));
    assert_eq!(set_mode(&nvml, card, 2), Err(INVALID_ARGUMENT));
    assert_eq!(make_anywhere(&nvml, card, ONE).err(), Some(NOT_SUPPORTED), "the mode is off");
    assert_eq!(set_mode(&nvml, card, 1), Ok(SUCCESS));
    machine.emulator("reboot", &[]);
    assert_eq!(mode(&nvml, card), (0, 0), "a Hopper forgets it");
}

#[test]
fn an_ampere_switches_at_the_next_reset_and_keeps_the_mode() {
    let machine = Machine::create(&["--hardware", "hgx-a100-80gb", "--cards", "2"]);
    let nvml = machine.nvml();
    let (card, other) = (nvml.card(0), nvml.card(1));
    assert_eq!(set_mode(&nvml, card, 1), Ok(RESET_REQUIRED));
    assert_eq!(mode(&nvml, card), (0, 1));
    assert_eq!(set_mode(&nvml, card, 0), Ok(SUCCESS), "that takes the order back");
    assert_eq!(mode(&nvml, card), (0, 0));
    assert_eq!(set_mode(&nvml, card, 1), Ok(RESET_REQUIRED));
    machine.emulator("reset", &["--card", "0"]);
    assert_eq!((mode(&nvml, card), mode(&nvml, other)), ((1, 1), (0, 0)));
    make_anywhere(&nvml, card, SEVEN).expect("a 7g");
    assert_eq!(set_mode(&nvml, other, 1), Ok(RESET_REQUIRED));
    machine.emulator("reboot", &[]);
    assert_eq!((mode(&nvml, card), mode(&nvml, other)), ((1, 1), (1, 1)));
    assert_eq!(remaining(&nvml, card, SEVEN), Ok(1), "instances are gone");
}

#[test]
fn an_instance_lies_where_it_was_asked_for_and_nowhere_else() {
    let (_machine, nvml) = partitioned(&["--hardware", "hgx-h100-80gb", "--cards", "1"]);
    let card = nvml.card(0);
    let three = make(&nvml, card, THREE, 4, 4).expect("a 3g");
    let found = info(&nvml, three).expect("its information");
    assert_eq!((found.profileId, found.placement.start, found.placement.size), (THREE, 4, 4));
    assert_eq!(found.device, card);
    assert_eq!(make(&nvml, card, THREE, 4, 4).err(), Some(INSUFFICIENT_RESOURCES), "taken");
    assert_eq!(make(&nvml, card, ONE, 5, 1).err(), Some(INSUFFICIENT_RESOURCES), "taken in part");
    assert_eq!(make(&nvml, card, SEVEN, 0, 8).err(), Some(INSUFFICIENT_RESOURCES));
    for (profile, start, size) in [(ONE, 7, 1), (TWO, 1, 2), (THREE, 0, 3), (FOUR, 4, 4), (77, 0, 1)] {
        assert_eq!(
            make(&nvml, card, profile, start, size).err(),
            Some(INVALID_ARGUMENT),
            "{profile} {start}"
        );
    }
    make(&nvml, card, FOUR, 0, 4).expect("4g + 3g");
    assert_eq!(remaining(&nvml, card, ONE), Ok(0));
    assert_eq!(make_anywhere(&nvml, card, ONE).err(), Some(INSUFFICIENT_RESOURCES));
    assert_eq!(remaining(&nvml, card, 77), Err(NOT_SUPPORTED));
}

#[test]
fn one_partition_has_the_extra_media_engines() {
    let (_machine, nvml) = partitioned(&["--hardware", "hgx-h100-80gb", "--cards", "1"]);
    let card = nvml.card(0);
    let first = make(&nvml, card, ONE_MEDIA, 6, 1).expect("a 1g+me");
    assert_eq!(remaining(&nvml, card, ONE_MEDIA), Ok(0));
    assert_eq!(make(&nvml, card, ONE_MEDIA, 0, 1).err(), Some(INSUFFICIENT_RESOURCES));
    for start in 0..6 {
        make(&nvml, card, ONE, start, 1).expect("a 1g beside it");
    }
    assert_eq!(destroy(&nvml, first), SUCCESS);
    make(&nvml, card, ONE, 6, 1).expect("the seventh 1g");
}

#[test]
fn an_instance_goes_after_what_is_in_it() {
    let (machine, nvml) = partitioned(&["--hardware", "hgx-h100-80gb", "--cards", "1"]);
    let card = nvml.card(0);
    let gpu = make(&nvml, card, THREE, 0, 4).expect("a 3g");
    let compute = make_compute(&nvml, gpu, 2).expect("a 3c");
    let id = info(&nvml, gpu).expect("its information").id;
    assert_eq!(destroy(&nvml, gpu), IN_USE);
    let process = ["--card", "0", "--pid", "7", "--memory-mib", "100"];
    let on = ["--gpu-instance", &id.to_string(), "--compute-instance", "0"];
    machine.emulator("process add", &[&process[..], &on[..]].concat());
    assert_eq!(destroy_compute(&nvml, compute), IN_USE);
    let device = mig_device(&nvml, card, 0).expect("the MIG device");
    let memory = |device| {
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: the place is valid.
        assert_eq!(unsafe { nvml.functions.nvmlDeviceGetMemoryInfo(device, &raw mut memory) }, SUCCESS);
        (memory.total >> 20, memory.used >> 20)
    };
    assert_eq!(memory(device), (40448, 100));
    machine.emulator("process remove", &["--card", "0", "--pid", "7"]);
    assert_eq!(memory(device), (40448, 0));
    assert_eq!(destroy_compute(&nvml, compute), SUCCESS);
    assert_eq!(destroy_compute(&nvml, compute), INVALID_ARGUMENT);
    assert_eq!(destroy(&nvml, gpu), SUCCESS);
    assert_eq!(destroy(&nvml, gpu), INVALID_ARGUMENT);
    assert_eq!(info(&nvml, gpu).err(), Some(INVALID_ARGUMENT));
    assert_eq!(uuid(&nvml, device), Err(INVALID_ARGUMENT));
    let again = make(&nvml, card, THREE, 0, 4).expect("another 3g");
    assert_eq!(info(&nvml, again).expect("its information").id, id, "the place says the id");
    assert_eq!(destroy(&nvml, gpu), INVALID_ARGUMENT, "the old handle does not mean the new instance");
}

#[test]
fn compute_instances_share_the_slices_of_their_gpu_instance() {
    let (_machine, nvml) = partitioned(&["--hardware", "hgx-h100-80gb", "--cards", "1"]);
    let card = nvml.card(0);
    let gpu = make(&nvml, card, FOUR, 0, 4).expect("a 4g");
    let id = |compute| {
        let mut info: nvmlComputeInstanceInfo_t =
            // SAFETY: integers and pointers, for which zeros are valid.
            unsafe { std::mem::zeroed() };
        // SAFETY: the place is valid.
        assert_eq!(unsafe { nvml.functions.nvmlComputeInstanceGetInfo_v2(compute, &raw mut info) }, SUCCESS);
        assert_eq!(info.gpuInstance, gpu);
        assert!(uuid(&nvml, info.device).is_ok_and(|uuid| uuid.starts_with("MIG-")), "the MIG device");
        (info.id, info.placement.start, info.placement.size)
    };
    let two = make_compute(&nvml, gpu, 1).expect("a 2c");
    assert_eq!(id(two), (0, 0, 2));
    let one = make_compute(&nvml, gpu, 0).expect("a 1c");
    assert_eq!(id(one), (1, 2, 1));
    assert_eq!(make_compute(&nvml, gpu, 1).err(), Some(INSUFFICIENT_RESOURCES));
    assert_eq!(make_compute(&nvml, gpu, 3).err(), Some(INSUFFICIENT_RESOURCES));
    assert_eq!(make_compute(&nvml, gpu, 2).err(), Some(NOT_SUPPORTED), "no 3c inside 4g");
    assert_eq!(destroy_compute(&nvml, two), SUCCESS);
    let another = make_compute(&nvml, gpu, 0).expect("a 1c");
    assert_eq!(id(another), (0, 0, 1));
    let name = |index| {
        let device = mig_device(&nvml, card, index).expect("a MIG device");
        // SAFETY: the buffer is as long as the length says.
        nvml.text(|nvml, buffer, length| unsafe { nvml.nvmlDeviceGetName(device, buffer, length) })
    };
    assert_eq!(name(0).as_deref(), Ok("NVIDIA H100 80GB HBM3 MIG 1c.4g.40gb"));
    assert_eq!(mig_device(&nvml, card, 2).err(), Some(NOT_FOUND));
    assert_eq!(mig_device(&nvml, card, 7).err(), Some(INVALID_ARGUMENT));
}

#[test]
fn a_mig_device_is_told_by_its_uuid_and_by_its_files() {
    let (machine, nvml) = partitioned(&["--hardware", "hgx-h100-80gb"]);
    let card = nvml.card(5);
    let gpu = make(&nvml, card, TWO, 2, 2).expect("a 2g");
    make_compute(&nvml, gpu, 1).expect("a 2c");
    let found = info(&nvml, gpu).expect("its information");
    let device = mig_device(&nvml, card, 0).expect("the MIG device");
    let name = uuid(&nvml, device).expect("its UUID");
    assert!(name.starts_with("MIG-") && name.len() == 40, "{name}");
    let text = std::ffi::CString::new(name.clone()).expect("no zero in it");
    let mut same = std::ptr::null_mut();
    let mut attributes = nvmlDeviceAttributes_t {
        multiprocessorCount: 0,
        sharedCopyEngineCount: 0,
        sharedDecoderCount: 0,
        sharedEncoderCount: 0,
        sharedJpegCount: 0,
        sharedOfaCount: 0,
        gpuInstanceSliceCount: 0,
        computeInstanceSliceCount: 0,
        memorySizeMB: 0,
    };
    // SAFETY: places are valid, and the text ends in a zero byte.
    unsafe {
        assert_eq!(nvml.functions.nvmlDeviceGetHandleByUUID(text.as_ptr(), &raw mut same), SUCCESS);
        assert_eq!(same, device);
        assert_eq!(
            nvml.functions.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &raw mut same),
            SUCCESS
        );
        assert_eq!(same, card);
        assert_eq!(nvml.functions.nvmlDeviceGetAttributes_v2(device, &raw mut attributes), SUCCESS);
    }
    assert_eq!((attributes.multiprocessorCount, attributes.gpuInstanceSliceCount), (32, 2));
    assert_eq!((attributes.computeInstanceSliceCount, attributes.memorySizeMB), (2, 20096));
    // SAFETY: the place is valid.
    let id = nvml.get(|nvml, id| unsafe { nvml.nvmlDeviceGetGpuInstanceId(device, id) });
    assert_eq!(id, Ok(found.id));
    // SAFETY: as above.
    let id = nvml.get(|nvml, id| unsafe { nvml.nvmlDeviceGetComputeInstanceId(device, id) });
    assert_eq!(id, Ok(0));
    let is_mig = |of| {
        // SAFETY: as above.
        nvml.get(|nvml, is_mig| unsafe { nvml.nvmlDeviceIsMigDeviceHandle(of, is_mig) })
    };
    assert_eq!((is_mig(device), is_mig(card)), (Ok(1), Ok(0)));
    // SAFETY: as above.
    let power = nvml.get::<u32>(|nvml, power| unsafe { nvml.nvmlDeviceGetPowerUsage(device, power) });
    assert_eq!(power, Err(NOT_SUPPORTED), "a partition has no power of its own");
    let minor = machine.show()["machine"]["cards"][5]["minor"].as_u64().expect("a minor number");
    let minors =
        std::fs::read_to_string(machine.path().join("proc/driver/nvidia-caps/mig-minors")).expect("a list");
    for path in [format!("gi{}/access", found.id), format!("gi{}/ci0/access", found.id)] {
        let file = machine.path().join(format!("proc/driver/nvidia/capabilities/gpu{minor}/mig/{path}"));
        let text = std::fs::read_to_string(file).expect("the capability");
        let number =
            text.lines().next().and_then(|line| line.strip_prefix("DeviceFileMinor: ")).expect("a number");
        assert!(minors.contains(&format!("\ngpu{minor}/{path} {number}\n")), "{path} {number}");
        assert!(machine.path().join(format!("dev/nvidia-caps/nvidia-cap{number}")).exists());
    }
}

#[test]
fn instances_outlive_the_process_that_made_them_and_not_the_boot() {
    let (machine, nvml) = partitioned(&["--hardware", "rtx-pro-6000", "--cards", "1"]);
    let card = nvml.card(0);
    // 14 and 5 mean 1g.24gb and 2g.48gb on this board, whose slices are twelve.
    let gpu = make(&nvml, card, 5, 6, 6).expect("a 2g");
    make_compute(&nvml, gpu, 1).expect("a 2c");
    make(&nvml, card, 14, 3, 3).expect("a 1g");
    let cards = machine.show()["state"]["cards"].clone();
    assert_eq!(cards[0]["mig"]["instances"].as_array().map(Vec::len), Some(2));
    let other = machine.nvml();
    let device = mig_device(&other, other.card(0), 0).expect("the MIG device");
    assert!(uuid(&other, device).expect("its UUID").starts_with("MIG-"));
    machine.emulator("reboot", &[]);
    assert_eq!(mig_device(&nvml, card, 0).err(), Some(NOT_FOUND));
    let capabilities = machine.path().join("proc/driver/nvidia/capabilities/gpu0/mig");
    assert_eq!(std::fs::read_dir(capabilities).expect("a directory").count(), 0);
}

#[test]
fn profiles_are_told_in_every_version_of_the_struct() {
    let machine = Machine::create(&["--hardware", "hgx-a100-40gb", "--cards", "1"]);
    let nvml = machine.nvml();
    let card = nvml.card(0);
    // SAFETY: integers and arrays of characters, for which zeros are valid; places are valid.
    unsafe {
        let mut first: nvmlGpuInstanceProfileInfo_t = std::mem::zeroed();
        let mut second: nvmlGpuInstanceProfileInfo_v2_t = std::mem::zeroed();
        let mut third: nvmlGpuInstanceProfileInfo_v3_t = std::mem::zeroed();
        assert_eq!(nvml.functions.nvmlDeviceGetGpuInstanceProfileInfo(card, 9, &raw mut first), SUCCESS);
        assert_eq!((first.id, first.sliceCount, first.instanceCount, first.memorySizeMB), (15, 1, 4, 9984));
        assert_eq!(
            nvml.functions.nvmlDeviceGetGpuInstanceProfileInfoV(card, 9, &raw mut second),
            INVALID_ARGUMENT,
            "no version"
        );
        second.version = size_of_val(&second) as u32 | 2 << 24;
        assert_eq!(nvml.functions.nvmlDeviceGetGpuInstanceProfileInfoV(card, 9, &raw mut second), SUCCESS);
        let name = std::ffi::CStr::from_ptr(second.name.as_ptr());
        assert_eq!((second.id, name.to_str()), (15, Ok("MIG 1g.10gb")));
        third.version = size_of_val(&third) as u32 | 3 << 24;
        let place = (&raw mut third).cast();
        assert_eq!(nvml.functions.nvmlDeviceGetGpuInstanceProfileInfoV(card, 9, place), SUCCESS);
        assert_eq!((third.id, third.memorySizeMB), (15, 9984));
        assert_eq!(
            nvml.functions.nvmlDeviceGetGpuInstanceProfileInfo(card, 5, &raw mut first),
            NOT_SUPPORTED
        );
        assert_eq!(
            nvml.functions.nvmlDeviceGetGpuInstanceProfileInfo(card, 18, &raw mut first),
            INVALID_ARGUMENT
        );
        let mut count = 0;
        let mut list = [nvmlGpuInstancePlacement_t { start: 9, size: 9 }; 8];
        let ask =
            |list, count| nvml.functions.nvmlDeviceGetGpuInstancePossiblePlacements_v2(card, 15, list, count);
        assert_eq!(ask(std::ptr::null_mut(), &raw mut count), SUCCESS);
        assert_eq!(count, 4);
        assert_eq!(ask(list.as_mut_ptr(), &raw mut count), SUCCESS);
        assert_eq!(list.map(|placement| placement.start), [0, 2, 4, 6, 9, 9, 9, 9]);
    }
}

#[test]
fn calls_on_partitions_can_fail_before_and_after_they_did_it() {
    let (machine, nvml) = partitioned(&["--hardware", "hgx-h100-80gb", "--cards", "2"]);
    let (card, other) = (nvml.card(0), nvml.card(1));
    let fault = [
        "--call",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "--card",
        "0",
        "--error",
        "UNKNOWN",
        "--times",
        "1",
    ];
    machine.emulator("fault", &fault);
    assert_eq!(make(&nvml, card, ONE, 0, 1).err(), Some(UNKNOWN));
    assert_eq!(remaining(&nvml, card, SEVEN), Ok(1), "nothing was made");
    machine.emulator("fault", &[&fault[..], &["--after"]].concat());
    assert_eq!(make(&nvml, card, ONE, 0, 1).err(), Some(UNKNOWN));
    assert_eq!(remaining(&nvml, card, SEVEN), Ok(0), "it was made");
    let gpu = make(&nvml, other, ONE, 0, 1).expect("another card");
    machine.emulator(
        "fault",
        &["--call", "nvmlGpuInstanceDestroy", "--card", "1", "--error", "IN_USE", "--times", "1"],
    );
    assert_eq!(destroy(&nvml, gpu), IN_USE);
    assert_eq!(destroy(&nvml, gpu), SUCCESS);
}

#[test]
fn one_card_changes_one_thing_at_a_time_and_two_cards_two() {
    let (machine, nvml) = partitioned(&["--hardware", "hgx-h100-80gb", "--cards", "2"]);
    machine.emulator("fault", &["--call", "nvmlDeviceCreateGpuInstance", "--delay-ms", "300"]);
    let took = |cards: [u32; 2]| {
        let started = std::time::Instant::now();
        std::thread::scope(|scope| {
            for index in cards {
                let nvml = &nvml;
                scope.spawn(move || make_anywhere(nvml, nvml.card(index), ONE).map(|_| ()).expect("a 1g"));
            }
        });
        started.elapsed().as_millis()
    };
    let (apart, together) = (took([0, 1]), took([0, 0]));
    assert!(together >= 600, "{together} ms");
    assert!(apart < together, "{apart} ms apart, {together} ms together");
}
