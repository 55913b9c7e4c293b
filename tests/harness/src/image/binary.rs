use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use object::{
    Endianness,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader, ProgramHeader},
};

use super::{Image, ImageError};

/// Libraries of the C library's own family that a library loaded at run time may need, though the program does not.
/// Those that the machine does not have are left out.
const LOADED_LATER: &[&str] =
    &["libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"];

impl Image {
    /// An image that runs a program of this machine, with the loader and all libraries it is linked to, each at the
    /// path where this machine has it. A static program is taken alone.
    ///
    /// # Errors
    /// The file is no program of this machine, or a library is missing.
    pub fn from_binary(reference: impl Into<String>, program: &Path) -> Result<Self, ImageError> {
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or("program");
        let place = format!("/usr/bin/{name}");
        Self::new(reference).binary(&place, program).map(|image| image.entrypoint([place]))
    }

    /// Adds a program of this machine as [`Image::from_binary`] does.
    ///
    /// # Errors
    /// Likewise.
    pub fn binary(mut self, place: &str, program: &Path) -> Result<Self, ImageError> {
        self = self.file(place, program, 0o755)?;
        let Some(loader) = loader(program)? else { return Ok(self) };
        let libraries = libraries(&loader, program)?;
        let mut folders = BTreeSet::new();
        for library in &libraries {
            folders.extend(library.parent().map(Path::to_owned));
        }
        for library in libraries.iter().chain([&loader]) {
            self = self.library(library)?;
        }
        for name in LOADED_LATER {
            if let Some(path) = folders.iter().map(|folder| folder.join(name)).find(|path| path.exists()) {
                self = self.library(&path)?;
            }
        }
        Ok(self)
    }

    /// Adds a library under the path by which the loader asks for it; what links lead to is copied.
    fn library(self, path: &Path) -> Result<Self, ImageError> {
        match path.to_str() {
            Some(place) if !self.contains(place) => self.file(place, path, 0o755),
            _ => Ok(self),
        }
    }
}

/// The loader that a program names; none for a static one.
fn loader(program: &Path) -> Result<Option<PathBuf>, ImageError> {
    let failed = |message: String| ImageError::Program { path: program.to_owned(), message };
    let bytes = fs::read(program).map_err(|source| ImageError::Read { path: program.to_owned(), source })?;
    let data = bytes.as_slice();
    let header = FileHeader64::<Endianness>::parse(data).map_err(|error| failed(error.to_string()))?;
    let endian = header.endian().map_err(|error| failed(error.to_string()))?;
    let segments = header.program_headers(endian, data).map_err(|error| failed(error.to_string()))?;
    for segment in segments.iter().filter(|segment| segment.p_type(endian) == PT_INTERP) {
        let name = segment.interpreter(endian, data).map_err(|error| failed(error.to_string()))?;
        if let Some(name) = name {
            return Ok(Some(PathBuf::from(String::from_utf8_lossy(name).into_owned())));
        }
    }
    Ok(None)
}

/// Asks the loader itself, which knows its own rules best, where each library is.
fn libraries(loader: &Path, program: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let output = Command::new(loader)
        .arg("--list")
        .arg(program)
        .output()
        .map_err(|source| ImageError::Read { path: loader.to_owned(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ImageError::Program { path: program.to_owned(), message });
    }
    parse_list(&text).map_err(|library| ImageError::Library { path: program.to_owned(), library })
}

/// Lines such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f…)`; the vdso has no path and needs none. The error
/// is the name of a library that was not found.
fn parse_list(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((name, rest)) = line.trim().split_once(" => ") else { continue };
        match rest.split(" (").next() {
            Some("not found") => return Err(name.to_owned()),
            Some(path) if path.starts_with('/') => found.push(PathBuf::from(path)),
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_understood() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f01)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        assert_eq!(parse_list(text).unwrap(), [PathBuf::from("/lib/x86_64-linux-gnu/libgcc_s.so.1")]);
        assert_eq!(parse_list("\tliba.so.1 => not found\n").unwrap_err(), "liba.so.1");
    }

    #[test]
    fn a_dynamic_program_brings_its_loader_and_the_c_library() {
        let program = std::env::current_exe().unwrap();
        let image = Image::from_binary("example.test/self:1", &program).unwrap();
        let loader = loader(&program).unwrap().expect("test programs are dynamic");
        assert!(image.contains(loader.to_str().unwrap()));
        let libraries = libraries(&loader, &program).unwrap();
        assert!(libraries.iter().any(|path| path.ends_with("libc.so.6")));
        for library in libraries {
            assert!(image.contains(library.to_str().unwrap()), "{} is missing", library.display());
        }
    }

    #[test]
    fn a_text_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "no program").unwrap();
        assert!(matches!(Image::from_binary("a:1", file.path()), Err(ImageError::Program { .. })));
    }
}
