// Writes Kubernetes' own table of allocator tests as lines of the allocate protocol, each with the answer of the
// allocator that Kubernetes uses (variant incubating), 1.37 by go.mod, 1.36.3 by its own module file. In the same run upstream's expectations hold that answer to
// be right: a case that fails upstream's matchers fails this test, too.
//
//	go test -count=1 . -args -out ../../../crates/scheduling/allocator/tests/data/upstream-table-1.37.jsonl
//	go test -modfile=kubernetes-1.36.3.mod -count=1 . -args -out ../../../crates/scheduling/allocator/tests/data/upstream-table-1.36.3.jsonl
package tessera

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured/internal"
	"k8s.io/dynamic-resource-allocation/structured/internal/allocatortesting"
	"k8s.io/dynamic-resource-allocation/structured/internal/experimental"
	"k8s.io/dynamic-resource-allocation/structured/internal/incubating"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

var out = flag.String("out", "", "file to write")

type tableCase struct {
	ID        string                       `json:"id"`
	Features  []string                     `json:"features"`
	Node      *v1.Node                     `json:"node"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   []*resourceapi.DeviceClass   `json:"classes"`
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
	Answer    answer                       `json:"answer"`
}

type answer struct {
	Allocations []resourceapi.AllocationResult `json:"allocations"`
	Error       string                         `json:"error,omitempty"`
}

// recorder is the allocator under test: incubating, or experimental where the case needs what only that has.
type recorder struct {
	internal.Allocator
	line  tableCase
	cases *[]tableCase
}

func (r *recorder) Allocate(ctx context.Context, node *v1.Node, claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	results, err := r.Allocator.Allocate(ctx, node, claims)
	r.line.Node, r.line.Claims = node, claims
	r.line.Answer = answer{Allocations: results}
	if err != nil {
		r.line.Answer = answer{Error: err.Error()}
	}
	// Upstream's test replaces ids of shares in the results later.
	*r.cases = append(*r.cases, r.line)
	return results, err
}

func (r *recorder) GetStats() internal.Stats {
	return r.Allocator.(internal.AllocatorExtended).GetStats()
}

func TestTable(t *testing.T) {
	if *out == "" {
		t.Fatal("-args -out FILE says where to write")
	}
	var cases []tableCase
	newAllocator := func(
		ctx context.Context,
		features internal.Features,
		allocated internal.AllocatedState,
		classes internal.DeviceClassLister,
		resourceSlices []*resourceapi.ResourceSlice,
		cache *cel.Cache,
	) (internal.Allocator, error) {
		classes = schedulerLister{classes}
		construct := func() (internal.Allocator, error) {
			return incubating.NewAllocator(ctx, features, allocated, classes, resourceSlices, cache)
		}
		if !incubating.SupportedFeatures.Set().IsSuperset(features.Set()) {
			construct = func() (internal.Allocator, error) {
				return experimental.NewAllocator(ctx, features, allocated, classes, resourceSlices, cache)
			}
		}
		allocator, err := construct()
		if err != nil {
			return nil, err
		}
		all, err := classes.List()
		if err != nil {
			return nil, err
		}
		return &recorder{Allocator: allocator, cases: &cases, line: tableCase{
			ID:        testName(ctx),
			Features:  featureNames(features),
			Slices:    resourceSlices,
			Classes:   all,
			Allocated: claimsOf(allocated),
		}}, nil
	}
	t.Run("table", func(t *testing.T) {
		allocatortesting.TestAllocator(t, internal.FeaturesAll, newAllocator)
		allocatortesting.TestLexicographicalAllocator(t, internal.FeaturesAll, newAllocator)
	})
	slices.SortFunc(cases, func(one, two tableCase) int { return cmp.Compare(one.ID, two.ID) })
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	for _, line := range cases {
		if err := encoder.Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	if t.Failed() {
		t.Fatal("upstream's expectations do not hold: nothing is written")
	}
	if err := os.WriteFile(*out, buffer.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	fmt.Println(len(cases), "cases")
}

// schedulerLister has the error text of kube-scheduler's lister; that of upstream's test has no name in it.
type schedulerLister struct{ internal.DeviceClassLister }

func (l schedulerLister) Get(name string) (*resourceapi.DeviceClass, error) {
	class, err := l.DeviceClassLister.Get(name)
	if err != nil {
		return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclass"), name)
	}
	return class, nil
}

func testName(ctx context.Context) string {
	underlier := klog.FromContext(ctx).GetSink().(ktesting.Underlier)
	name := underlier.GetUnderlying().(interface{ Name() string }).Name()
	return strings.TrimPrefix(name, "TestTable/table/")
}

// featureNames are those of the allocate protocol.
func featureNames(features internal.Features) []string {
	names := []string{}
	all := reflect.ValueOf(features)
	for index := range all.NumField() {
		if all.Field(index).Bool() {
			names = append(names, all.Type().Field(index).Name)
		}
	}
	return names
}

// claimsOf makes claims that hold what the state says: capacity that is consumed of a device is one share of it.
func claimsOf(state internal.AllocatedState) []*resourceapi.ResourceClaim {
	var results []resourceapi.DeviceRequestAllocationResult
	result := func(device internal.DeviceID) resourceapi.DeviceRequestAllocationResult {
		return resourceapi.DeviceRequestAllocationResult{
			Request: "request",
			Driver:  device.Driver.String(),
			Pool:    device.Pool.String(),
			Device:  device.Device.String(),
		}
	}
	for device := range state.AllocatedDevices {
		results = append(results, result(device))
	}
	// Only whether and how much capacity is consumed matters to allocators; ids of shares do not.
	for device, consumed := range state.AggregatedCapacity {
		share := result(device)
		share.ShareID = new(types.UID("11111111-2222-4333-8444-555555555555"))
		share.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{}
		for name, quantity := range consumed {
			share.ConsumedCapacity[name] = *quantity
		}
		results = append(results, share)
	}
	slices.SortFunc(results, func(one, two resourceapi.DeviceRequestAllocationResult) int {
		return cmp.Or(cmp.Compare(one.Driver, two.Driver), cmp.Compare(one.Pool, two.Pool), cmp.Compare(one.Device, two.Device))
	})
	claims := []*resourceapi.ResourceClaim{}
	for index, result := range results {
		claims = append(claims, &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("held-%d", index), Namespace: "default"},
			Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
				Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
			}},
		})
	}
	return claims
}
