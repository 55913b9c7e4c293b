//! The part of the ELF format needed for driver files: creating an empty library with a name, and removing functions
//! from one.
//!
//! Numbers of the format are from the System V ABI, 64 bit, little endian.

use std::collections::BTreeSet;

/// Why a library cannot be changed.
#[derive(Debug, thiserror::Error)]
#[error("not a 64-bit little-endian ELF library with dynamic symbols: {0}")]
pub struct NotALibrary(&'static str);

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
const SECTION_DYNSYM: u32 = 11;
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(number(bytes, at)?).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(number(bytes, at)?))
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(number(bytes, at)?)).ok()
}

/// Removes functions from a library: `dlsym` no longer finds them. Returns the names missing in the library.
///
/// # Errors
/// When `library` is not an ELF library.
pub fn remove_functions(
    library: &mut [u8],
    functions: &BTreeSet<&str>,
) -> Result<BTreeSet<String>, NotALibrary> {
    if library.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err(NotALibrary("no such magic number"));
    }
    let symbols = dynamic_symbols(library).ok_or(NotALibrary("its section headers lead nowhere"))?;
    let mut missing: BTreeSet<String> = functions.iter().map(|name| (*name).to_owned()).collect();
    for (at, name) in symbols {
        if functions.contains(name.as_str()) {
            // Lookups ignore an undefined symbol (st_shndx 0, st_value 0).
            library[at + 6..at + 16].fill(0);
            missing.remove(&name);
        }
    }
    Ok(missing)
}

/// Offset and name of every dynamic symbol.
fn dynamic_symbols(library: &[u8]) -> Option<Vec<(usize, String)>> {
    let sections = usize_at(library, 40)?;
    let count = u16_at(library, 60)?;
    let section = |number: usize| sections.checked_add(number.checked_mul(SECTION_HEADER)?);
    let dynsym = (0..count).find_map(|number| {
        let at = section(number)?;
        (u32_at(library, at + 4)? == SECTION_DYNSYM).then_some(at)
    })?;
    let strings = usize_at(library, section(u32_at(library, dynsym + 40)? as usize)? + 24)?;
    let (offset, size) = (usize_at(library, dynsym + 24)?, usize_at(library, dynsym + 32)?);
    (0..size / SYMBOL)
        .map(|symbol| {
            let at = offset + symbol * SYMBOL;
            let start = strings.checked_add(u32_at(library, at)? as usize)?;
            let text = library.get(start..)?;
            let end = text.iter().position(|byte| *byte == 0)?;
            Some((at, String::from_utf8_lossy(&text[..end]).into_owned()))
        })
        .collect()
}

/// A loadable library without functions, with the name `soname`.
pub fn empty_library(soname: &str) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.dynsym\0.dynstr\0.hash\0.dynamic\0.shstrtab\0";
    const DT_HASH: u64 = 4;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_STRSZ: u64 = 10;
    const DT_SYMENT: u64 = 11;
    const DT_SONAME: u64 = 14;

    let mut strings = vec![0];
    strings.extend_from_slice(soname.as_bytes());
    strings.push(0);
    let dynsym = HEADER + 2 * PROGRAM_HEADER;
    let hash = dynsym + SYMBOL;
    let hash_length = 16;
    let dynamic = hash + hash_length;
    let dynamic_length = 7 * 16;
    let dynstr = dynamic + dynamic_length;
    let shstrtab = dynstr + strings.len();
    let loaded = shstrtab;
    let headers = (shstrtab + NAMES.len()).next_multiple_of(8);

    let mut file = Vec::new();
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| file.extend_from_slice(part));
    let half = u16::to_le_bytes;
    let word = u32::to_le_bytes;
    let long = |value: usize| (value as u64).to_le_bytes();
    // File header: shared object.
    put(&[
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0",
        &half(3),
        &half(MACHINE),
        &word(1),
        &long(0),
        &long(HEADER),
    ]);
    put(&[&long(headers), &word(0), &half(HEADER as u16), &half(PROGRAM_HEADER as u16), &half(2)]);
    put(&[&half(SECTION_HEADER as u16), &half(6), &half(5)]);
    // Program headers: one readable and writable segment, since the loader relocates the dynamic section in place.
    put(&[&word(1), &word(6), &long(0), &long(0), &long(0), &long(loaded), &long(loaded), &long(0x1000)]);
    let (at, length) = (long(dynamic), long(dynamic_length));
    put(&[&word(2), &word(6), &at, &at, &at, &length, &length, &long(8)]);
    // The null symbol, and a hash table with one empty bucket.
    put(&[&[0; SYMBOL], &word(1), &word(1), &word(0), &word(0)]);
    let entries = [
        (DT_SONAME, 1),
        (DT_HASH, hash as u64),
        (DT_STRTAB, dynstr as u64),
        (DT_SYMTAB, dynsym as u64),
        (DT_STRSZ, strings.len() as u64),
        (DT_SYMENT, SYMBOL as u64),
        (0, 0),
    ];
    for (tag, value) in entries {
        put(&[&tag.to_le_bytes(), &value.to_le_bytes()]);
    }
    put(&[&strings, NAMES]);
    file.resize(headers, 0);
    let mut section =
        |name: u32, kind: u32, flags: usize, at: usize, length: usize, link: u32, entry: usize| {
            let address = if flags == 0 { 0 } else { at };
            for part in [
                &word(name)[..],
                &word(kind),
                &long(flags),
                &long(address),
                &long(at),
                &long(length),
                &word(link),
            ] {
                file.extend_from_slice(part);
            }
            for part in [&word(u32::from(kind == SECTION_DYNSYM))[..], &long(8), &long(entry)] {
                file.extend_from_slice(part);
            }
        };
    section(0, 0, 0, 0, 0, 0, 0);
    section(1, SECTION_DYNSYM, 2, dynsym, SYMBOL, 2, SYMBOL);
    section(9, 3, 2, dynstr, strings.len(), 0, 0);
    section(17, 5, 2, hash, hash_length, 1, 4);
    section(23, 6, 3, dynamic, dynamic_length, 2, 16);
    section(32, 3, 0, shstrtab, NAMES.len(), 0, 0);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_functions_can_be_loaded() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("libcuda.so.1");
        std::fs::write(&path, empty_library("libcuda.so.1")).expect("the file");
        // SAFETY: the library has neither code nor initialisers.
        let library = unsafe { libloading::Library::new(&path) };
        library.expect("the loader takes it");
    }

    #[test]
    fn what_is_no_library_is_refused() {
        for bytes in [&b""[..], b"\x7fELF", b"\x7fELF\x02\x01", &[0; 100], b"#!/bin/sh\n"] {
            remove_functions(&mut bytes.to_vec(), &BTreeSet::new()).expect_err("no library");
        }
        let mut cut = empty_library("x");
        cut.truncate(cut.len() - 300);
        remove_functions(&mut cut, &BTreeSet::new()).expect_err("cut short");
    }
}
