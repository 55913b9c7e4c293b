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
        /// What was asked.
        what: String,
        /// `nvmlReturn_t`.
        code: u32,
        /// The library's text for it.
        text: String,
    },
    /// What was asked for is not there.
    #[error("{text}")]
    Plain {
        /// What the real tool says.
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
    /// Loads and initialises it: from the installation this program is part of, else from where the loader finds it.
    pub fn open() -> Result<Self, SmiError> {
        const NAME: &str = "libnvidia-ml.so.1";
        let beside = std::env::current_exe()
            .ok()
            .and_then(|program| Some(program.parent()?.parent()?.join("lib").join(NAME)));
        let path = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(NAME));
        // SAFETY: loading a driver library runs its initialisers, which every NVML client lets it do.
        let library = unsafe { libloading::Library::new(path) }.map_err(SmiError::NoLibrary)?;
        let library = Library { library };
        library.check("Failed to initialize NVML", library.call0("nvmlInit_v2"))?;
        Ok(library)
    }

    /// Text of an error code.
    pub fn error_text(&self, code: u32) -> String {
        // SAFETY: the signature of nvmlErrorString in nvml.h; it gives a string that is never freed.
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

    /// Turns a code into an error that names what was asked.
    pub fn named<T>(&self, what: &str, outcome: Result<T, u32>) -> Result<T, SmiError> {
        outcome.map_err(|code| SmiError::Nvml { what: what.to_owned(), code, text: self.error_text(code) })
    }

    /// Calls a function without arguments.
    pub fn call0(&self, name: &str) -> Result<(), u32> {
        // SAFETY: used for functions of nvml.h that take nothing and give nvmlReturn_t.
        unsafe {
            let function =
                self.library.get::<unsafe extern "C" fn() -> u32>(name.as_bytes()).map_err(|_| MISSING)?;
            result(function())
        }
    }

    /// Calls a function that fills one value.
    pub fn value0<T: Default>(&self, name: &str) -> Result<T, u32> {
        let mut value = T::default();
        // SAFETY: used for functions of nvml.h that take a pointer to T and give nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(*mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(&raw mut value))?;
        }
        Ok(value)
    }

    /// Calls a function that fills one value of a card.
    pub fn value<T: Default>(&self, name: &str, device: Device) -> Result<T, u32> {
        let mut value = T::default();
        self.fill(name, device, &mut value)?;
        Ok(value)
    }

    /// Calls a function that sets one number of a card.
    pub fn set(&self, name: &str, device: Device, value: u32) -> Result<(), u32> {
        // SAFETY: used for functions of nvml.h that take a card and a number and give nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, u32) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, value))
        }
    }

    /// Calls a function that fills one value of a card, which has a version in it.
    pub fn fill<T>(&self, name: &str, device: Device, value: &mut T) -> Result<(), u32> {
        // SAFETY: used for functions of nvml.h that take a card and a pointer to T and give nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, *mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, std::ptr::from_mut(value)))
        }
    }

    /// Calls a function that fills one value of a card, chosen by a number.
    pub fn value_of<T: Default>(&self, name: &str, device: Device, which: u32) -> Result<T, u32> {
        let mut value = T::default();
        // SAFETY: used for functions of nvml.h that take a card, a number and a pointer to T and give nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, u32, *mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, which, &raw mut value))?;
        }
        Ok(value)
    }

    /// Calls a function that fills one value of a card, chosen by a number; the value may have a version in it.
    pub fn fill_of<T>(&self, name: &str, of: Device, which: u32, value: &mut T) -> Result<(), u32> {
        // SAFETY: used for functions of nvml.h that take a handle, a number and a pointer to T and give nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, u32, *mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(of, which, std::ptr::from_mut(value)))
        }
    }

    /// Calls a function that takes only a handle.
    pub fn of(&self, name: &str, of: Device) -> Result<(), u32> {
        // SAFETY: used for functions of nvml.h that take a handle and give nvmlReturn_t.
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
        // SAFETY: the signature in nvml.h; the struct has its version in it.
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

    /// Calls a function that makes an instance of a profile.
    pub fn make(&self, name: &str, of: Device, profile: u32) -> Result<Device, u32> {
        let mut made: Device = std::ptr::null_mut();
        self.fill_of(name, of, profile, &mut made)?;
        Ok(made)
    }

    /// Calls a function that makes an instance of a profile at a placement.
    pub fn make_at(&self, name: &str, of: Device, profile: u32, placement: [u32; 2]) -> Result<Device, u32> {
        let mut made: Device = std::ptr::null_mut();
        // SAFETY: used for functions of nvml.h that take a handle, a profile, a placement, which is two numbers, and a place
        // for a handle, and give nvmlReturn_t.
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

    /// Calls a function that lists things of a profile; the list has room for more than there ever are.
    pub fn instances<T: Clone>(&self, name: &str, of: Device, profile: u32, empty: T) -> Result<Vec<T>, u32> {
        const ROOM: u32 = 64;
        let mut values = vec![empty; ROOM as usize];
        let mut count = ROOM;
        // SAFETY: used for functions of nvml.h that take a handle, a profile, an array of T and a place for a count, write at
        // most as many T as a card has slices, and give nvmlReturn_t.
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

    /// Calls a function that fills two values of a card.
    pub fn pair<T: Default>(&self, name: &str, device: Device) -> Result<(T, T), u32> {
        let (mut first, mut second) = (T::default(), T::default());
        // SAFETY: used for functions of nvml.h that take a card and two pointers to T and give nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, *mut T, *mut T) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, &raw mut first, &raw mut second))?;
        }
        Ok((first, second))
    }

    /// Calls a function that fills a text of the system.
    pub fn text0(&self, name: &str) -> Result<String, u32> {
        let mut buffer = [0_u8; 96];
        // SAFETY: used for functions of nvml.h that take a buffer and its length and give nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(*mut u8, u32) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(buffer.as_mut_ptr(), buffer.len() as u32))?;
        }
        Ok(text(&buffer))
    }

    /// Calls a function that fills a text of a card.
    pub fn text(&self, name: &str, device: Device) -> Result<String, u32> {
        let mut buffer = [0_u8; 96];
        // SAFETY: used for functions of nvml.h that take a card, a buffer and its length and give nvmlReturn_t.
        unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(Device, *mut u8, u32) -> u32>(name.as_bytes())
                .map_err(|_| MISSING)?;
            result(function(device, buffer.as_mut_ptr(), buffer.len() as u32))?;
        }
        Ok(text(&buffer))
    }

    /// The card with that index.
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

    /// Calls a function that tells something of two cards, chosen by a number.
    pub fn value_between(&self, name: &str, one: Device, other: Device, which: u32) -> Result<u32, u32> {
        let mut value = 0;
        // SAFETY: used for functions of nvml.h that take two cards, a number and a pointer to a number and give nvmlReturn_t.
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

    /// Calls a function that fills a set of so many words, as those of affinities do; some take a scope.
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
        // SAFETY: used for functions of nvml.h that take a card, a number of words, that many words, and a scope where one is
        // given, and give nvmlReturn_t.
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

    /// Calls a function that fills a list of a card's things.
    pub fn list<T: Clone + Default>(&self, name: &str, device: Device) -> Result<Vec<T>, u32> {
        const ROOM: u32 = 1024;
        let mut values = vec![T::default(); ROOM as usize];
        let mut count = ROOM;
        // SAFETY: used for functions of nvml.h that take a card, the room and an array of T, write at most that many, and
        // give nvmlReturn_t.
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
