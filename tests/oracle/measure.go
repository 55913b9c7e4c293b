package main

import (
	"context"
	"encoding/json"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const (
	// Repetitions of one line end when there are this many or they took this long in all.
	mostRepetitions = 2000
	longestMeasure  = 2 * time.Second
	// kube-scheduler gives up a filter after this.
	filterTimeout = 10 * time.Second
)

type measureRequest struct {
	allocateRequest
	// Not in the protocol: one allocation for each of these, with one allocator, is one repetition.
	Nodes []*corev1.Node `json:"nodes"`
}

type measureResponse struct {
	ID          json.RawMessage `json:"id,omitempty"`
	P50         int64           `json:"p50_ns"`
	P99         int64           `json:"p99_ns"`
	Repetitions int             `json:"repetitions"`
	// Whether the last repetition allocated, on any node.
	Allocated bool `json:"allocated"`
	// An error of the allocation, such as that it took too long.
	Error string `json:"error,omitempty"`
}

// measure repeats one allocation with a fresh allocator each time and one cache of compiled selectors, as
// kube-scheduler has for each pod.
func (s *allocateServer) measure(line []byte) (response measureResponse) {
	var request measureRequest
	if err := json.Unmarshal(line, &request); err != nil {
		response.Error = "bad request: " + err.Error()
		return response
	}
	response.ID = request.ID
	features, err := parseFeatures(request.Features)
	if err != nil {
		response.Error = err.Error()
		return response
	}
	nodes := request.Nodes
	if len(nodes) == 0 {
		nodes = []*corev1.Node{request.Node}
	}
	cache := s.cache(dracel.Features{EnableConsumableCapacity: features.ConsumableCapacity})
	allocated, classes := allocatedState(request.Allocated), classLister(request.Classes)
	var times []int64
	for begin := time.Now(); len(times) < mostRepetitions && (len(times) == 0 || time.Since(begin) < longestMeasure); {
		response.Error, response.Allocated = "", false
		ctx, cancel := context.WithTimeout(context.Background(), filterTimeout)
		start := time.Now()
		allocator, err := structured.NewAllocator(ctx, features, allocated, classes, request.Slices, cache)
		for _, node := range nodes {
			if err != nil {
				break
			}
			allocations, allocateErr := allocator.Allocate(ctx, node, request.Claims)
			if allocateErr != nil {
				response.Error = allocateErr.Error()
			}
			response.Allocated = response.Allocated || allocations != nil
		}
		times = append(times, time.Since(start).Nanoseconds())
		cancel()
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	response.P50, response.P99 = times[len(times)/2], times[len(times)*99/100]
	response.Repetitions = len(times)
	return response
}
