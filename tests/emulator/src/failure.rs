//! NVML's error codes, returned by functions of the library.

/// `nvmlReturn_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure(pub u32);

macro_rules! failures {
    ($($name:ident = $code:literal, $text:literal;)+) => {
        impl Failure {
            $(#[doc = concat!("`NVML_ERROR_", stringify!($name), "`")] pub const $name: Failure = Failure($code);)+

            /// Name of the code as in `nvml.h`, without `NVML_ERROR_`.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)+
                    _ => None,
                }
            }

            /// The code called `name`, with or without `NVML_ERROR_`.
            pub fn from_name(name: &str) -> Option<Failure> {
                match name.strip_prefix("NVML_ERROR_").unwrap_or(name) {
                    $(stringify!($name) => Some(Failure($code)),)+
                    _ => None,
                }
            }

            /// Names of all codes.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];
        }

        /// `nvmlErrorString`.
        pub(crate) fn error_string(code: u32) -> &'static std::ffi::CStr {
            match code {
                0 => c"Success",
                $($code => $text,)+
                _ => c"Unknown Error",
            }
        }
    };
}

// Codes of nvml.h; texts as the library of driver 580 prints them.
failures! {
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NO_PERMISSION = 4, c"Insufficient Permissions";
    ALREADY_INITIALIZED = 5, c"Already Initialized";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    INSUFFICIENT_POWER = 8, c"Insufficient External Power";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    IRQ_ISSUE = 11, c"Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found";
    FUNCTION_NOT_FOUND = 13, c"Function Not Found";
    CORRUPTED_INFOROM = 14, c"Corrupted infoROM";
    GPU_IS_LOST = 15, c"GPU is lost";
    RESET_REQUIRED = 16, c"GPU requires reset";
    OPERATING_SYSTEM = 17, c"GPU access blocked by the operating system";
    LIB_RM_VERSION_MISMATCH = 18, c"Driver/library version mismatch";
    IN_USE = 19, c"In use by another client";
    MEMORY = 20, c"Insufficient Memory";
    NO_DATA = 21, c"No data";
    VGPU_ECC_NOT_SUPPORTED = 22, c"The requested vgpu operation is not available on target device, becasue ECC is enabled";
    INSUFFICIENT_RESOURCES = 23, c"Insufficient Resources";
    FREQ_NOT_SUPPORTED = 24, c"The requested frequency is not supported";
    ARGUMENT_VERSION_MISMATCH = 25, c"Argument version mismatch";
    DEPRECATED = 26, c"Requested functionality has been deprecated";
    NOT_READY = 27, c"System is not in ready state";
    GPU_NOT_FOUND = 28, c"No GPUs were found";
    INVALID_STATE = 29, c"Resource not in correct state to perform requested operation";
    RESET_TYPE_NOT_SUPPORTED = 30, c"Reset type not supported";
    UNKNOWN = 999, c"Unknown Error";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        assert_eq!(Failure::from_name("GPU_IS_LOST"), Some(Failure::GPU_IS_LOST));
        assert_eq!(Failure::from_name("NVML_ERROR_UNKNOWN"), Some(Failure::UNKNOWN));
        assert_eq!(Failure::from_name("nonsense"), None);
        for name in Failure::NAMES {
            assert_eq!(Failure::from_name(name).and_then(Failure::name), Some(*name));
        }
    }
}
