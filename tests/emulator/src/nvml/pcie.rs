//! The PCIe link of a card.

use super::call::nvml_functions;
use super::context::CardView;
use super::ffi::Out;
use crate::failure::Failure;

/// `NVML_BUS_TYPE_PCIE`
const BUS_TYPE_PCIE: u32 = 2;

fn generation(view: &CardView<'_>) -> Result<u32, Failure> {
    view.card.board.pcie_generation_max.ok_or(Failure::NOT_SUPPORTED)
}

fn width(view: &CardView<'_>) -> Result<u32, Failure> {
    view.card.board.pcie_width_max.ok_or(Failure::NOT_SUPPORTED)
}

nvml_functions! {
    /// `nvmlDeviceGetMaxPcieLinkGeneration`
    fn nvmlDeviceGetMaxPcieLinkGeneration(view: CardView, value: Out<u32>) {
        value.set(generation(&view)?)
    }

    /// `nvmlDeviceGetGpuMaxPcieLinkGeneration`
    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(view: CardView, value: Out<u32>) {
        value.set(generation(&view)?)
    }

    /// `nvmlDeviceGetCurrPcieLinkGeneration`: emulated links always run at the board's full speed.
    fn nvmlDeviceGetCurrPcieLinkGeneration(view: CardView, value: Out<u32>) {
        value.set(generation(&view)?)
    }

    /// `nvmlDeviceGetMaxPcieLinkWidth`
    fn nvmlDeviceGetMaxPcieLinkWidth(view: CardView, value: Out<u32>) {
        value.set(width(&view)?)
    }

    /// `nvmlDeviceGetCurrPcieLinkWidth`: emulated links always run at the board's full width.
    fn nvmlDeviceGetCurrPcieLinkWidth(view: CardView, value: Out<u32>) {
        value.set(width(&view)?)
    }

    /// `nvmlDeviceGetPcieThroughput`: made up, for each percent of load of the card.
    fn nvmlDeviceGetPcieThroughput(view: CardView, counter: u32, value: Out<u32>) {
        let (part, kilobytes) = match counter {
            0 => ("NVML_PCIE_UTIL_TX_BYTES", 5_000),
            1 => ("NVML_PCIE_UTIL_RX_BYTES", 10_000),
            _ => return Err(Failure::INVALID_ARGUMENT),
        };
        view.part(part)?;
        value.set(view.state.busy_percent() * kilobytes)
    }

    /// `nvmlDeviceGetPcieReplayCounter`
    fn nvmlDeviceGetPcieReplayCounter(_view: CardView, value: Out<u32>) {
        value.set(0)
    }

    /// `nvmlDeviceGetPcieLinkMaxSpeed`: `NVML_PCIE_LINK_MAX_SPEED_*` counts as generations do.
    fn nvmlDeviceGetPcieLinkMaxSpeed(view: CardView, value: Out<u32>) {
        value.set(generation(&view)?)
    }

    /// `nvmlDeviceGetPcieSpeed`: MB/s of one lane, by generation (PCI Express specification).
    fn nvmlDeviceGetPcieSpeed(view: CardView, value: Out<u32>) {
        value.set(match generation(&view)? {
            1 => 2500,
            2 => 5000,
            3 => 8000,
            4 => 16000,
            5 => 32000,
            6 => 64000,
            _ => return Err(Failure::NOT_SUPPORTED),
        })
    }

    /// `nvmlDeviceGetBusType`
    fn nvmlDeviceGetBusType(_view: CardView, kind: Out<u32>) {
        kind.set(BUS_TYPE_PCIE)
    }
}
