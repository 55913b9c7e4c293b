use nvml_wrapper_sys::bindings as sys;

/// An error of a driver call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvmlError {
    /// The library answered with an error code.
    #[error("{function}: {text} (NVML error {code})")]
    Call {
        /// The NVML function.
        function: &'static str,
        /// `nvmlReturn_t`.
        code: u32,
        /// `nvmlErrorString` of the code.
        text: String,
    },
    /// The library lacks this function: the driver is older than the function, or an emulation leaves the function out.
    #[error("{function}: this driver library has no such function")]
    MissingFunction {
        /// The NVML function.
        function: &'static str,
    },
    /// The library reported success with an impossible value.
    #[error("{function}: the driver answered {value}, which makes no sense")]
    Nonsense {
        /// The NVML function.
        function: &'static str,
        /// The answer, shortened.
        value: String,
    },
    /// The operating system refused a thread for waiting for events.
    #[error(
        "no thread to wait for the driver's events: {reason}; raise this process's limit of processes (pids)"
    )]
    NoThread {
        /// The operating system's message.
        reason: String,
    },
}

/// The answer to a query; `None` if the card or the driver reports not having the thing.
pub type Reading<T> = Result<Option<T>, NvmlError>;

impl NvmlError {
    /// The failed NVML function.
    #[must_use]
    pub fn function(&self) -> Option<&'static str> {
        match self {
            NvmlError::Call { function, .. }
            | NvmlError::MissingFunction { function }
            | NvmlError::Nonsense { function, .. } => Some(function),
            NvmlError::NoThread { .. } => None,
        }
    }

    /// The card or the driver does not have the requested thing; asking again does not help.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        match self {
            NvmlError::Call { code, .. } => matches!(
                *code,
                sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
                    | sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND
                    | sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH
                    | sys::nvmlReturn_enum_NVML_ERROR_DEPRECATED
            ),
            NvmlError::MissingFunction { .. } => true,
            NvmlError::Nonsense { .. } | NvmlError::NoThread { .. } => false,
        }
    }

    /// The card is gone or unusable until reset: fallen off the bus, or no card answers at its address.
    #[must_use]
    pub fn is_card_gone(&self) -> bool {
        match self {
            NvmlError::Call { code, function, .. } => match *code {
                sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST
                | sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED
                | sys::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND => true,
                // From other functions, this code means the card lacks the requested thing.
                sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND => function.starts_with("nvmlDeviceGetHandleBy"),
                _ => false,
            },
            _ => false,
        }
    }

    /// The object is in use, by a client or by an instance within it (`IN_USE`).
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.has_code(sys::nvmlReturn_enum_NVML_ERROR_IN_USE)
    }

    /// No room: the place is taken, or the profile's limit is reached (`INSUFFICIENT_RESOURCES`).
    #[must_use]
    pub fn is_insufficient_resources(&self) -> bool {
        self.has_code(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES)
    }

    /// The named object does not exist, or no longer (`NOT_FOUND`). For cards see [`NvmlError::is_card_gone`].
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.has_code(sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND)
    }

    /// The process lacks root's rights, or the container's sandbox hides needed files (`NO_PERMISSION`).
    #[must_use]
    pub fn is_no_permission(&self) -> bool {
        self.has_code(sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION)
    }

    /// The card must be reset first (`RESET_REQUIRED`).
    #[must_use]
    pub fn is_reset_required(&self) -> bool {
        self.has_code(sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED)
    }

    /// The driver gave up after its own timeout (`TIMEOUT`); the request may still take effect.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.has_code(sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT)
    }

    fn has_code(&self, wanted: u32) -> bool {
        matches!(self, NvmlError::Call { code, .. } if *code == wanted)
    }

    /// Turns the answer "no such thing" into `None`.
    pub(crate) fn reading<T>(answer: Result<T, NvmlError>) -> Reading<T> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_unsupported() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(code: u32) -> NvmlError {
        NvmlError::Call { function: "nvmlDeviceGetName", code, text: "text".into() }
    }

    #[test]
    fn what_a_card_does_not_have_is_no_failure() {
        assert_eq!(NvmlError::reading::<u32>(Err(call(3))), Ok(None));
        assert_eq!(
            NvmlError::reading::<u32>(Err(NvmlError::MissingFunction { function: "nvmlDeviceGetName" })),
            Ok(None)
        );
        assert_eq!(NvmlError::reading::<u32>(Err(call(999))), Err(call(999)));
        assert_eq!(NvmlError::reading(Ok(7)), Ok(Some(7)));
    }

    #[test]
    fn refusals_are_told_apart() {
        let kinds: [fn(&NvmlError) -> bool; 6] = [
            NvmlError::is_in_use,
            NvmlError::is_insufficient_resources,
            NvmlError::is_not_found,
            NvmlError::is_no_permission,
            NvmlError::is_reset_required,
            NvmlError::is_timeout,
        ];
        for (position, code) in [19, 23, 6, 4, 16, 10].into_iter().enumerate() {
            let matching: Vec<usize> = (0..kinds.len()).filter(|kind| kinds[*kind](&call(code))).collect();
            assert_eq!(matching, [position], "code {code}");
        }
        let missing = NvmlError::MissingFunction { function: "nvmlDeviceSetMigMode" };
        assert!(kinds.iter().all(|kind| !kind(&missing) && !kind(&call(999))));
    }

    #[test]
    fn a_lost_card_is_told_from_a_failed_query() {
        assert!(call(15).is_card_gone());
        assert!(!call(999).is_card_gone());
        assert!(!call(15).is_unsupported());
        assert!(!call(6).is_card_gone());
        let function = "nvmlDeviceGetHandleByPciBusId_v2";
        assert!(NvmlError::Call { function, code: 6, text: "Not Found".into() }.is_card_gone());
    }
}
