package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// step is one order: which one, and what it needs.
type step struct {
	Do      string
	On      int
	Profile uint32
	Start   *uint32
	Gpu     int
	Compute int
}

// bench is what the steps act on: instances are named by the order in which they were made.
type bench struct {
	device   nvml.Device
	library  nvml.Interface
	gpus     []nvml.GpuInstance
	computes []nvml.ComputeInstance
}

func outcome(ret nvml.Return) string {
	if ret == nvml.SUCCESS {
		return "ok"
	}
	return "error: " + ret.Error()
}

func (b *bench) profiles() map[uint32]nvml.GpuInstanceProfileInfo {
	found := map[uint32]nvml.GpuInstanceProfileInfo{}
	for number := 0; number < nvml.GPU_INSTANCE_PROFILE_COUNT; number++ {
		if info, ret := b.device.GetGpuInstanceProfileInfo(number); ret == nvml.SUCCESS {
			found[info.Id] = info
		}
	}
	return found
}

// offers lists the profiles of the card in the order of NVML's numbers.
func (b *bench) offers() any {
	all := []any{}
	for number := 0; number < nvml.GPU_INSTANCE_PROFILE_COUNT; number++ {
		plain, ret := b.device.GetGpuInstanceProfileInfo(number)
		if ret != nvml.SUCCESS {
			all = append(all, answer(plain.Id, ret))
			continue
		}
		second, ret2 := b.device.GetGpuInstanceProfileInfoV(number).V2()
		third, ret3 := b.device.GetGpuInstanceProfileInfoV(number).V3()
		placements, _ := b.device.GetGpuInstancePossiblePlacements(&plain)
		places := [][]uint32{}
		for _, placement := range placements {
			places = append(places, []uint32{placement.Start, placement.Size})
		}
		all = append(all, map[string]any{
			"id": plain.Id, "slices": plain.SliceCount, "instances": plain.InstanceCount,
			"multiprocessors": plain.MultiprocessorCount, "memoryMiB": plain.MemorySizeMB,
			"engines": []uint32{
				plain.CopyEngineCount, plain.DecoderCount, plain.EncoderCount, plain.JpegCount, plain.OfaCount,
			},
			"name": text(second.Name[:]), "placements": places,
			"same": ret2 == nvml.SUCCESS && ret3 == nvml.SUCCESS && second.Id == plain.Id && third.Id == plain.Id &&
				third.MemorySizeMB == plain.MemorySizeMB && third.Name == second.Name,
		})
	}
	return all
}

func (b *bench) computeProfile(gpu nvml.GpuInstance, id uint32) nvml.ComputeInstanceProfileInfo {
	for number := 0; number < nvml.COMPUTE_INSTANCE_PROFILE_COUNT; number++ {
		info, ret := gpu.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.SUCCESS && info.Id == id {
			return info
		}
	}
	return nvml.ComputeInstanceProfileInfo{Id: id}
}

// list lists the instances and the MIG devices of the card.
func (b *bench) list() any {
	instances := map[string]any{}
	for _, profile := range b.profiles() {
		gpus, ret := b.device.GetGpuInstances(&profile)
		if ret != nvml.SUCCESS {
			return answer(0, ret)
		}
		for _, gpu := range gpus {
			info, _ := gpu.GetInfo()
			computes := []any{}
			for number := 0; number < nvml.COMPUTE_INSTANCE_PROFILE_COUNT; number++ {
				offered, ret := gpu.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
				if ret != nvml.SUCCESS {
					continue
				}
				found, _ := gpu.GetComputeInstances(&offered)
				for _, compute := range found {
					info, _ := compute.GetInfo()
					computes = append(computes, []uint32{info.Id, info.ProfileId, info.Placement.Start, info.Placement.Size})
				}
			}
			instances[fmt.Sprint(info.Id)] = map[string]any{
				"profile": info.ProfileId, "start": info.Placement.Start, "size": info.Placement.Size, "compute": computes,
			}
		}
	}
	capacity := map[string]any{}
	for id, profile := range b.profiles() {
		count, ret := b.device.GetGpuInstanceRemainingCapacity(&profile)
		capacity[fmt.Sprint(id)] = answer(count, ret)
	}
	most, ret := b.device.GetMaxMigDeviceCount()
	devices := []any{}
	for index := 0; index < most; index++ {
		device, ret := b.device.GetMigDeviceHandleByIndex(index)
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		devices = append(devices, b.migDevice(device, ret))
	}
	return map[string]any{
		"instances": instances, "capacity": capacity, "most": answer(most, ret), "devices": devices,
	}
}

func (b *bench) migDevice(device nvml.Device, ret nvml.Return) any {
	if ret != nvml.SUCCESS {
		return answer(0, ret)
	}
	name, _ := device.GetName()
	uuid, _ := device.GetUUID()
	gpu, _ := device.GetGpuInstanceId()
	compute, _ := device.GetComputeInstanceId()
	index, _ := device.GetIndex()
	memory, _ := device.GetMemoryInfo()
	attributes, _ := device.GetAttributes()
	isMig, _ := device.IsMigDeviceHandle()
	parent, _ := device.GetDeviceHandleFromMigDeviceHandle()
	parentUUID, _ := parent.GetUUID()
	again, ret := b.library.DeviceGetHandleByUUID(uuid)
	same := ret == nvml.SUCCESS && again == device
	return map[string]any{
		"name": name, "uuid": uuid, "gpuInstance": gpu, "computeInstance": compute, "index": index, "isMig": isMig,
		"memory": memory.Total, "parent": parentUUID, "foundByUuid": same,
		"multiprocessors": attributes.MultiprocessorCount, "memoryMiB": attributes.MemorySizeMB,
		"gpuSlices": attributes.GpuInstanceSliceCount, "computeSlices": attributes.ComputeInstanceSliceCount,
	}
}

func (b *bench) take(step step) any {
	switch step.Do {
	case "offers":
		return b.offers()
	case "list":
		return b.list()
	case "mode":
		status, ret := b.device.SetMigMode(step.On)
		current, pending, _ := b.device.GetMigMode()
		return []any{outcome(ret), outcome(status), current, pending}
	case "create":
		info, known := b.profiles()[step.Profile]
		if !known {
			info.Id = step.Profile
		}
		var gpu nvml.GpuInstance
		var ret nvml.Return
		if step.Start == nil {
			gpu, ret = b.device.CreateGpuInstance(&info)
		} else {
			placements, _ := b.device.GetGpuInstancePossiblePlacements(&info)
			placement := nvml.GpuInstancePlacement{Start: *step.Start}
			if len(placements) > 0 {
				placement.Size = placements[0].Size
			}
			gpu, ret = b.device.CreateGpuInstanceWithPlacement(&info, &placement)
		}
		if ret == nvml.SUCCESS {
			b.gpus = append(b.gpus, gpu)
		}
		return outcome(ret)
	case "createCompute":
		info := b.computeProfile(b.gpus[step.Gpu], step.Profile)
		compute, ret := b.gpus[step.Gpu].CreateComputeInstance(&info)
		if ret == nvml.SUCCESS {
			b.computes = append(b.computes, compute)
		}
		return outcome(ret)
	case "destroy":
		return outcome(b.gpus[step.Gpu].Destroy())
	case "destroyCompute":
		return outcome(b.computes[step.Compute].Destroy())
	}
	return "error: unknown step " + step.Do
}

func partition(library nvml.Interface, text string) error {
	var steps []step
	if err := json.Unmarshal([]byte(text), &steps); err != nil {
		return err
	}
	device, ret := library.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlDeviceGetHandleByIndex(0): %s", ret.Error())
	}
	bench := bench{device: device, library: library}
	answers := []any{}
	for _, step := range steps {
		answers = append(answers, bench.take(step))
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	return encoder.Encode(answers)
}
