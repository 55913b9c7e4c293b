//! The part of the CUDA driver API (`libcuda.so.1`) showing a CUDA program's resources: a context, its
//! multiprocessors, its memory. For checks on real cards.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use libloading::Library;

/// Name of the library, beside NVML's.
pub const CUDA_LIBRARY_NAME: &str = "libcuda.so.1";

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`
const MULTIPROCESSOR_COUNT: c_int = 16;

type Context = *mut c_void;

/// The CUDA driver, started. The library is never unloaded, because its threads remain.
#[derive(Clone)]
pub struct Cuda {
    library: Arc<ManuallyDrop<Library>>,
}

/// A failed CUDA call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The library does not load.
    #[error("can't load {}: {source}", path.display())]
    NotLoadable {
        /// The library.
        path: PathBuf,
        /// The loader's message.
        source: libloading::Error,
    },
    /// A function is missing: the library is not for CUDA, or of an unsupported driver.
    #[error("the CUDA library has no function {0}")]
    NoFunction(&'static str),
    /// A call failed.
    #[error("{function}: {name} ({code})")]
    Call {
        /// The function.
        function: &'static str,
        /// `CUresult`
        code: u32,
        /// Name of the code in `cuda.h`.
        name: String,
    },
}

/// The primary context of one device, current on the thread of its creation.
pub struct CudaContext {
    cuda: Cuda,
    device: c_int,
    /// A context is current on one thread.
    _thread: PhantomData<*mut ()>,
}

/// Memory of a device.
#[derive(Debug)]
pub struct CudaMemory {
    address: u64,
}

/// Looks up a function and calls it; a result other than success is an error with its name.
macro_rules! call {
    ($cuda:expr, $name:ident($($argument:expr => $type:ty),*)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> c_uint;
        let name = stringify!($name);
        // SAFETY: the type is that of cuda.h for this name.
        let function = unsafe { $cuda.library.get::<Function>(concat!(stringify!($name), "\0").as_bytes()) };
        match function {
            // SAFETY: arguments as cuda.h says: out-pointers lead to values that live until after the call.
            Ok(function) => $cuda.check(name, unsafe { function($($argument),*) }),
            Err(_) => Err(CudaError::NoFunction(name)),
        }
    }};
}

impl Cuda {
    /// Loads and starts the library at `path`. The environment of the process is read now: `CUDA_VISIBLE_DEVICES` and the
    /// variables of MPS.
    ///
    /// # Errors
    /// [`CudaError`]
    pub fn open(path: &Path) -> Result<Self, CudaError> {
        // SAFETY: the driver's own library, whose initialisers are made to be run by any program that loads it.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|source| CudaError::NotLoadable { path: path.to_owned(), source })?;
        let cuda = Self { library: Arc::new(ManuallyDrop::new(library)) };
        call!(cuda, cuInit(0 => c_uint))?;
        Ok(cuda)
    }

    /// Makes the primary context of a device, counted as CUDA does, and makes it current on this thread.
    ///
    /// # Errors
    /// [`CudaError`]
    pub fn context(&self, number: u16) -> Result<CudaContext, CudaError> {
        let mut device: c_int = 0;
        call!(self, cuDeviceGet(&raw mut device => *mut c_int, c_int::from(number) => c_int))?;
        let mut context: Context = ptr::null_mut();
        call!(self, cuDevicePrimaryCtxRetain(&raw mut context => *mut Context, device => c_int))?;
        let made = CudaContext { cuda: self.clone(), device, _thread: PhantomData };
        call!(self, cuCtxSetCurrent(context => Context))?;
        Ok(made)
    }

    fn check(&self, function: &'static str, code: c_uint) -> Result<(), CudaError> {
        if code == 0 { Ok(()) } else { Err(CudaError::Call { function, code, name: self.name(code) }) }
    }

    fn name(&self, code: c_uint) -> String {
        type Function = unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint;
        let mut text: *const c_char = ptr::null();
        // SAFETY: the type is that of cuda.h for this name.
        let function = unsafe { self.library.get::<Function>(b"cuGetErrorName\0") };
        // SAFETY: writes one pointer.
        let named = function.is_ok_and(|function| unsafe { function(code, &raw mut text) } == 0);
        if !named || text.is_null() {
            return "an error without a name".to_owned();
        }
        // SAFETY: a string of the library that ends in a zero byte and lives as long as the library, which is for good.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

impl CudaContext {
    /// UUID of the device, in NVML's form for a card: `GPU-…`.
    ///
    /// # Errors
    /// [`CudaError`]
    pub fn uuid(&self) -> Result<String, CudaError> {
        let mut bytes = [0_u8; 16];
        call!(self.cuda, cuDeviceGetUuid_v2(bytes.as_mut_ptr() => *mut u8, self.device => c_int))?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        Ok(format!("GPU-{a}-{b}-{c}-{d}-{e}"))
    }

    /// Multiprocessors usable by the context. For an MPS client, its part (NVIDIA's MPS documentation,
    /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`).
    ///
    /// # Errors
    /// [`CudaError`]
    pub fn multiprocessors(&self) -> Result<u32, CudaError> {
        let mut count: c_int = 0;
        call!(
            self.cuda,
            cuDeviceGetAttribute(
                &raw mut count => *mut c_int,
                MULTIPROCESSOR_COUNT => c_int,
                self.device => c_int
            )
        )?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Free and total bytes of memory, as reported to the context.
    ///
    /// # Errors
    /// [`CudaError`]
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0_usize, 0_usize);
        call!(self.cuda, cuMemGetInfo_v2(&raw mut free => *mut usize, &raw mut total => *mut usize))?;
        Ok((free as u64, total as u64))
    }

    /// Allocates memory.
    ///
    /// # Errors
    /// [`CudaError`]: `CUDA_ERROR_OUT_OF_MEMORY` (2) if memory is short, or a limit is reached.
    pub fn allocate(&self, bytes: usize) -> Result<CudaMemory, CudaError> {
        let mut address: u64 = 0;
        call!(self.cuda, cuMemAlloc_v2(&raw mut address => *mut u64, bytes => usize))?;
        Ok(CudaMemory { address })
    }

    /// Frees memory.
    ///
    /// # Errors
    /// [`CudaError`]
    // By value: an address is freed once.
    #[allow(clippy::needless_pass_by_value)]
    pub fn free(&self, memory: CudaMemory) -> Result<(), CudaError> {
        call!(self.cuda, cuMemFree_v2(memory.address => u64))
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        // Ignored: the process ends soon, freeing the memory, too.
        let _ = call!(self.cuda, cuDevicePrimaryCtxRelease_v2(self.device => c_int));
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cuda").finish_non_exhaustive()
    }
}

impl fmt::Debug for CudaContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CudaContext").field("device", &self.device).finish_non_exhaustive()
    }
}
