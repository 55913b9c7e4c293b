//! Temperatures of a card.

use nvml_wrapper_sys::bindings::{nvmlMarginTemperature_v1_t, nvmlTemperature_v1_t};

use super::call::nvml_functions;
use super::context::CardView;
use super::ffi::{Out, check_version};
use crate::failure::Failure;

/// `NVML_TEMPERATURE_GPU`, the only sensor.
const SENSOR_GPU: u32 = 0;

/// Temperature rise of a card at full load, °C: made up.
const RISE: u32 = 40;

fn temperature(view: &CardView<'_>, sensor: u32) -> Result<u32, Failure> {
    if sensor != SENSOR_GPU {
        return Err(Failure::INVALID_ARGUMENT);
    }
    let idle = view.card.board.temperature_celsius;
    let now = idle.map(|idle| idle + RISE * view.state.busy_percent() / 100);
    view.state.temperature_celsius.or(now).ok_or(Failure::NOT_SUPPORTED)
}

nvml_functions! {
    /// `nvmlDeviceGetTemperature`
    fn nvmlDeviceGetTemperature(view: CardView, sensor: u32, celsius: Out<u32>) {
        celsius.set(temperature(&view, sensor)?)
    }

    /// `nvmlDeviceGetTemperatureV`
    fn nvmlDeviceGetTemperatureV(view: CardView, reading: Out<nvmlTemperature_v1_t>) {
        let asked = reading.get()?;
        check_version::<nvmlTemperature_v1_t>(asked.version, 1)?;
        let celsius = i32::try_from(temperature(&view, asked.sensorType)?).map_err(|_| Failure::UNKNOWN)?;
        reading.set(nvmlTemperature_v1_t { temperature: celsius, ..asked })
    }

    /// `nvmlDeviceGetTemperatureThreshold`
    fn nvmlDeviceGetTemperatureThreshold(view: CardView, threshold: u32, celsius: Out<u32>) {
        let board = &view.card.board;
        let known = match threshold {
            0 => board.temperature_shutdown_celsius,
            1 => board.temperature_slowdown_celsius,
            2 => board.temperature_memory_max_celsius,
            3 => board.temperature_max_operating_celsius,
            // Acoustic and GPS thresholds: captures show none.
            4..=7 => None,
            _ => return Err(Failure::INVALID_ARGUMENT),
        };
        celsius.set(known.ok_or(Failure::NOT_SUPPORTED)?)
    }

    /// `nvmlDeviceGetMarginTemperature`: the margin shrinks as the temperature rises.
    fn nvmlDeviceGetMarginTemperature(view: CardView, margin: Out<nvmlMarginTemperature_v1_t>) {
        let asked = margin.get()?;
        check_version::<nvmlMarginTemperature_v1_t>(asked.version, 1)?;
        let board = &view.card.board;
        let idle = board.temperature_limit_margin_celsius.ok_or(Failure::NOT_SUPPORTED)?;
        let idle_temperature = i64::from(board.temperature_celsius.ok_or(Failure::NOT_SUPPORTED)?);
        let risen = i64::from(temperature(&view, SENSOR_GPU)?) - idle_temperature;
        let left = i32::try_from(i64::from(idle) - risen).map_err(|_| Failure::UNKNOWN)?;
        margin.set(nvmlMarginTemperature_v1_t { marginTemperature: left, ..asked })
    }
}
