module tessera.dev/tests/tools/strangers-go-nvml

go 1.24

require github.com/NVIDIA/go-nvml v0.13.3-1
