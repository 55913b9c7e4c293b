package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type allocateRequest struct {
	ID        json.RawMessage              `json:"id"`
	Features  *[]string                    `json:"features"`
	Node      *corev1.Node                 `json:"node"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   []*resourceapi.DeviceClass   `json:"classes"`
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
}

type allocateResponse struct {
	ID          json.RawMessage                `json:"id,omitempty"`
	Allocations []resourceapi.AllocationResult `json:"allocations"`
	Error       string                         `json:"error,omitempty"`
}

// allocateServer keeps compiled selectors across requests, as kube-scheduler keeps them across pods.
type allocateServer struct {
	caches map[dracel.Features]*dracel.Cache
}

func newAllocateServer() *allocateServer {
	return &allocateServer{caches: make(map[dracel.Features]*dracel.Cache)}
}

func (s *allocateServer) cache(features dracel.Features) *dracel.Cache {
	cache, found := s.caches[features]
	if !found {
		cache = dracel.NewCache(4096, features)
		s.caches[features] = cache
	}
	return cache
}

func (s *allocateServer) answer(line []byte) (response allocateResponse) {
	var request allocateRequest
	if err := json.Unmarshal(line, &request); err != nil {
		response.Error = "bad request: " + err.Error()
		return response
	}
	response.ID = request.ID
	defer func() {
		if reason := recover(); reason != nil {
			response.Allocations = nil
			response.Error = fmt.Sprintf("panic: %v", reason)
		}
	}()
	features, err := parseFeatures(request.Features)
	if err != nil {
		response.Error = err.Error()
		return response
	}
	node := request.Node
	if node == nil {
		node = &corev1.Node{}
	}
	cache := s.cache(dracel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity,
		EnableListTypeAttributes: features.ListTypeAttributes,
	})
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, features, allocatedState(request.Allocated), classLister(request.Classes), request.Slices, cache)
	if err == nil {
		response.Allocations, err = allocator.Allocate(ctx, node, request.Claims)
	}
	if err != nil {
		response.Allocations = nil
		response.Error = err.Error()
	}
	return response
}

// gates are those that requests may name. ListTypeAttributes is alpha, the others are on by default.
var gates = []string{
	"AdminAccess",
	"ConsumableCapacity",
	"DeviceBindingAndStatus",
	"DeviceTaints",
	"FractionalCapacityRange",
	"ListTypeAttributes",
	"PartitionableDevices",
	"PrioritizedList",
}

// parseFeatures turns on the gates with these names, or all that are on by default. Releases of Kubernetes that do not
// have a gate yet go without it.
func parseFeatures(names *[]string) (structured.Features, error) {
	features := structured.Features{}
	enabled := slices.DeleteFunc(slices.Clone(gates), func(name string) bool { return name == "ListTypeAttributes" })
	if names != nil {
		enabled = *names
	}
	for _, name := range enabled {
		if !slices.Contains(gates, name) {
			return features, fmt.Errorf("unknown feature %q", name)
		}
		if gate := reflect.ValueOf(&features).Elem().FieldByName(name); gate.IsValid() {
			gate.SetBool(true)
		}
	}
	return features, nil
}

// allocatedState sums up what other claims hold, by the rules of kube-scheduler's allocatedDevices: results with
// admin access occupy nothing, a result with a share id holds its share and its consumed capacity only.
func allocatedState(claims []*resourceapi.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			device := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(device)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, result.ConsumedCapacity))
			}
		}
	}
	return state
}

type classLister []*resourceapi.DeviceClass

func (l classLister) List() ([]*resourceapi.DeviceClass, error) {
	return l, nil
}

func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range l {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, errors.New("deviceclass.resource.k8s.io \"" + name + "\" not found")
}
