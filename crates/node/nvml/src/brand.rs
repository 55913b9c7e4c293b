/// The product line of a card (`nvmlBrandType_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Brand(
    /// NVML's number.
    pub u32,
);

impl Brand {
    /// NVIDIA's own spelling, as in its DRA driver; `None` for "unknown" and for numbers newer than this table.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "Quadro",
            2 => "Tesla",
            3 => "NVS",
            4 => "Grid",
            5 => "GeForce",
            6 => "Titan",
            7 => "NvidiaVApps",
            8 => "NvidiaVPC",
            9 => "NvidiaVCS",
            10 => "NvidiaVWS",
            11 => "NvidiaCloudGaming",
            12 => "QuadroRTX",
            13 => "NvidiaRTX",
            14 => "Nvidia",
            15 => "GeForceRTX",
            16 => "TitanRTX",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings as sys;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        for (number, name) in [
            (sys::nvmlBrandType_enum_NVML_BRAND_QUADRO, "Quadro"),
            (sys::nvmlBrandType_enum_NVML_BRAND_TESLA, "Tesla"),
            (sys::nvmlBrandType_enum_NVML_BRAND_GEFORCE, "GeForce"),
            (sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_CLOUD_GAMING, "NvidiaCloudGaming"),
            (sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_RTX, "NvidiaRTX"),
            (sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA, "Nvidia"),
            (sys::nvmlBrandType_enum_NVML_BRAND_TITAN_RTX, "TitanRTX"),
        ] {
            assert_eq!(Brand(number).name(), Some(name));
        }
    }

    #[test]
    fn the_unknown_is_not_guessed() {
        for number in [0, 17, 18, u32::MAX] {
            assert_eq!(Brand(number).name(), None);
        }
    }
}
