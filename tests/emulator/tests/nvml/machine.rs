//! A machine in a temporary directory, and its library.

use std::path::Path;
use std::process::{Command, Output};

use libloading::Library;
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t};
use serde_json::Value;

/// `NVML_SUCCESS`
pub const SUCCESS: u32 = 0;

/// A machine in a temporary directory.
pub struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    /// Makes one; `arguments` are those of `gpu-emulator create` behind the directory.
    pub fn create(arguments: &[&str]) -> Self {
        let machine = Machine { directory: tempfile::tempdir().expect("a temporary directory") };
        machine.emulator("create", arguments);
        machine
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Runs `gpu-emulator COMMAND… DIR ARGUMENTS…`, which must do it.
    pub fn emulator(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.try_emulator(command, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "gpu-emulator {command} {arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs it, whatever comes of it.
    pub fn try_emulator(&self, command: &str, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_gpu-emulator"))
            .args(command.split(' '))
            .arg(self.path())
            .args(arguments)
            .output()
            .expect("gpu-emulator runs")
    }

    /// What `gpu-emulator show` knows of it.
    pub fn show(&self) -> Value {
        serde_json::from_str(&self.emulator("show", &["-o", "json"])).expect("JSON")
    }

    /// Its library with the types of nvml.h, initialised.
    pub fn nvml(&self) -> Nvml {
        let path = self.path().join("lib/libnvidia-ml.so.1");
        // SAFETY: the emulator's library; its initialisers do nothing.
        let functions = unsafe { NvmlLib::new(path) }.expect("the library loads");
        // SAFETY: takes nothing.
        assert_eq!(unsafe { functions.nvmlInit_v2() }, SUCCESS);
        Nvml { functions }
    }

    /// Its library, not initialised.
    pub fn library(&self) -> Library {
        // SAFETY: the emulator's library; its initialisers do nothing.
        unsafe { Library::new(self.path().join("lib/libnvidia-ml.so.1")) }.expect("the library loads")
    }
}

/// A library that is initialised.
pub struct Nvml {
    /// Its functions.
    pub functions: NvmlLib,
}

impl Nvml {
    /// Handle of a card.
    pub fn card(&self, index: u32) -> nvmlDevice_t {
        let mut device = std::ptr::null_mut();
        // SAFETY: `device` is a valid place.
        let code = unsafe { self.functions.nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) };
        assert_eq!(code, SUCCESS, "handle of card {index}");
        device
    }

    /// What a function that fills one value says.
    pub fn get<T: Default>(&self, function: impl FnOnce(&NvmlLib, *mut T) -> u32) -> Result<T, u32> {
        let mut value = T::default();
        match function(&self.functions, &raw mut value) {
            SUCCESS => Ok(value),
            code => Err(code),
        }
    }

    /// What a function that fills a text says.
    pub fn text(
        &self,
        function: impl FnOnce(&NvmlLib, *mut std::ffi::c_char, u32) -> u32,
    ) -> Result<String, u32> {
        let mut buffer = [0_u8; 128];
        match function(&self.functions, buffer.as_mut_ptr().cast(), buffer.len() as u32) {
            SUCCESS => {
                let end = buffer.iter().position(|byte| *byte == 0).expect("text ends in a zero");
                Ok(String::from_utf8(buffer[..end].to_vec()).expect("text"))
            }
            code => Err(code),
        }
    }

    /// UUID of a card.
    pub fn uuid(&self, index: u32) -> Result<String, u32> {
        let card = self.card(index);
        // SAFETY: the buffer is as long as the length says.
        self.text(|nvml, buffer, length| unsafe { nvml.nvmlDeviceGetUUID(card, buffer, length) })
    }
}
