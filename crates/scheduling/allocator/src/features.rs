//! Feature gates, bugs and rules of Kubernetes by release.

use tessera_api::kubernetes::KubernetesVersion;

/// Feature gates known to the allocator; all are on by default.
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
    /// DRAFractionalCapacityRange, from 1.37 on
    pub fractional_capacity_range: bool,
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
            fractional_capacity_range: true,
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
        fractional_capacity_range: false,
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
            "FractionalCapacityRange" => self.fractional_capacity_range = true,
            _ => return Err(format!("unknown feature {name:?}")),
        }
        Ok(())
    }
}

/// Bugs of Kubernetes with an effect on results. A dry run of kube-scheduler needs the bugs of its release: [`Self::of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamBugs {
    /// Counters are kept by the pool's name without its driver (kubernetes/kubernetes#140434): of two drivers with
    /// pools of the same name, the second one's counters are checked against the first one's. Until 1.36.3.
    pub counters_ignore_driver: bool,
    /// One counter with less than zero left blocks every counter-consuming device of its pool, including devices
    /// without use of the counter. In all releases.
    pub overcommitted_counter_blocks_pool: bool,
    /// distinctAttribute keeps only one value per request: with a count of 3, the values a, b, a pass. Backtracking also
    /// drops values. Until 1.36.
    pub distinct_attribute_forgets: bool,
    /// A claim's configuration for several requests is emitted once for each. Until 1.36.
    pub claim_configuration_repeats: bool,
    /// A capacity is compared with its policy's default as text: 1Gi and 1024Mi differ. In all releases.
    pub default_compared_as_written: bool,
    /// A further share of a device takes the device's counters again where the shares before it have no consumed
    /// capacity (kubernetes/kubernetes#140433). Until 1.36.
    pub shares_without_capacity_charge_again: bool,
    /// Amounts are rounded up to the step of a range in 64 bits without looking for an overflow, so that a large
    /// request becomes negative; negative amounts are allocated. Until 1.36.
    pub amounts_wrap: bool,
}

impl UpstreamBugs {
    /// All of them: as in Kubernetes 1.36.3.
    pub const ALL: UpstreamBugs = UpstreamBugs {
        counters_ignore_driver: true,
        overcommitted_counter_blocks_pool: true,
        distinct_attribute_forgets: true,
        claim_configuration_repeats: true,
        default_compared_as_written: true,
        shares_without_capacity_charge_again: true,
        amounts_wrap: true,
    };

    /// None of the bugs.
    pub const NONE: UpstreamBugs = UpstreamBugs {
        counters_ignore_driver: false,
        overcommitted_counter_blocks_pool: false,
        distinct_attribute_forgets: false,
        claim_configuration_repeats: false,
        default_compared_as_written: false,
        shares_without_capacity_charge_again: false,
        amounts_wrap: false,
    };

    /// For this release.
    #[must_use]
    pub fn of(version: KubernetesVersion) -> Self {
        match version {
            KubernetesVersion::V1_36_3 => Self::ALL,
            KubernetesVersion::V1_36_4 | KubernetesVersion::V1_36_5 => {
                UpstreamBugs { counters_ignore_driver: false, ..Self::ALL }
            }
            KubernetesVersion::V1_37 => UpstreamBugs {
                overcommitted_counter_blocks_pool: true,
                default_compared_as_written: true,
                ..Self::NONE
            },
        }
    }
}

/// Rules and texts changed by a release of Kubernetes, besides bugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamRules {
    /// Slices with counters concern every node, including slices for another node. They give no device, but a
    /// faulty one makes [`InvalidPools`] of a plain `None`, and looking at all takes a time growing with the number
    /// of nodes. Until 1.36.
    ///
    /// [`InvalidPools`]: crate::error::AllocateError::InvalidPools
    pub counters_concern_every_node: bool,
    /// A request for all leaves out devices with too little capacity left; from 1.37 on the request fails.
    pub all_leaves_out_full_devices: bool,
    /// A configuration for all requests of a claim lists them; from 1.37 on the list is then empty.
    pub configuration_names_all_requests: bool,
    /// `compatibilityGroups` and `derivedAttributes`, off by default, are not known, and so ignored; from 1.37
    /// on slices with the first are left out, and a request with the second is an error.
    pub alpha_fields_are_unknown: bool,
    /// An error about too many devices names the request beyond the limit. From 1.36.5 on.
    pub limit_names_request: bool,
    /// An error of a selector names the device, with a hint for a missing key. From 1.37 on.
    pub selector_errors_name_device: bool,
}

impl UpstreamRules {
    /// For this release.
    #[must_use]
    pub fn of(version: KubernetesVersion) -> Self {
        let is_1_36 = version < KubernetesVersion::V1_37;
        UpstreamRules {
            counters_concern_every_node: is_1_36,
            all_leaves_out_full_devices: is_1_36,
            configuration_names_all_requests: is_1_36,
            alpha_fields_are_unknown: is_1_36,
            limit_names_request: version >= KubernetesVersion::V1_36_5,
            selector_errors_name_device: !is_1_36,
        }
    }
}
