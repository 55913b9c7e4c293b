"""Prints, as one JSON document, all that nvidia-ml-py reads from the NVML library that the loader finds.

The document has the form of that of strangers-go-nvml: a reading that the library does not support is null; any other
failure is a text that begins with "error: ".
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


def main():
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
