//! The NVML library, loaded as any client does.

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;

/// The library's handle of a card.
pub(super) type Device = *mut c_void;

/// Why nothing can be printed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SmiError {
    /// The library cannot be loaded.
    #[error(
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly installed and present in your system.\n{0}"
    )]
    NoLibrary(libloading::Error),
    /// The library reports an error.
    #[error("{what}: {text}")]
    Nvml {
        /// The query.
        what: String,
        /// `nvmlReturn_t`.
        code: u32,
        /// The library's text for the error.
        text: String,
    },
    /// The requested object does not exist.
    #[error("{text}")]
    Plain {
        /// The real tool's text.
        text: String,
        /// `nvmlReturn_t`.
        code: u32,
    },
    /// A field of `--query-gpu` is unknown.
    #[error("Field \"{0}\" is not a valid field to query.")]
    UnknownField(String),
    /// The format of `--query-gpu` is unknown.
    #[error("\"{0}\" is not a valid format: csv, and noheader, nounits")]
    UnknownFormat(String),
}

impl SmiError {
    /// Exit code of the real tool.
    pub fn exit_code(&self) -> u8 {
        match self {
            SmiError::NoLibrary(_) => 12,
            SmiError::Nvml { code, .. } | SmiError::Plain { code, .. } => u8::try_from(*code).unwrap_or(255),
            SmiError::UnknownField(_) | SmiError::UnknownFormat(_) => 2,
        }
    }
}

/// The library, initialised.
pub(super) struct Library {
    library: libloading::Library,
}

impl Library {
    /// Loads and initialises the library: from the installation with this program, else from the loader's search path.
    pub fn open() -> Result<Self, SmiError> {
        const NAME: &str = "libnvidia-ml.so.1";
        let beside = std::env::current_exe()
            .ok()
            .and_then(|program| Some(program.parent()?.parent()?.join("lib").join(NAME)));
        let path = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(NAME));
        // SAFETY: loading a driver library runs its initialisers, as in every NVML client.
        let library = unsafe { libloading::Library::new(path) }.map_err(SmiError::NoLibrary)?;
        let library = Library { library };
        library.check("Failed to initialize NVML", library.call0("nvmlInit_v2"))?;
        Ok(library)
    }

    /// Text of an error code.
    pub fn error_text(&self, code: u32) -> String {
        // SAFETY: the signature of nvmlErrorString in nvml.h; the returned string is never freed.
        let text = unsafe {
            match self.library.get::<unsafe extern "C" fn(u32) -> *const c_char>(b"nvmlErrorString") {
                Ok(function) => CStr::from_ptr(function(code)),
                Err(_) => c"Unknown Error",
            }
        };
        text.to_string_lossy().into_owned()
    }

    fn check(&self, what: &str, outcome: Result<(), u32>) -> Result<(), SmiError> {
        outcome.map_err(|code| SmiError::Nvml { what: what.to_owned(), code, text: self.error_text(code) })
    }

    /// Turns a code into an error with the query's name.
    pub fn named<T>(&self, what: &str, outcome: Result<T, u32>) -> Result<T, SmiError> {
        outcome.map_err(|code| SmiError::Nvml { what: what.to_owned(), code, text: self.error_text(code) })
    }

    /// Calls a function without arguments.
    pub fn call0(&self, name: &str) -> Result<(), u32> {
        // SAFETY: used for nvml.h functions taking nothing and returning nvmlReturn_t.
        unsafe {
            let function =
                self.library.get::<unsafe extern "C" fn() -> u32>(name.as_bytes()).map_err(|_| MISSING)?;
            result(function())
        }
    }

    /// Calls a function filling one value.
    pub fn value0<T: Default>(&self, name: &str) -> Result<T, u32> {
        let mut value = T::default();
        // SAFETY: used for nvml.h functions taking a pointer to T and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(*mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(&raw mut value))?;
        }
        Ok(value)
    }

    /// Calls a function filling one value of a card.
    pub fn value<T: Default>(&self, name: &str, device: Device) -> Result<T, u32> {
        let mut value = T::default();
        self.fill(name, device, &mut value)?;
        Ok(value)
    }

    /// Calls a function setting one number of a card.
    pub fn set(&self, name: &str, device: Device, value: u32) -> Result<(), u32> {
        // SAFETY: used for nvml.h functions taking a card and a number and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, u32) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, value))
        }
    }

    /// Calls a function filling one value of a card, with a version in the value.
    pub fn fill<T>(&self, name: &str, device: Device, value: &mut T) -> Result<(), u32> {
        // SAFETY: used for nvml.h functions taking a card and a pointer to T and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, *mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, std::ptr::from_mut(value)))
        }
    }

    /// Calls a function filling one value of a card, chosen by a number.
    pub fn value_of<T: Default>(&self, name: &str, device: Device, which: u32) -> Result<T, u32> {
        let mut value = T::default();
        // SAFETY: used for nvml.h functions taking a card, a number and a pointer to T and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, u32, *mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, which, &raw mut value))?;
        }
        Ok(value)
    }

    /// Calls a function filling one value of a card, chosen by a number; the value may have a version in it.
    pub fn fill_of<T>(&self, name: &str, of: Device, which: u32, value: &mut T) -> Result<(), u32> {
        // SAFETY: used for nvml.h functions taking a handle, a number and a pointer to T and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, u32, *mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(of, which, std::ptr::from_mut(value)))
        }
    }

    /// Calls a function of a handle only.
    pub fn of(&self, name: &str, of: Device) -> Result<(), u32> {
        // SAFETY: used for nvml.h functions taking a handle and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(of))
        }
    }

    /// Calls `nvmlGpuInstanceGetComputeInstanceProfileInfoV` with the only engine profile there is.
    pub fn compute_profile<T>(&self, of: Device, which: u32, value: &mut T) -> Result<(), u32> {
        // SAFETY: the signature in nvml.h; the struct includes its version.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, u32, u32, *mut T) -> u32>(
                    b"nvmlGpuInstanceGetComputeInstanceProfileInfoV",
                )
                .map_err(|_| MISSING)?;
            result(function(of, which, 0, std::ptr::from_mut(value)))
        }
    }

    /// Calls a function making an instance of a profile.
    pub fn make(&self, name: &str, of: Device, profile: u32) -> Result<Device, u32> {
        let mut made: Device = std::ptr::null_mut();
        self.fill_of(name, of, profile, &mut made)?;
        Ok(made)
    }

    /// Calls a function making an instance of a profile at a placement.
    pub fn make_at(&self, name: &str, of: Device, profile: u32, placement: [u32; 2]) -> Result<Device, u32> {
        let mut made: Device = std::ptr::null_mut();
        // SAFETY: used for nvml.h functions taking a handle, a profile, a placement of two numbers, and a place
        // for a handle, and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, u32, *const [u32; 2], *mut Device) -> u32>(
                    name.as_bytes(),
                )
                .map_err(|_| MISSING)?;
            result(function(of, profile, &raw const placement, &raw mut made))?;
        }
        Ok(made)
    }

    /// Calls a function listing things of a profile; the list has room for more than there ever are.
    pub fn instances<T: Clone>(&self, name: &str, of: Device, profile: u32, empty: T) -> Result<Vec<T>, u32> {
        const ROOM: u32 = 64;
        let mut values = vec![empty; ROOM as usize];
        let mut count = ROOM;
        // SAFETY: used for nvml.h functions taking a handle, a profile, an array of T and a place for a count, writing at
        // most as many T as a card has slices, and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, u32, *mut T, *mut u32) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(of, profile, values.as_mut_ptr(), &raw mut count))?;
        }
        values.truncate(count as usize);
        Ok(values)
    }

    /// Calls a function filling two values of a card.
    pub fn pair<T: Default>(&self, name: &str, device: Device) -> Result<(T, T), u32> {
        let (mut first, mut second) = (T::default(), T::default());
        // SAFETY: used for nvml.h functions taking a card and two pointers to T and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, *mut T, *mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, &raw mut first, &raw mut second))?;
        }
        Ok((first, second))
    }

    /// Calls a function filling a text of the system.
    pub fn text0(&self, name: &str) -> Result<String, u32> {
        let mut buffer = [0_u8; 96];
        // SAFETY: used for nvml.h functions taking a buffer and its length and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(*mut u8, u32) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(buffer.as_mut_ptr(), buffer.len() as u32))?;
        }
        Ok(text(&buffer))
    }

    /// Calls a function filling a text of a card.
    pub fn text(&self, name: &str, device: Device) -> Result<String, u32> {
        let mut buffer = [0_u8; 96];
        // SAFETY: used for nvml.h functions taking a card, a buffer and its length and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, *mut u8, u32) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, buffer.as_mut_ptr(), buffer.len() as u32))?;
        }
        Ok(text(&buffer))
    }

    /// The card with this index.
    pub fn device(&self, index: u32) -> Result<Device, u32> {
        let mut device: Device = std::ptr::null_mut();
        // SAFETY: the signature of nvmlDeviceGetHandleByIndex_v2 in nvml.h.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(u32, *mut Device) -> u32>(b"nvmlDeviceGetHandleByIndex_v2")
                .map_err(|_| MISSING)?;
            result(function(index, &raw mut device))?;
        }
        Ok(device)
    }

    /// Calls a function comparing two cards, chosen by a number.
    pub fn value_between(&self, name: &str, one: Device, other: Device, which: u32) -> Result<u32, u32> {
        let mut value = 0;
        // SAFETY: used for nvml.h functions taking two cards, a number and a pointer to a number and returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, Device, u32, *mut u32) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(one, other, which, &raw mut value))?;
        }
        Ok(value)
    }

    /// `nvmlGpuTopologyLevel_t` of two cards.
    pub fn level(&self, one: Device, other: Device) -> Result<u32, u32> {
        let mut level = 0;
        // SAFETY: the signature of nvmlDeviceGetTopologyCommonAncestor in nvml.h.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, Device, *mut u32) -> u32>(
                    b"nvmlDeviceGetTopologyCommonAncestor",
                )
                .map_err(|_| MISSING)?;
            result(function(one, other, &raw mut level))?;
        }
        Ok(level)
    }

    /// Calls a function filling a set of so many words, such as affinities; some take a scope.
    pub fn set_of(
        &self,
        name: &str,
        device: Device,
        words: u32,
        scope: Option<u32>,
    ) -> Result<Vec<u64>, u32> {
        type Set = unsafe extern "C" fn(Device, u32, *mut u64) -> u32;
        type SetInScope = unsafe extern "C" fn(Device, u32, *mut u64, u32) -> u32;
        let mut set = vec![0; words as usize];
        // SAFETY: used for nvml.h functions taking a card, a number of words, as many words, and a scope where one is
        // given, and returning nvmlReturn_t.
        unsafe {
            let code = match scope {
                None => {
                    let function = self.library.get::<Set>(name.as_bytes()).map_err(|_| MISSING)?;
                    function(device, words, set.as_mut_ptr())
                }
                Some(scope) => {
                    let function = self.library.get::<SetInScope>(name.as_bytes()).map_err(|_| MISSING)?;
                    function(device, words, set.as_mut_ptr(), scope)
                }
            };
            result(code)?;
        }
        Ok(set)
    }

    /// Calls a function filling a list of a card's things.
    pub fn list<T: Clone + Default>(&self, name: &str, device: Device) -> Result<Vec<T>, u32> {
        const ROOM: u32 = 1024;
        let mut values = vec![T::default(); ROOM as usize];
        let mut count = ROOM;
        // SAFETY: used for nvml.h functions taking a card, the room and an array of T, writing no more than the room, and
        // returning nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, *mut u32, *mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, &raw mut count, values.as_mut_ptr()))?;
        }
        values.truncate(count as usize);
        Ok(values)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // Ignored: the program ends.
        let _ = self.call0("nvmlShutdown");
    }
}

/// `NVML_ERROR_FUNCTION_NOT_FOUND`
const MISSING: u32 = 13;

fn result(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

fn text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}
