//! From NVML and sysfs to the facts that [`tessera_inventory`] works on.
