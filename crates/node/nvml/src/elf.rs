use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Length of a program header of a 64-bit ELF file.
const PROGRAM_HEADER: usize = 56;

/// Whether part of a library's loaded segments is missing, for example while it is copied or after the disk was full.
///
/// The dynamic loader does not check: a file mapped and read beyond its end kills the process (SIGBUS).
/// Everything else is left to the loader, whose error messages are better.
pub(crate) fn is_cut_short(path: &Path) -> bool {
    File::open(path).and_then(|file| Ok(needed(&file)? > file.metadata()?.len())).unwrap_or(false)
}

/// The minimal length of the file; 0 for anything but a 64-bit, little-endian ELF file.
fn needed(file: &File) -> io::Result<u64> {
    const LOADED: u32 = 1;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    if !header.starts_with(b"\x7fELF\x02\x01") || number(&header, 54, 2) != PROGRAM_HEADER as u64 {
        return Ok(0);
    }
    let count = number(&header, 56, 2) as usize;
    let mut headers = vec![0; count * PROGRAM_HEADER];
    file.read_exact_at(&mut headers, number(&header, 32, 8))?;
    let end = |header: &[u8]| number(header, 8, 8).saturating_add(number(header, 32, 8));
    let loaded = |header: &&[u8]| number(header, 0, 4) == u64::from(LOADED);
    Ok(headers.chunks_exact(PROGRAM_HEADER).filter(loaded).map(end).max().unwrap_or(0))
}

/// The little-endian number of `length` bytes at an offset.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_library_that_lacks_its_end_is_told_from_a_whole_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("library.so");
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        fs::write(&path, &whole).unwrap();
        assert!(!is_cut_short(&path));
        fs::write(&path, &whole[..whole.len() / 8]).unwrap();
        assert!(is_cut_short(&path));
        fs::write(&path, &whole[..5000]).unwrap();
        assert!(is_cut_short(&path));
    }

    #[test]
    fn what_the_loader_refuses_is_left_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("library.so");
        for content in [&b""[..], b"not a library", b"\x7fELF\x02\x01", &[0x7f; 100]] {
            fs::write(&path, content).unwrap();
            assert!(!is_cut_short(&path), "{content:?}");
        }
        assert!(!is_cut_short(&directory.path().join("none")));
    }
}
