// Strangers-go-nvml prints, as one JSON document, all that go-nvml reads from an NVML library.
//
// Its first argument is the library's path. With a second one, a JSON list of steps, it partitions the first card as they
// say, and prints what came of each.
//
// A reading that the library does not support is null; any other failure is a text that begins with "error: ".
package main

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// answer turns the outcome of a call into what is printed of it.
func answer[T any](value T, ret nvml.Return) any {
	switch ret {
	case nvml.SUCCESS:
		return value
	case nvml.ERROR_NOT_SUPPORTED:
		return nil
	}
	return "error: " + ret.Error()
}

func text(characters []int8) string {
	var bytes []byte
	for _, character := range characters {
		if character == 0 {
			break
		}
		bytes = append(bytes, byte(character))
	}
	return string(bytes)
}

func pci(info nvml.PciInfo) map[string]any {
	return map[string]any{
		"busId":       text(info.BusId[:]),
		"domain":      info.Domain,
		"bus":         info.Bus,
		"device":      info.Device,
		"deviceId":    info.PciDeviceId,
		"subsystemId": info.PciSubSystemId,
	}
}

// members lists the bits that are set.
func members(words []uint) []int {
	set := []int{}
	for position, word := range words {
		for ; word != 0; word &= word - 1 {
			set = append(set, position*bits.UintSize+bits.TrailingZeros(word))
		}
	}
	return set
}

func links(device nvml.Device) []map[string]any {
	all := []map[string]any{}
	for number := 0; number < nvml.NVLINK_MAX_LINKS; number++ {
		state, ret := device.GetNvLinkState(number)
		if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT {
			break
		}
		link := map[string]any{"active": answer(state == nvml.FEATURE_ENABLED, ret)}
		version, ret := device.GetNvLinkVersion(number)
		link["version"] = answer(version, ret)
		kind, ret := device.GetNvLinkRemoteDeviceType(number)
		link["remoteType"] = answer(kind, ret)
		info, ret := device.GetNvLinkRemotePciInfo(number)
		link["remotePci"] = answer(pci(info), ret)
		peer, ret := device.GetNvLinkCapability(number, nvml.NVLINK_CAP_P2P_SUPPORTED)
		link["peerToPeer"] = answer(peer, ret)
		all = append(all, link)
	}
	return all
}

func fabric(device nvml.Device) any {
	info, ret := device.GetGpuFabricInfoV().V3()
	return answer(map[string]any{
		"clusterUuid":   fmt.Sprintf("%x", info.ClusterUuid),
		"cliqueId":      info.CliqueId,
		"state":         info.State,
		"status":        info.Status,
		"healthMask":    info.HealthMask,
		"healthSummary": info.HealthSummary,
	}, ret)
}

func processes(list []nvml.ProcessInfo, ret nvml.Return) any {
	all := []map[string]any{}
	for _, process := range list {
		all = append(all, map[string]any{"pid": process.Pid, "usedGpuMemory": process.UsedGpuMemory})
	}
	return answer(all, ret)
}

func card(device nvml.Device) map[string]any {
	card := map[string]any{}
	put := func(name string, value any) { card[name] = value }

	name, ret := device.GetName()
	put("name", answer(name, ret))
	uuid, ret := device.GetUUID()
	put("uuid", answer(uuid, ret))
	serial, ret := device.GetSerial()
	put("serial", answer(serial, ret))
	index, ret := device.GetIndex()
	put("index", answer(index, ret))
	minor, ret := device.GetMinorNumber()
	put("minor", answer(minor, ret))
	brand, ret := device.GetBrand()
	put("brand", answer(brand, ret))
	architecture, ret := device.GetArchitecture()
	put("architecture", answer(architecture, ret))
	major, minorCapability, ret := device.GetCudaComputeCapability()
	put("computeCapability", answer(fmt.Sprintf("%d.%d", major, minorCapability), ret))
	info, ret := device.GetPciInfo()
	put("pci", answer(pci(info), ret))
	board, ret := device.GetBoardPartNumber()
	put("boardPartNumber", answer(board, ret))
	vbios, ret := device.GetVbiosVersion()
	put("vbiosVersion", answer(vbios, ret))
	memory, ret := device.GetMemoryInfo()
	put("memory", answer(map[string]any{"total": memory.Total, "free": memory.Free, "used": memory.Used}, ret))
	memory2, ret := device.GetMemoryInfo_v2()
	put("memoryV2", answer(map[string]any{
		"total": memory2.Total, "reserved": memory2.Reserved, "free": memory2.Free, "used": memory2.Used,
	}, ret))
	bar1, ret := device.GetBAR1MemoryInfo()
	put("bar1Total", answer(bar1.Bar1Total, ret))
	current, pending, ret := device.GetMigMode()
	put("migMode", answer([]int{current, pending}, ret))
	module, ret := device.GetModuleId()
	put("moduleId", answer(module, ret))
	node, ret := device.GetNumaNodeId()
	put("memoryNumaNode", answer(node, ret))
	cpus, ret := device.GetCpuAffinity(512)
	put("cpus", answer(members(cpus), ret))
	nodes, ret := device.GetMemoryAffinity(512, nvml.AFFINITY_SCOPE_NODE)
	put("numaNodes", answer(members(nodes), ret))
	put("links", links(device))
	put("fabric", fabric(device))
	usage, ret := device.GetPowerUsage()
	put("powerUsage", answer(usage, ret))
	limit, ret := device.GetEnforcedPowerLimit()
	put("powerLimit", answer(limit, ret))
	lowest, highest, ret := device.GetPowerManagementLimitConstraints()
	put("powerLimits", answer([]uint32{lowest, highest}, ret))
	temperature, ret := device.GetTemperature(nvml.TEMPERATURE_GPU)
	put("temperature", answer(temperature, ret))
	clock, ret := device.GetMaxClockInfo(nvml.CLOCK_MEM)
	put("memoryClockMax", answer(clock, ret))
	mode, ret := device.GetComputeMode()
	put("computeMode", answer(mode, ret))
	ecc, _, ret := device.GetEccMode()
	put("ecc", answer(ecc, ret))
	generation, ret := device.GetMaxPcieLinkGeneration()
	put("pcieGenerationMax", answer(generation, ret))
	utilization, ret := device.GetUtilizationRates()
	put("utilization", answer([]uint32{utilization.Gpu, utilization.Memory}, ret))
	put("computeProcesses", processes(device.GetComputeRunningProcesses()))
	put("graphicsProcesses", processes(device.GetGraphicsRunningProcesses()))
	events, ret := device.GetSupportedEventTypes()
	put("eventTypes", answer(events, ret))
	return card
}

func run() error {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		return fmt.Errorf("usage: %s LIBRARY [STEPS]", os.Args[0])
	}
	library := nvml.New(nvml.WithLibraryPath(os.Args[1]))
	if ret := library.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlInit: %s", ret.Error())
	}
	defer library.Shutdown()
	if len(os.Args) == 3 {
		return partition(library, os.Args[2])
	}

	document := map[string]any{}
	driver, ret := library.SystemGetDriverVersion()
	document["driverVersion"] = answer(driver, ret)
	own, ret := library.SystemGetNVMLVersion()
	document["nvmlVersion"] = answer(own, ret)
	cuda, ret := library.SystemGetCudaDriverVersion_v2()
	document["cudaDriverVersion"] = answer(cuda, ret)

	count, ret := library.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlDeviceGetCount: %s", ret.Error())
	}
	devices := []nvml.Device{}
	for index := 0; index < count; index++ {
		device, ret := library.DeviceGetHandleByIndex(index)
		if ret != nvml.SUCCESS {
			return fmt.Errorf("nvmlDeviceGetHandleByIndex(%d): %s", index, ret.Error())
		}
		devices = append(devices, device)
	}
	cards := []map[string]any{}
	levels, peers := [][]any{}, [][]any{}
	for _, device := range devices {
		cards = append(cards, card(device))
		levelRow, peerRow := []any{}, []any{}
		for _, other := range devices {
			level, ret := device.GetTopologyCommonAncestor(other)
			levelRow = append(levelRow, answer(level, ret))
			status, ret := device.GetP2PStatus(other, nvml.P2P_CAPS_INDEX_NVLINK)
			peerRow = append(peerRow, answer(status, ret))
		}
		levels, peers = append(levels, levelRow), append(peers, peerRow)
	}
	document["cards"], document["levels"], document["nvlinkPeers"] = cards, levels, peers
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	return encoder.Encode(document)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
