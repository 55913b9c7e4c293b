//! The library's functions, each with its types; all of this crate's `unsafe` is here and below.
//!
//! Soundness rests on two things: each method below pairs an NVML function with the helper of its shape (one value
//! out, a text out, an array out), as `nvml.h` declares the function; and NVML checks its handles, so a stale
//! handle gives an error.

mod device;
mod events;
mod gpm;
mod health;
mod links;
mod mig;
mod system;
mod telemetry;

use std::ffi::{CStr, c_char, c_uint};
use std::path::Path;

use nvml_wrapper_sys::bindings::{self as sys, NvmlLib, nvmlDevice_t, nvmlReturn_t};

pub(super) use events::{EventSetHandle, RawEvent};
pub(super) use gpm::GpmHandle;
pub(super) use mig::{ComputeInstanceHandle, GpuInstanceHandle};

use super::text;
use crate::error::NvmlError;

/// glibc's and musl's number for "never unload", without a name in `libloading`.
const RTLD_NODELETE: i32 = 0x1000;

/// The loaded library. A missing function is an error only when called.
pub(super) struct Functions {
    raw: NvmlLib,
}

/// NVML's handle of a card.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(nvmlDevice_t);

// SAFETY: NVML is thread-safe, and a handle is a name for a card that any thread of the process may use.
unsafe impl Send for Handle {}
// SAFETY: as above; the pointer is never followed here.
unsafe impl Sync for Handle {}

/// One function of the library, or the error of its lookup, with its name for messages.
struct Function<'library, F> {
    name: &'static str,
    symbol: &'library Result<F, libloading::Error>,
    functions: &'library Functions,
}

/// The [`Function`] of a name.
macro_rules! function {
    ($functions:expr, $name:ident) => {
        $crate::library::functions::Function {
            name: stringify!($name),
            symbol: &$functions.raw.$name,
            functions: $functions,
        }
    };
}
use function;

type ReadValue<T> = unsafe extern "C" fn(nvmlDevice_t, *mut T) -> nvmlReturn_t;
type ReadText = unsafe extern "C" fn(nvmlDevice_t, *mut c_char, c_uint) -> nvmlReturn_t;

impl Functions {
    /// Loads the library, without starting it.
    pub(super) fn load(path: &Path) -> Result<Self, libloading::Error> {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: loading runs the library's initialisers; a file called libnvidia-ml in the driver's directories is the
        // driver's, which the whole node trusts. It is never unloaded, so no pointer into it can dangle.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) }?;
        // SAFETY: the types given to the symbols are those of nvml.h, from which the bindings were made.
        let raw = unsafe { NvmlLib::from_library(library) }?;
        Ok(Functions { raw })
    }

    fn check(&self, function: &'static str, code: nvmlReturn_t) -> Result<(), NvmlError> {
        if code == sys::nvmlReturn_enum_NVML_SUCCESS {
            return Ok(());
        }
        Err(NvmlError::Call { function, code, text: self.error_text(code) })
    }

    fn error_text(&self, code: nvmlReturn_t) -> String {
        let Ok(error_string) = &self.raw.nvmlErrorString else { return "error".to_owned() };
        // SAFETY: takes any number, before and after nvmlInit too, and answers with a static text or null.
        let text = unsafe { error_string(code) };
        if text.is_null() {
            return "error".to_owned();
        }
        // SAFETY: not null, hence a terminated static text of the library, which is never unloaded.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

impl<F: Copy> Function<'_, F> {
    fn get(&self) -> Result<F, NvmlError> {
        self.symbol.as_ref().copied().map_err(|_| NvmlError::MissingFunction { function: self.name })
    }

    fn check(&self, code: nvmlReturn_t) -> Result<(), NvmlError> {
        self.functions.check(self.name, code)
    }

    fn nonsense(&self, value: impl ToString) -> NvmlError {
        NvmlError::Nonsense { function: self.name, value: value.to_string() }
    }
}

impl<T> Function<'_, ReadValue<T>> {
    /// Calls a getter of one value of a card. `value` is the initial value: with the version, for versioned
    /// structures.
    fn read(&self, card: Handle, mut value: T) -> Result<T, NvmlError> {
        let function = self.get()?;
        // SAFETY: a getter of one value writes at most one T, and `value` is one; see the module's comment.
        let code = unsafe { function(card.0, &raw mut value) };
        self.check(code)?;
        Ok(value)
    }
}

impl Function<'_, ReadText> {
    /// Calls a getter of a text of a card.
    fn read_text(&self, card: Handle) -> Result<String, NvmlError> {
        let function = self.get()?;
        self.text(|buffer, length| {
            // SAFETY: the function writes at most `length` bytes to a buffer of that many.
            unsafe { function(card.0, buffer, length) }
        })
    }
}

impl<F: Copy> Function<'_, F> {
    fn text(&self, fill: impl FnOnce(*mut c_char, c_uint) -> nvmlReturn_t) -> Result<String, NvmlError> {
        // The longest length in nvml.h is 96 (NVML_DEVICE_UUID_V2_BUFFER_SIZE).
        const LENGTH: usize = 128;
        let mut buffer = [0u8; LENGTH];
        self.check(fill(buffer.as_mut_ptr().cast(), LENGTH as c_uint))?;
        text::from_buffer(&buffer).map_err(|shown| self.nonsense(shown))
    }
}
