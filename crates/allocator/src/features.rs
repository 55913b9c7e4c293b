//! Feature gates and bugs of Kubernetes.

/// Feature gates that the allocator knows; all are on by default in Kubernetes 1.36.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// DRAAdminAccess
    pub admin_access: bool,
    /// DRAPrioritizedList
    pub prioritized_list: bool,
    /// DRAPartitionableDevices
    pub partitionable_devices: bool,
    /// DRADeviceTaints
    pub device_taints: bool,
    /// DRADeviceBindingConditions with DRAResourceClaimDeviceStatus
    pub device_binding_and_status: bool,
    /// DRAConsumableCapacity
    pub consumable_capacity: bool,
}

impl Default for Features {
    fn default() -> Self {
        Features {
            admin_access: true,
            prioritized_list: true,
            partitionable_devices: true,
            device_taints: true,
            device_binding_and_status: true,
            consumable_capacity: true,
        }
    }
}

impl Features {
    /// No gate is on.
    pub const NONE: Features = Features {
        admin_access: false,
        prioritized_list: false,
        partitionable_devices: false,
        device_taints: false,
        device_binding_and_status: false,
        consumable_capacity: false,
    };

    /// Turns on the gate with this name, as listed by the allocate protocol, such as `AdminAccess`.
    ///
    /// # Errors
    /// There is no such gate; the text is the oracle's.
    pub fn enable(&mut self, name: &str) -> Result<(), String> {
        match name {
            "AdminAccess" => self.admin_access = true,
            "PrioritizedList" => self.prioritized_list = true,
            "PartitionableDevices" => self.partitionable_devices = true,
            "DeviceTaints" => self.device_taints = true,
            "DeviceBindingAndStatus" => self.device_binding_and_status = true,
            "ConsumableCapacity" => self.consumable_capacity = true,
            _ => return Err(format!("unknown feature {name:?}")),
        }
        Ok(())
    }
}

/// Bugs of Kubernetes 1.36.3 that change results. A dry run of kube-scheduler needs them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamBugs {
    /// Counters are kept by the pool's name without its driver (kubernetes/kubernetes#140434): of two drivers with
    /// pools of the same name, the second one's counters are checked against the first one's.
    pub counters_ignore_driver: bool,
    /// One counter with less than zero left keeps every counter-consuming device of its pool from being allocated,
    /// also those that do not use it.
    pub overcommitted_counter_blocks_pool: bool,
    /// distinctAttribute remembers only one value per request: with a count of 3, the values a, b, a pass. It also
    /// forgets values when the search backtracks.
    pub distinct_attribute_forgets: bool,
    /// Configuration in the claim that names several requests is emitted once for each.
    pub claim_configuration_repeats: bool,
    /// A capacity is compared with its policy's default as text: 1Gi and 1024Mi differ.
    pub default_compared_as_written: bool,
}

impl UpstreamBugs {
    /// As in Kubernetes 1.36.3.
    pub const ALL: UpstreamBugs = UpstreamBugs {
        counters_ignore_driver: true,
        overcommitted_counter_blocks_pool: true,
        distinct_attribute_forgets: true,
        claim_configuration_repeats: true,
        default_compared_as_written: true,
    };

    /// None of the bugs.
    pub const NONE: UpstreamBugs = UpstreamBugs {
        counters_ignore_driver: false,
        overcommitted_counter_blocks_pool: false,
        distinct_attribute_forgets: false,
        claim_configuration_repeats: false,
        default_compared_as_written: false,
    };
}

impl Default for UpstreamBugs {
    fn default() -> Self {
        UpstreamBugs::ALL
    }
}
