//! Every other function of `nvml.h`: exported as in the real library, so clients can look them up, and answering
//! "not supported".
//!
//! `data/nvml-functions.txt` lists all functions of the header; a test compares the built library with the list. For a newer
//! header, add its functions to the file, and their names to the list here for their first argument.

use super::call::{device, system};
use super::handle::Handle;
use crate::failure::Failure;

/// Functions whose first argument is a card: the handle is checked first, then a lost card, as for any other call.
macro_rules! of_a_card {
    ($($name:ident),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: not supported.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(handle: Handle) -> u32 {
                device(stringify!($name), handle, |_| Err(Failure::NOT_SUPPORTED))
            }
        )*
    };
}

/// Functions of the machine.
macro_rules! of_the_machine {
    ($($name:ident),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: not supported.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> u32 {
                system(stringify!($name), |_| Err(Failure::NOT_SUPPORTED))
            }
        )*
    };
}

/// Functions whose first argument is missing on every emulated machine (units, virtual GPUs): every value is
/// invalid.
macro_rules! of_nothing {
    ($($name:ident),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: its first argument can name nothing here.")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> u32 {
                system(stringify!($name), |_| Err(Failure::INVALID_ARGUMENT))
            }
        )*
    };
}

// Callers pass more arguments than declared here. This is safe in the C calling conventions of Linux: the caller cleans
// up the arguments.
of_a_card! {
    nvmlDeviceClearAccountingPids, nvmlDeviceClearCpuAffinity, nvmlDeviceClearEccErrorCounts,
    nvmlDeviceClearFieldValues,     nvmlDeviceFreezeNvLinkUtilizationCounter, nvmlDeviceGetAPIRestriction, nvmlDeviceGetAccountingStats,
    nvmlDeviceGetAccountingStats_v2, nvmlDeviceGetActiveVgpus, nvmlDeviceGetAdaptiveClockInfoStatus,
    nvmlDeviceGetAttributes, nvmlDeviceGetAutoBoostedClocksEnabled,
    nvmlDeviceGetBBXTimeData_v1, nvmlDeviceGetBridgeChipInfo, nvmlDeviceGetCapabilities,
    nvmlDeviceGetClkMonStatus, nvmlDeviceGetClockOffsets,     nvmlDeviceGetConfComputeGpuAttestationReport, nvmlDeviceGetConfComputeGpuCertificate,
    nvmlDeviceGetConfComputeMemSizeInfo, nvmlDeviceGetConfComputeProtectedMemoryUsage,
    nvmlDeviceGetCoolerInfo, nvmlDeviceGetCreatableVgpus, nvmlDeviceGetCurrentClockFreqs,
    nvmlDeviceGetDetailedEccErrors, nvmlDeviceGetDramEncryptionMode, nvmlDeviceGetDriverModel,
    nvmlDeviceGetDriverModel_v2, nvmlDeviceGetDynamicPstatesInfo, nvmlDeviceGetEncoderCapacity,
    nvmlDeviceGetFanControlPolicy_v2, nvmlDeviceGetFanSpeed, nvmlDeviceGetFanSpeedRPM,
    nvmlDeviceGetFanSpeed_v2, nvmlDeviceGetGpcClkMinMaxVfOffset, nvmlDeviceGetGpcClkVfOffset,
                nvmlDeviceGetGpuOperationMode,
    nvmlDeviceGetGridLicensableFeatures, nvmlDeviceGetGridLicensableFeatures_v2,
    nvmlDeviceGetGridLicensableFeatures_v3, nvmlDeviceGetGridLicensableFeatures_v4,
    nvmlDeviceGetHostVgpuMode, nvmlDeviceGetHostname_v1, nvmlDeviceGetInforomConfigurationChecksum,
    nvmlDeviceGetIrqNum, nvmlDeviceGetLastBBXFlushTime, nvmlDeviceGetMemClkMinMaxVfOffset,
    nvmlDeviceGetMemClkVfOffset, nvmlDeviceGetMinMaxClockOfPState, nvmlDeviceGetMinMaxFanSpeed,
    nvmlDeviceGetNvLinkInfo, nvmlDeviceGetNvLinkUtilizationControl, nvmlDeviceGetNvLinkUtilizationCounter,
    nvmlDeviceGetNvlinkBwMode, nvmlDeviceGetNvlinkSupportedBwModes, nvmlDeviceGetPdi,
    nvmlDeviceGetPerformanceModes, nvmlDeviceGetPgpuMetadataString, nvmlDeviceGetPlatformInfo,
    nvmlDeviceGetPowerMizerMode_v1, nvmlDeviceGetPowerSource, nvmlDeviceGetProcessesUtilizationInfo,
    nvmlDeviceGetRemappedRows_v2, nvmlDeviceGetRepairStatus, nvmlDeviceGetRunningProcessDetailList,
    nvmlDeviceGetSamples, nvmlDeviceGetSramEccErrorStatus, nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts,
    nvmlDeviceGetSupportedGraphicsClocks, nvmlDeviceGetSupportedMemoryClocks,
    nvmlDeviceGetSupportedPerformanceStates, nvmlDeviceGetSupportedVgpus, nvmlDeviceGetTargetFanSpeed,
    nvmlDeviceGetThermalSettings, nvmlDeviceGetUnrepairableMemoryFlag_v1, nvmlDeviceGetVgpuCapabilities,
    nvmlDeviceGetVgpuHeterogeneousMode, nvmlDeviceGetVgpuInstancesUtilizationInfo,
    nvmlDeviceGetVgpuMetadata, nvmlDeviceGetVgpuProcessUtilization,
    nvmlDeviceGetVgpuProcessesUtilizationInfo, nvmlDeviceGetVgpuSchedulerCapabilities,
    nvmlDeviceGetVgpuSchedulerLog, nvmlDeviceGetVgpuSchedulerLog_v2, nvmlDeviceGetVgpuSchedulerState,
    nvmlDeviceGetVgpuSchedulerState_v2, nvmlDeviceGetVgpuTypeCreatablePlacements,
    nvmlDeviceGetVgpuTypeSupportedPlacements, nvmlDeviceGetVgpuUtilization, nvmlDeviceGetViolationStatus,
    nvmlDevicePowerSmoothingActivatePresetProfile, nvmlDevicePowerSmoothingSetState,
    nvmlDevicePowerSmoothingUpdatePresetProfileParam, nvmlDeviceReadPRMCounters_v1,
    nvmlDeviceReadWritePRM_v1, nvmlDeviceResetApplicationsClocks, nvmlDeviceResetGpuLockedClocks,
    nvmlDeviceResetMemoryLockedClocks, nvmlDeviceResetNvLinkUtilizationCounter, nvmlDeviceSetAPIRestriction,
    nvmlDeviceSetAccountingMode, nvmlDeviceSetApplicationsClocks, nvmlDeviceSetAutoBoostedClocksEnabled,
    nvmlDeviceSetClockOffsets, nvmlDeviceSetConfComputeUnprotectedMemSize, nvmlDeviceSetCpuAffinity,
    nvmlDeviceSetDefaultAutoBoostedClocksEnabled, nvmlDeviceSetDefaultFanSpeed_v2,
    nvmlDeviceSetDramEncryptionMode, nvmlDeviceSetDriverModel, nvmlDeviceSetEccMode,
    nvmlDeviceSetFanControlPolicy, nvmlDeviceSetFanSpeed_v2, nvmlDeviceSetGpcClkVfOffset,
    nvmlDeviceSetGpuLockedClocks, nvmlDeviceSetGpuOperationMode, nvmlDeviceSetHostname_v1,
    nvmlDeviceSetMemClkVfOffset, nvmlDeviceSetMemoryLockedClocks,     nvmlDeviceSetNvLinkDeviceLowPowerThreshold, nvmlDeviceSetNvLinkUtilizationControl,
    nvmlDeviceSetNvlinkBwMode, nvmlDeviceSetPowerManagementLimit_v2, nvmlDeviceSetPowerMizerMode_v1,
    nvmlDeviceSetRusdSettings_v1, nvmlDeviceSetTemperatureThreshold, nvmlDeviceSetVgpuCapabilities,
    nvmlDeviceSetVgpuHeterogeneousMode, nvmlDeviceSetVgpuSchedulerState, nvmlDeviceSetVgpuSchedulerState_v2,
    nvmlDeviceSetVirtualizationMode, nvmlDeviceVgpuForceGspUnload,
    nvmlDeviceWorkloadPowerProfileClearRequestedProfiles, nvmlDeviceWorkloadPowerProfileGetCurrentProfiles,
    nvmlDeviceWorkloadPowerProfileGetProfilesInfo, nvmlDeviceWorkloadPowerProfileSetRequestedProfiles,
    nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1,
    nvmlGpmQueryIfStreamingEnabled, nvmlGpmSetStreamingEnabled,
    nvmlVgpuTypeGetMaxInstances,
}

of_the_machine! {
    nvmlDeviceDiscoverGpus, nvmlDeviceModifyDrainState, nvmlDeviceQueryDrainState, nvmlDeviceRemoveGpu,
    nvmlDeviceRemoveGpu_v2, nvmlSystemEventSetCreate, nvmlSystemEventSetFree,
    nvmlSystemEventSetWait, nvmlSystemGetCPER_v1, nvmlSystemGetConfComputeCapabilities,
    nvmlSystemGetConfComputeKeyRotationThresholdInfo, nvmlSystemGetConfComputeSettings,
    nvmlSystemGetNvlinkBwMode, nvmlSystemRegisterEvents, nvmlSystemSetConfComputeKeyRotationThresholdInfo, nvmlSystemSetNvlinkBwMode,
}

of_nothing! {
        nvmlGetVgpuCompatibility, nvmlGetVgpuDriverCapabilities,
    nvmlGetVgpuVersion,         nvmlGpuInstanceGetActiveVgpus,             nvmlGpuInstanceGetCreatableVgpus,     nvmlGpuInstanceGetVgpuHeterogeneousMode, nvmlGpuInstanceGetVgpuSchedulerLog,
    nvmlGpuInstanceGetVgpuSchedulerLog_v2, nvmlGpuInstanceGetVgpuSchedulerState,
    nvmlGpuInstanceGetVgpuSchedulerState_v2, nvmlGpuInstanceGetVgpuTypeCreatablePlacements,
    nvmlGpuInstanceSetVgpuHeterogeneousMode, nvmlGpuInstanceSetVgpuSchedulerState,
    nvmlGpuInstanceSetVgpuSchedulerState_v2, nvmlSetVgpuVersion, nvmlUnitGetDevices,
    nvmlUnitGetFanSpeedInfo, nvmlUnitGetHandleByIndex, nvmlUnitGetLedState, nvmlUnitGetPsuInfo,
    nvmlUnitGetTemperature, nvmlUnitGetUnitInfo, nvmlUnitSetLedState, nvmlVgpuInstanceClearAccountingPids,
    nvmlVgpuInstanceGetAccountingMode, nvmlVgpuInstanceGetAccountingPids,
    nvmlVgpuInstanceGetAccountingStats, nvmlVgpuInstanceGetEccMode, nvmlVgpuInstanceGetEncoderCapacity,
    nvmlVgpuInstanceGetEncoderSessions, nvmlVgpuInstanceGetEncoderStats, nvmlVgpuInstanceGetFBCSessions,
    nvmlVgpuInstanceGetFBCStats, nvmlVgpuInstanceGetFbUsage, nvmlVgpuInstanceGetFrameRateLimit,
    nvmlVgpuInstanceGetGpuInstanceId, nvmlVgpuInstanceGetGpuPciId, nvmlVgpuInstanceGetLicenseInfo,
    nvmlVgpuInstanceGetLicenseInfo_v2, nvmlVgpuInstanceGetLicenseStatus, nvmlVgpuInstanceGetMdevUUID,
    nvmlVgpuInstanceGetMetadata, nvmlVgpuInstanceGetPlacementId, nvmlVgpuInstanceGetRuntimeStateSize,
    nvmlVgpuInstanceGetType, nvmlVgpuInstanceGetUUID, nvmlVgpuInstanceGetVmDriverVersion,
    nvmlVgpuInstanceGetVmID, nvmlVgpuInstanceSetEncoderCapacity, nvmlVgpuTypeGetBAR1Info,
    nvmlVgpuTypeGetCapabilities, nvmlVgpuTypeGetClass, nvmlVgpuTypeGetDeviceID,
    nvmlVgpuTypeGetFbReservation, nvmlVgpuTypeGetFrameRateLimit, nvmlVgpuTypeGetFramebufferSize,
    nvmlVgpuTypeGetGpuInstanceProfileId, nvmlVgpuTypeGetGspHeapSize, nvmlVgpuTypeGetLicense,
    nvmlVgpuTypeGetMaxInstancesPerGpuInstance, nvmlVgpuTypeGetMaxInstancesPerVm, nvmlVgpuTypeGetName,
    nvmlVgpuTypeGetNumDisplayHeads, nvmlVgpuTypeGetResolution,
}
