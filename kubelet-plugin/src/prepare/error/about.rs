//! The devices of a claim affected by an error.

use super::PrepareError;

/// The allocated devices affected by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prepare) enum About<'a> {
    /// The device of this name. For a name never allocated, the devices of the card at its beginning, or else all.
    Device(&'a str),
    /// All devices of this request.
    Request(&'a str),
    /// All devices with names impossible for this driver.
    UnknownNames,
    /// All devices of the claim.
    All,
}

impl PrepareError {
    /// The affected devices. `None` for a passing error, or one unrelated to devices and their configuration: the claim was
    /// replaced, the API server or this instance was in the way, the node's disk fails.
    pub(in crate::prepare) fn about(&self) -> Option<About<'_>> {
        if self.may_pass() {
            return None;
        }
        match self {
            Self::Held { device, .. }
            | Self::UnknownKind(device)
            | Self::Hardware { device, .. }
            | Self::OtherCard { device, .. }
            | Self::NewCard { device, .. }
            | Self::MigMode { device, .. }
            | Self::NoMig { device, .. }
            | Self::Profile { device, .. }
            | Self::ComputeSlices { device, .. }
            | Self::ForeignInstance { device, .. }
            | Self::NoPartition { device, .. }
            | Self::CardBusy { device, .. }
            | Self::Sharing { device, .. }
            | Self::TimeSliceIntervals { device, .. }
            | Self::Mps { device, .. }
            | Self::TimeSlice { device, .. }
            | Self::PartitionBusy { device, .. }
            | Self::NotReleased { device, .. }
            | Self::ResetNeeded { device, .. }
            | Self::Capability { device, .. } => Some(About::Device(device)),
            Self::Config { request, .. } => Some(About::Request(request)),
            Self::Device(_) => Some(About::UnknownNames),
            Self::Driver(_) | Self::DriverFiles { .. } | Self::UnifiedMemory { .. } => Some(About::All),
            // The device belongs to another node, and only the other node can report on the device.
            Self::ForeignPool { .. } => None,
            Self::Reference { .. }
            | Self::Api { .. }
            | Self::Gone { .. }
            | Self::Replaced { .. }
            | Self::NotAllocated { .. }
            | Self::Busy { .. }
            | Self::PodsRun { .. }
            | Self::NoDriver { .. }
            | Self::NotAnswering(_)
            | Self::Unanswered { .. }
            | Self::Cdi(_)
            | Self::Journal(_)
            | Self::Lock(_)
            | Self::Stopping
            | Self::Overtaken
            | Self::Panic(_) => None,
        }
    }

    /// Whether the claim could be prepared with another device, here or on another node. False for an error in the claim's own
    /// configuration ([`INVALID_CONFIG`](tessera_api::device_status::INVALID_CONFIG)).
    #[must_use]
    pub fn another_device_would_help(&self) -> bool {
        self.about().is_some() && self.condition_reason() != tessera_api::device_status::INVALID_CONFIG
    }

    /// The kind of error as the reason of a condition: [`PrepareError::reason`] in camel case.
    pub(in crate::prepare) fn condition_reason(&self) -> String {
        let word = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
        self.reason().split('_').map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tessera_api::DeviceName;
    use tessera_nvml::NvmlError;

    use super::*;
    use crate::prepare::Operation;

    const NAME: &str = "gpu-3b-00";
    const LOST: NvmlError = NvmlError::MissingFunction { function: "nvmlDeviceGetUUID" };

    fn device() -> String {
        NAME.to_owned()
    }

    fn held(leaving: Option<&str>) -> PrepareError {
        let leaving = leaving.map(str::to_owned);
        PrepareError::Held { device: device(), holder: String::new(), note: "".into(), leaving }
    }

    fn api(may_pass: bool) -> PrepareError {
        PrepareError::Api { claim: String::new(), reason: String::new(), may_pass }
    }

    fn mps(may_pass: bool) -> PrepareError {
        PrepareError::Mps { device: device(), reason: String::new(), may_pass }
    }

    #[test]
    fn what_a_device_cannot_do_is_about_the_device_and_another_would_help() {
        let uuid = String::new;
        for (error, reason) in [
            (held(None), "Held"),
            (mps(false), "Mps"),
            (PrepareError::UnknownKind(device()), "UnknownDevice"),
            (PrepareError::Hardware { device: device(), source: LOST }, "Hardware"),
            (PrepareError::OtherCard { device: device(), published: uuid(), found: uuid() }, "OtherCard"),
            (PrepareError::MigMode { device: device(), uuid: uuid() }, "MigMode"),
            (PrepareError::NoMig { device: device(), uuid: uuid() }, "NoMig"),
            (PrepareError::Profile { device: device(), uuid: uuid(), offered: uuid() }, "NoProfile"),
            (
                PrepareError::ForeignInstance { device: device(), uuid: uuid(), instances: uuid() },
                "ForeignInstance",
            ),
            (PrepareError::NoPartition { device: device(), uuid: uuid(), note: "" }, "NoPartition"),
            (
                PrepareError::NotReleased { device: device(), partition: device(), uuid: uuid() },
                "NotReleased",
            ),
            (PrepareError::ResetNeeded { device: device(), uuid: uuid(), to: "on" }, "ResetNeeded"),
            (PrepareError::TimeSlice { device: device(), reason: uuid() }, "TimeSlice"),
            (PrepareError::Capability { device: device(), path: uuid(), reason: uuid() }, "Capability"),
        ] {
            assert_eq!(error.about(), Some(About::Device(NAME)), "{error}");
            assert_eq!(error.condition_reason(), reason);
            assert!(error.another_device_would_help(), "{error}");
        }
        let unknown = PrepareError::Device("gpu-zz".parse::<DeviceName>().unwrap_err());
        let driver = PrepareError::Driver(LOST);
        for (error, about) in [(unknown, About::UnknownNames), (driver, About::All)] {
            assert_eq!(error.about(), Some(about));
            assert!(error.another_device_would_help(), "{error}");
        }
    }

    #[test]
    fn no_device_helps_a_claim_with_a_wrong_configuration() {
        let config = PrepareError::Config { request: "r".into(), origin: "claim", reason: String::new() };
        assert_eq!(config.about(), Some(About::Request("r")));
        let slices = PrepareError::ComputeSlices {
            device: device(),
            profile: String::new(),
            asked: 9,
            offered: String::new(),
        };
        let intervals = PrepareError::TimeSliceIntervals {
            claim: String::new(),
            device: device(),
            uuid: String::new(),
            interval: "Long",
            driver_name: String::new(),
        };
        let sharing = PrepareError::Sharing { device: device(), reason: String::new() };
        for error in [&slices, &intervals, &sharing] {
            assert_eq!(error.about(), Some(About::Device(NAME)));
        }
        for error in [config, slices, intervals, sharing] {
            assert_eq!(error.condition_reason(), tessera_api::device_status::INVALID_CONFIG);
            assert!(!error.another_device_would_help(), "{error}");
        }
    }

    #[test]
    fn what_passes_and_what_is_no_devices_fault_is_about_none() {
        let claim = || "ns/claim".to_owned();
        let text = String::new;
        for error in [
            held(Some("uid")),
            mps(true),
            api(true),
            api(false),
            PrepareError::Reference { what: "uid", value: text() },
            PrepareError::Gone { claim: claim() },
            PrepareError::Replaced { claim: claim(), found: text() },
            PrepareError::NotAllocated { claim: claim() },
            PrepareError::ForeignPool { device: device(), pool: text(), expected: text() },
            PrepareError::Busy { what: "the claim", longest: Duration::ZERO },
            PrepareError::PodsRun { claim: claim(), pods: text() },
            PrepareError::NoDriver { reason: String::new() },
            PrepareError::CardBusy { device: device(), uuid: text(), to: "on", clients: text() },
            PrepareError::PartitionBusy { device: device(), uuid: text(), clients: text() },
            PrepareError::Unanswered { operation: Operation::Prepare, longest: Duration::ZERO },
            PrepareError::Stopping,
            PrepareError::Overtaken,
            PrepareError::Panic("".into()),
        ] {
            assert_eq!(error.about(), None, "{error}");
            assert!(!error.another_device_would_help(), "{error}");
        }
    }
}
