"""Prints, as one JSON document, all that nvidia-ml-py reads from the NVML library that the loader finds.

The document has the form of that of strangers-go-nvml: a reading that the library does not support is null; any other
failure is a text that begins with "error: ".

With an argument, a JSON list of steps, it partitions the first card as they say, and prints what came of each.
"""

import json
import sys

import pynvml as nvml


def ask(function, *arguments):
    """What a call answers, as it is printed."""
    try:
        return function(*arguments)
    except nvml.NVMLError_NotSupported:
        return None
    except nvml.NVMLError as error:
        return f"error: {error}"


def take(function, *arguments, of):
    """What `of` makes of a call's answer."""
    answer = ask(function, *arguments)
    return answer if answer is None or isinstance(answer, str) else of(answer)


def pci(info):
    return {
        "busId": info.busId,
        "domain": info.domain,
        "bus": info.bus,
        "device": info.device,
        "deviceId": info.pciDeviceId,
        "subsystemId": info.pciSubSystemId,
    }


def members(words):
    """Numbers of the bits that are set in words of 64 bits."""
    return [
        position * 64 + bit for position, word in enumerate(words) for bit in range(64) if word >> bit & 1
    ]


def links(device):
    found = []
    for number in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = ask(nvml.nvmlDeviceGetNvLinkState, device, number)
        if state is None or isinstance(state, str):
            break
        found.append(
            {
                "active": state == nvml.NVML_FEATURE_ENABLED,
                "version": ask(nvml.nvmlDeviceGetNvLinkVersion, device, number),
                "remoteType": take(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, device, number, of=int),
                "remotePci": take(nvml.nvmlDeviceGetNvLinkRemotePciInfo, device, number, of=pci),
                "peerToPeer": ask(
                    nvml.nvmlDeviceGetNvLinkCapability, device, number, nvml.NVML_NVLINK_CAP_P2P_SUPPORTED
                ),
            }
        )
    return found


def fabric(device):
    info = nvml.c_nvmlGpuFabricInfo_v3_t()
    info.version = nvml.nvmlGpuFabricInfo_v3
    return take(
        lambda: nvml.nvmlDeviceGetGpuFabricInfoV(device, nvml.byref(info)) or info,
        of=lambda _: {
            "clusterUuid": bytes(byte & 0xFF for byte in bytearray(info.clusterUuid).ljust(16, b"\0")[:16]).hex(),
            "cliqueId": info.cliqueId,
            "state": info.state,
            "status": info.status,
            "healthMask": info.healthMask,
            "healthSummary": info.healthSummary,
        },
    )


def processes(function, device):
    return take(
        function,
        device,
        of=lambda found: [{"pid": process.pid, "usedGpuMemory": process.usedGpuMemory or 0} for process in found],
    )


def card(device):
    return {
        "name": ask(nvml.nvmlDeviceGetName, device),
        "uuid": ask(nvml.nvmlDeviceGetUUID, device),
        "serial": ask(nvml.nvmlDeviceGetSerial, device),
        "index": ask(nvml.nvmlDeviceGetIndex, device),
        "minor": ask(nvml.nvmlDeviceGetMinorNumber, device),
        "brand": ask(nvml.nvmlDeviceGetBrand, device),
        "architecture": ask(nvml.nvmlDeviceGetArchitecture, device),
        "computeCapability": take(
            nvml.nvmlDeviceGetCudaComputeCapability, device, of=lambda pair: f"{pair[0]}.{pair[1]}"
        ),
        "pci": take(nvml.nvmlDeviceGetPciInfo, device, of=pci),
        "boardPartNumber": ask(nvml.nvmlDeviceGetBoardPartNumber, device),
        "vbiosVersion": ask(nvml.nvmlDeviceGetVbiosVersion, device),
        "memory": take(
            nvml.nvmlDeviceGetMemoryInfo,
            device,
            of=lambda memory: {"total": memory.total, "free": memory.free, "used": memory.used},
        ),
        "memoryV2": take(
            nvml.nvmlDeviceGetMemoryInfo,
            device,
            nvml.nvmlMemory_v2,
            of=lambda memory: {
                "total": memory.total,
                "reserved": memory.reserved,
                "free": memory.free,
                "used": memory.used,
            },
        ),
        "bar1Total": take(nvml.nvmlDeviceGetBAR1MemoryInfo, device, of=lambda bar1: bar1.bar1Total),
        "migMode": take(nvml.nvmlDeviceGetMigMode, device, of=list),
        "moduleId": ask(nvml.nvmlDeviceGetModuleId, device),
        "memoryNumaNode": take(nvml.nvmlDeviceGetNumaNodeId, device, of=int),
        "cpus": take(nvml.nvmlDeviceGetCpuAffinity, device, 512, of=members),
        "numaNodes": take(
            nvml.nvmlDeviceGetMemoryAffinity, device, 512, nvml.NVML_AFFINITY_SCOPE_NODE, of=members
        ),
        "links": links(device),
        "fabric": fabric(device),
        "powerUsage": ask(nvml.nvmlDeviceGetPowerUsage, device),
        "powerLimit": ask(nvml.nvmlDeviceGetEnforcedPowerLimit, device),
        "powerLimits": take(nvml.nvmlDeviceGetPowerManagementLimitConstraints, device, of=list),
        "temperature": ask(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
        "memoryClockMax": ask(nvml.nvmlDeviceGetMaxClockInfo, device, nvml.NVML_CLOCK_MEM),
        "computeMode": ask(nvml.nvmlDeviceGetComputeMode, device),
        "ecc": take(nvml.nvmlDeviceGetEccMode, device, of=lambda modes: modes[0]),
        "pcieGenerationMax": ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, device),
        "utilization": take(
            nvml.nvmlDeviceGetUtilizationRates, device, of=lambda rates: [rates.gpu, rates.memory]
        ),
        "computeProcesses": processes(nvml.nvmlDeviceGetComputeRunningProcesses, device),
        "graphicsProcesses": processes(nvml.nvmlDeviceGetGraphicsRunningProcesses, device),
        "eventTypes": ask(nvml.nvmlDeviceGetSupportedEventTypes, device),
    }


# NVML_GPU_INSTANCE_PROFILE_COUNT and NVML_COMPUTE_INSTANCE_PROFILE_COUNT of the newest header.
GPU_PROFILES = 18
COMPUTE_PROFILES = 9


def text(name):
    return name.decode() if isinstance(name, bytes) else name


def listed(function, of, profile, kind):
    """The list that a function fills for a profile."""
    room = (kind * 16)()
    count = nvml.c_uint(16)
    function(of, profile, room, nvml.byref(count))
    return [room[position] for position in range(count.value)]


def placements(device, profile):
    count = nvml.c_uint()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile, None, nvml.byref(count))
    room = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile, room, nvml.byref(count))
    return [[placement.start, placement.size] for placement in room]


class Bench:
    """What the steps act on: instances are named by the order in which they were made."""

    def __init__(self, device):
        self.device = device
        self.gpus = []
        self.computes = []

    def profile(self, number):
        """A profile of the card in all versions of its struct."""
        one = nvml.nvmlDeviceGetGpuInstanceProfileInfo(self.device, number, version=1)
        two = nvml.nvmlDeviceGetGpuInstanceProfileInfo(self.device, number)
        by_id = nvml.nvmlDeviceGetGpuInstanceProfileInfoById(self.device, one.id)
        engines = lambda info: [
            info.copyEngineCount,
            info.decoderCount,
            info.encoderCount,
            info.jpegCount,
            info.ofaCount,
        ]
        described = lambda info: [info.id, info.sliceCount, info.instanceCount, info.memorySizeMB, *engines(info)]
        return {
            "id": one.id,
            "slices": one.sliceCount,
            "instances": one.instanceCount,
            "multiprocessors": one.multiprocessorCount,
            "memoryMiB": one.memorySizeMB,
            "engines": engines(one),
            "name": text(two.name),
            "placements": placements(self.device, one.id),
            "same": described(one) == described(two) == described(by_id),
        }

    def offers(self):
        return [ask(self.profile, number) for number in range(GPU_PROFILES)]

    def ids(self):
        return [offer["id"] for offer in self.offers() if isinstance(offer, dict)]

    def compute_instances(self, gpu):
        found = []
        for number in range(COMPUTE_PROFILES):
            offered = ask(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gpu, number, 0)
            if offered is None or isinstance(offered, str):
                continue
            function = nvml.nvmlGpuInstanceGetComputeInstances
            for compute in listed(function, gpu, offered.id, nvml.c_nvmlComputeInstance_t):
                info = nvml.nvmlComputeInstanceGetInfo(compute)
                found.append([info.id, info.profileId, info.placement.start, info.placement.size])
        return found

    def list(self):
        instances = {}
        for profile in self.ids():
            for gpu in listed(nvml.nvmlDeviceGetGpuInstances, self.device, profile, nvml.c_nvmlGpuInstance_t):
                info = nvml.nvmlGpuInstanceGetInfo(gpu)
                instances[str(info.id)] = {
                    "profile": info.profileId,
                    "start": info.placement.start,
                    "size": info.placement.size,
                    "compute": self.compute_instances(gpu),
                }
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(self.device)
        devices = []
        for index in range(most):
            try:
                devices.append(self.mig_device(nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.device, index)))
            except nvml.NVMLError_NotFound:
                continue
        return {
            "instances": instances,
            "capacity": {
                str(profile): ask(nvml.nvmlDeviceGetGpuInstanceRemainingCapacity, self.device, profile)
                for profile in self.ids()
            },
            "most": most,
            "devices": devices,
        }

    def mig_device(self, device):
        attributes = nvml.nvmlDeviceGetAttributes_v2(device)
        uuid = nvml.nvmlDeviceGetUUID(device)
        again = nvml.nvmlDeviceGetHandleByUUID(uuid)
        address = lambda handle: nvml.cast(handle, nvml.c_void_p).value
        return {
            "name": nvml.nvmlDeviceGetName(device),
            "uuid": uuid,
            "gpuInstance": nvml.nvmlDeviceGetGpuInstanceId(device),
            "computeInstance": nvml.nvmlDeviceGetComputeInstanceId(device),
            "index": nvml.nvmlDeviceGetIndex(device),
            "isMig": bool(nvml.nvmlDeviceIsMigDeviceHandle(device).value),
            "memory": nvml.nvmlDeviceGetMemoryInfo(device).total,
            "parent": nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)),
            "foundByUuid": address(again) == address(device),
            "multiprocessors": attributes.multiprocessorCount,
            "memoryMiB": attributes.memorySizeMB,
            "gpuSlices": attributes.gpuInstanceSliceCount,
            "computeSlices": attributes.computeInstanceSliceCount,
        }

    def create(self, profile, start=None):
        if start is None:
            gpu = nvml.nvmlDeviceCreateGpuInstance(self.device, profile)
        else:
            found = take(placements, self.device, profile, of=list)
            size = found[0][1] if isinstance(found, list) else 0
            placement = nvml.c_nvmlGpuInstancePlacement_t(start, size)
            gpu = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(self.device, profile, nvml.byref(placement))
        self.gpus.append(gpu)

    def create_compute(self, gpu, profile):
        self.computes.append(nvml.nvmlGpuInstanceCreateComputeInstance(self.gpus[gpu], profile))

    def step(self, do, **arguments):
        """What came of a step, as it is printed."""
        orders = {
            "create": self.create,
            "createCompute": self.create_compute,
            "destroy": lambda gpu: nvml.nvmlGpuInstanceDestroy(self.gpus[gpu]),
            "destroyCompute": lambda compute: nvml.nvmlComputeInstanceDestroy(self.computes[compute]),
        }
        if do == "offers":
            return self.offers()
        if do == "list":
            return self.list()
        if do == "mode":
            status = nvml.nvmlDeviceSetMigMode(self.device, arguments["on"])
            outcome = "ok" if status == 0 else f"error: {nvml.nvmlErrorString(status)}"
            return ["ok", outcome, *nvml.nvmlDeviceGetMigMode(self.device)]
        try:
            orders[do](**arguments)
        except nvml.NVMLError as error:
            return f"error: {error}"
        return "ok"


def partition(steps):
    nvml.nvmlInit()
    bench = Bench(nvml.nvmlDeviceGetHandleByIndex(0))
    json.dump([bench.step(**step) for step in steps], sys.stdout)
    nvml.nvmlShutdown()


def main():
    if len(sys.argv) > 1:
        partition(json.loads(sys.argv[1]))
        return
    nvml.nvmlInit()
    devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    json.dump(
        {
            "driverVersion": ask(nvml.nvmlSystemGetDriverVersion),
            "nvmlVersion": ask(nvml.nvmlSystemGetNVMLVersion),
            "cudaDriverVersion": ask(nvml.nvmlSystemGetCudaDriverVersion_v2),
            "cards": [card(device) for device in devices],
            "levels": [
                [ask(nvml.nvmlDeviceGetTopologyCommonAncestor, one, other) for other in devices]
                for one in devices
            ],
            "nvlinkPeers": [
                [ask(nvml.nvmlDeviceGetP2PStatus, one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK) for other in devices]
                for one in devices
            ],
        },
        sys.stdout,
    )
    nvml.nvmlShutdown()


if __name__ == "__main__":
    main()
