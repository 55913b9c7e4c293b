//! Safe wrappers for arguments of C callers.
//!
//! `nvml.h` requires every pointer to be either null or valid for the function's use of the pointer. The types
//! here are these pointers; they only come from foreign callers, who must keep the requirement.

use std::ffi::{CStr, c_char};

use crate::failure::Failure;

/// A pointer for an output value.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the value; a null pointer is an invalid argument.
    pub fn set(self, value: T) -> Result<(), Failure> {
        if self.0.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid for a write of T by the contract of nvml.h.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// The same place for another type: versioned structs begin with their version, and the version selects the type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The place `position` values further, in an array whose caller vouches for its length.
    pub fn at(self, position: usize) -> Result<Out<T>, Failure> {
        if self.0.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        Ok(Out(self.0.wrapping_add(position)))
    }

    /// The place right behind the value, for an array behind a header.
    pub fn behind<U>(self) -> Out<U> {
        Out(self.0.wrapping_add(1).cast())
    }

    /// Whether nothing can be written.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> Out<T> {
    /// Reads the caller's value; a null pointer is an invalid argument.
    pub fn get(self) -> Result<T, Failure> {
        if self.0.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the caller's initialised T by the contract of nvml.h.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Writes a list, if the caller's buffer is large enough.
    ///
    /// NVML's convention for lists: `count` is the buffer's size on entry and the number of values on return; if the
    /// buffer is too small, the needed number is returned with [`Failure::INSUFFICIENT_SIZE`].
    pub fn set_list(self, count: Out<u32>, values: &[T]) -> Result<(), Failure> {
        let room = count.get()? as usize;
        count.set(u32::try_from(values.len()).unwrap_or(u32::MAX))?;
        if room < values.len() {
            return Err(Failure::INSUFFICIENT_SIZE);
        }
        if values.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        for (position, value) in values.iter().enumerate() {
            // SAFETY: the caller vouches for room for `room` values, and position < values.len() <= room.
            unsafe { self.0.add(position).write_unaligned(*value) };
        }
        Ok(())
    }

    /// Writes `values`, for which the caller must have sized the array exactly, and zeros in the remaining room.
    pub fn fill(self, room: u32, values: &[T], filler: T) -> Result<(), Failure> {
        if self.0.is_null() || room == 0 {
            return Err(Failure::INVALID_ARGUMENT);
        }
        if (room as usize) < values.len() {
            return Err(Failure::INSUFFICIENT_SIZE);
        }
        for position in 0..room as usize {
            let value = values.get(position).copied().unwrap_or(filler);
            // SAFETY: the caller vouches for room for `room` values, and position < room.
            unsafe { self.0.add(position).write_unaligned(value) };
        }
        Ok(())
    }
}

/// A buffer for text with a zero byte at its end.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct OutText(*mut c_char);

impl OutText {
    /// Writes the text; the buffer holds `length` bytes with the zero byte.
    pub fn set(self, length: u32, text: &str) -> Result<(), Failure> {
        if self.0.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        if (length as usize) < text.len() + 1 {
            return Err(Failure::INSUFFICIENT_SIZE);
        }
        // SAFETY: not null, and by the contract of nvml.h as long as `length`, which is enough for the text and its end.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.0, text.len());
            self.0.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// Text with a zero byte at its end.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct InText(*const c_char);

impl InText {
    /// The text; a null pointer is an invalid argument, and text outside of UTF-8 is not found.
    pub fn get<'text>(self) -> Result<&'text str, Failure> {
        if self.0.is_null() {
            return Err(Failure::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so by the contract of nvml.h a string with a zero byte at its end, only used while the call
        // lasts.
        unsafe { CStr::from_ptr(self.0) }.to_str().map_err(|_| Failure::NOT_FOUND)
    }
}

/// Puts text into a fixed array of C characters, cut off at the array's length.
pub fn characters<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte as c_char;
    }
    array
}

/// Checks the `version` field of a versioned struct: its size, and its number in the uppermost byte.
///
/// # Errors
/// [`Failure::ARGUMENT_VERSION_MISMATCH`], as the real library answers.
pub fn check_version<T>(version: u32, number: u32) -> Result<(), Failure> {
    if version == struct_version::<T>(number) { Ok(()) } else { Err(Failure::ARGUMENT_VERSION_MISMATCH) }
}

/// `NVML_STRUCT_VERSION` of nvml.h.
pub const fn struct_version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | (number << 24)
}
