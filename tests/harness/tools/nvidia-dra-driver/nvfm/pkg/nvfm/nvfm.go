// Package nvfm has those names of NVIDIA's bindings to its fabric manager that NVIDIA's driver is compiled against, and
// none of their work: the module with the bindings cannot be had from every proxy, see ../../../go.mod. Only
// NVIDIA's plugin for GPUs calls them, which no test runs.
package nvfm

// Return is an answer of the fabric manager's library.
type Return int

const (
	// SUCCESS is never answered here.
	SUCCESS Return = iota
	missing
)

func (Return) Error() string { return "built without the bindings to the fabric manager" }

// FabricPartitionId is a partition's number.
type FabricPartitionId uint32

// FabricPartitionGpuInfo is a card of a partition.
type FabricPartitionGpuInfo struct {
	PhysicalId                                             uint32
	Uuid, PciBusId                                         [1]int8
	NumNvLinksAvailable, MaxNumNvLinks, NvlinkLineRateMBps uint32
}

// FabricPartitionInfo is a partition.
type FabricPartitionInfo struct {
	PartitionId       FabricPartitionId
	IsActive, NumGpus uint32
	GpuInfo           [1]FabricPartitionGpuInfo
}

// FabricPartitionList is what partitions there are.
type FabricPartitionList struct {
	NumPartitions uint32
	PartitionInfo [1]FabricPartitionInfo
}

// Handle is a connection.
type Handle struct{}

func (Handle) ActivateFabricPartition(FabricPartitionId) Return   { return missing }
func (Handle) DeactivateFabricPartition(FabricPartitionId) Return { return missing }
func (Handle) Disconnect() Return                                 { return missing }
func (Handle) GetSupportedFabricPartitions() (FabricPartitionList, Return) {
	return FabricPartitionList{}, missing
}

// Interface is the library.
type Interface struct{}

// LibraryOption says which library.
type LibraryOption struct{}

// ConnectOption says how to reach the fabric manager.
type ConnectOption struct{}

func New(...LibraryOption) Interface                        { return Interface{} }
func WithLibraryPath(string) LibraryOption                  { return LibraryOption{} }
func WithUnixSocket(string) ConnectOption                   { return ConnectOption{} }
func WithAddress(string) ConnectOption                      { return ConnectOption{} }
func WithTimeoutMs(uint32) ConnectOption                    { return ConnectOption{} }
func (Interface) Init() Return                              { return missing }
func (Interface) Shutdown() Return                          { return missing }
func (Interface) Connect(...ConnectOption) (Handle, Return) { return Handle{}, missing }
