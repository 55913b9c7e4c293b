//! A counter shared by all processes of a machine, raised whenever the state changes.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

/// The counter, mapped from a file of four bytes.
#[derive(Debug)]
pub struct Generation {
    address: *const AtomicU32,
}

// SAFETY: the mapping is one aligned atomic that lives until drop; atomics may be used from every thread.
unsafe impl Send for Generation {}
// SAFETY: as above.
unsafe impl Sync for Generation {}

/// Bytes mapped.
const LENGTH: usize = size_of::<AtomicU32>();

impl Generation {
    /// Maps the counter in `path` for reading.
    ///
    /// # Errors
    /// When the file cannot be opened or is shorter than the counter.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Self::map(&file, ProtFlags::READ)
    }

    /// Raises the counter in `path` and wakes all waiters.
    ///
    /// # Errors
    /// When the file cannot be opened for writing.
    pub fn advance(path: &Path) -> io::Result<()> {
        let file = File::options().read(true).write(true).open(path)?;
        let generation = Self::map(&file, ProtFlags::READ | ProtFlags::WRITE)?;
        generation.counter().fetch_add(1, Ordering::Release);
        futex::wake(generation.counter(), futex::Flags::empty(), u32::MAX / 2)?;
        Ok(())
    }

    fn map(file: &File, protection: ProtFlags) -> io::Result<Self> {
        if file.metadata()?.len() < LENGTH as u64 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the generation counter is cut short"));
        }
        // SAFETY: a new mapping at an address of the kernel's choice; the file is at least LENGTH long, and no code of
        // the emulator ever shortens the file.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), LENGTH, protection, MapFlags::SHARED, file, 0)? };
        Ok(Generation { address: address.cast() })
    }

    fn counter(&self) -> &AtomicU32 {
        // SAFETY: mappings are aligned to pages and zero-initialised at least; the mapping outlives self.
        unsafe { &*self.address }
    }

    /// The counter now.
    pub fn get(&self) -> u32 {
        self.counter().load(Ordering::Acquire)
    }

    /// Waits until the counter is not `seen`, at most `limit`.
    pub fn wait(&self, seen: u32, limit: Duration) {
        let Ok(tv_sec) = limit.as_secs().try_into() else { return };
        let timeout = Timespec { tv_sec, tv_nsec: limit.subsec_nanos().into() };
        // Whatever the reason for its return (moved, time over, a signal), the caller looks at the counter again.
        let _ = futex::wait(self.counter(), futex::Flags::empty(), seen, Some(&timeout));
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // SAFETY: address and length are of the mapping, and no reference into the mapping can outlive self.
        let _ = unsafe { rustix::mm::munmap(self.address.cast_mut().cast(), LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_wakes_when_the_counter_moves() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("generation");
        std::fs::write(&path, [0; 4]).expect("the file");
        let generation = Generation::open(&path).expect("it opens");
        let seen = generation.get();
        let started = std::time::Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                Generation::advance(&path).expect("it advances");
            });
            while generation.get() == seen {
                generation.wait(seen, Duration::from_secs(20));
            }
        });
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_file_cut_short_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("generation");
        std::fs::write(&path, [0; 3]).expect("the file");
        assert!(Generation::open(&path).is_err());
    }
}
